"""What all tests share: hypothesis judges none by its speed, since a machine may be slow and busy; one mesh that stands for many files, and how
files are shared out among workers; collections of garbage that do not look through ten thousand tests.
"""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # xdist ships no types

from tests.support.mesh.mesh import Mesh, running_mesh

settings.register_profile("ternmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ternmq")


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: what looks for garbage later passes them over, which spares it a quarter of a second each time."""
    gc.collect()
    gc.freeze()


class FilesByMesh(LoadScopeScheduling):  # type: ignore[misc]
    """`--dist loadfile`, but all files of the secure mesh go to one worker: two would each start one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/secure" if file.startswith("tests/secure/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesByMesh | None:
    """xdist's own, but for `--dist loadfile`."""
    return FilesByMesh(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def standing_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Three brokers, two proxies, two name servers and a checker, started once by each worker: a start costs eight seconds of a core. Names keep
    tests apart. A test that kills a process leaves the mesh whole (`Mesh.wait_until_whole`).
    """
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--proxies", "2", "--namesrvs", "2") as running:
        yield running
