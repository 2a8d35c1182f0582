"""The commands and programs of README.md and docs/, run as a reader would: every page in a shell of its own, all against
one mesh of real processes; what the pages show as answers is compared with what came."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.documents.pages import PAGES, ROOT
from tests.support.documents.runs import PageRun, addresses, run_page, runnable
from tests.support.mesh.mesh import running_mesh

# The first test waits for its page, which begins with the others.
pytestmark = pytest.mark.timeout(600)
# At a time: each page waits most of the time, for processes that begin.
TOGETHER = 3
RUNNABLE = [page for page in PAGES if runnable(page)]
NAMES = [str(page.relative_to(ROOT)) for page in RUNNABLE]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[PageRun]]]:
    """All pages under way, by name."""
    directory = tmp_path_factory.mktemp("documents")
    with running_mesh(directory / "mesh", "--wait", "80") as mesh, ThreadPoolExecutor(TOGETHER) as pool:
        given = {
            "TERNMQ_ENDPOINT": mesh.endpoint,
            "TERNMQ_NAMESRV": mesh.namesrv,
            "TERNMQ_DATA_DIR": str(mesh.directory),
        }

        def run(page: Path) -> PageRun:
            return run_page(page, directory / page.stem, addresses(mesh.port_base), given)

        # The longest first, so that none is left over when the others are through.
        order = sorted(RUNNABLE, key=lambda page: -page.read_text("utf-8").count("\nternmq "))
        yield {str(page.relative_to(ROOT)): pool.submit(run, page) for page in order}


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_and_programs_of_a_page_work_as_they_stand(runs: dict[str, Future[PageRun]], name: str) -> None:
    """Only the addresses are other ones. Each block ends as its page says, and prints what its page shows."""
    failures = runs[name].result().failures()
    assert not failures, "\n\n".join(failures)
