"""One real mesh (three brokers, two proxies, two name servers) for all tests of this folder; topics keep them apart."""

from collections.abc import Iterator

import pytest

from tests.support.mesh import Mesh, running_mesh


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Started once; nothing in this folder kills a process of it."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--proxies", "2", "--namesrvs", "2") as running:
        yield running
