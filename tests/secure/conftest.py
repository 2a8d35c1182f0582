"""One secure mesh (three brokers, two proxies, two name servers, a checker) for all tests of this folder; names keep them apart."""

from collections.abc import Iterator

import pytest

from tests.support.mesh.secure_mesh import SecureMesh, running_secure_mesh


@pytest.fixture(scope="session")
def secure_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureMesh]:
    """Started once with `ternmq up --secure`: TLS everywhere, keys at the proxies."""
    directory = tmp_path_factory.mktemp("secure") / "tern"
    with running_secure_mesh(directory, "--proxies", "2", "--namesrvs", "2") as running:
        yield running
