"""The commands of docs/spark.md about jobs, in order, without Spark."""

import shlex
from pathlib import Path

import pytest

from tern_jobs import JOBS
from tests.support.client.batch_server import batch_server
from tests.support.client.job_runs import run, two_days
from tests.support.client.record_server import Script, record_server
from tests.support.documents.pages import ROOT

PAGE = (ROOT / "docs/spark.md").read_text("utf-8")
COMMANDS = [shlex.split(line)[3:] for line in PAGE.splitlines() if line.startswith("ternmq spark run ")]


def test_the_commands_of_the_page_end_with_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand there, but for the endpoint; the page of the last one is written."""
    monkeypatch.chdir(tmp_path)
    with record_server(Script(queues={"broker-a:0": two_days(0, 60)})) as script, batch_server() as store:
        writing = Script(queues={}, url=store.url)
        ended = [run(name, writing if name == "replay" else script, *arguments) for name, *arguments in COMMANDS]
        assert len(store.topics["orders-again"]) == 60
    assert [each.code for each in ended] == [0] * len(COMMANDS), [each.stderr for each in ended]
    assert (tmp_path / "verify.html").is_file()


def test_the_page_tells_every_job() -> None:
    """A row of its table each."""
    assert all(f"| `{name}` |" in PAGE for name in JOBS)
