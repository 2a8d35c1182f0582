"""What all jobs share: tables, the JSON, the page, progress, failures of tasks, and the list of jobs."""

import io
import re
import runpy
import sys
from itertools import count
from pathlib import Path

import pytest

from tern_jobs import JOBS
from tern_jobs.frame.outcome import Bars, JobFailed, Lines, Outcome, Table, document_of
from tern_jobs.frame.page import ROWS_MAX, html_page
from tern_jobs.frame.progress import LOG_PAUSE_S, Progress
from tern_jobs.frame.tasks import TaskRefused, attempt, conf_directory, task_failure
from tern_jobs.frame.text import outcome_text, size_text
from tern_wire.errors import NoLeader, TopicNotFound
from tests.support.client.job_runs import run, two_days
from tests.support.client.record_server import Script, record_server

ROOT = Path(__file__).resolve().parents[4]
OUTCOME = Outcome(
    headline="2 faults.",
    facts={"rows": 1_234_567, "head": "abc"},
    tables=[Table(title="By <topic>", columns=("topic", "file_bytes"), rows=[("a&b", 2_048), ("b", None)])],
    plots=[
        Bars(title="Rows", labels=["a" * 50, "none"], values=[3, 0], unit="rows"),
        Lines(title="Lag", xs=[0, 1_000, 2_000], lines={"billing": [3, 2, 1.5]}, unit="rows"),
    ],
    faults=["one <script>", "two"],
)


def test_the_text_has_even_columns_figures_to_the_right_and_a_line_a_fault() -> None:
    """As a reader at a terminal sees it."""
    assert outcome_text(OUTCOME).splitlines() == [
        "By <topic>",
        "topic     file",
        "-----  -------",
        "a&b    2.0 KiB",
        "b            -",
        "",
        "rows  1,234,567",
        "head  abc",
        "",
        "2 faults.",
        "fault: one <script>",
        "fault: two",
    ]
    assert [size_text(size) for size in (0, 1_023, 1_536, 5 * 1024**4)] == ["0 B", "1,023 B", "1.5 KiB", "5.0 TiB"]


def test_the_json_names_the_columns_and_says_whether_it_holds() -> None:
    """Faults: it does not."""
    document = document_of("verify", OUTCOME)
    assert (document.holds, document.tables[0].rows[0]) == (False, {"topic": "a&b", "file_bytes": 2_048})


def test_the_page_needs_nothing_else_and_is_dark_or_light() -> None:
    """No script, no address; plots before tables; what comes from outside is escaped."""
    page = html_page("verify", OUTCOME, note="2026-11-26T01:00:00Z, in 3.0 s")
    assert not re.search(r"<script|https?:|src=|url\(|@import", page)
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == 2
    assert page.index("<svg") < page.index("<table")
    assert "one &lt;script&gt;" in page and "a&amp;b" in page
    assert 'class="verdict bad"' in page
    nothing = Outcome(headline="", plots=[Bars(title="Rows", labels=[], values=[], unit="rows")])
    assert "<svg" not in html_page("x", nothing, note="")
    many = Outcome(headline="", tables=[Table(title="", columns=("n",), rows=[(n,) for n in range(ROWS_MAX + 5)])])
    assert "and 5 more" in html_page("x", many, note="")


def test_progress_goes_to_a_log_now_and_then_and_overwrites_itself_on_a_terminal() -> None:
    """100 tasks within a log's pause: the first and the last are told."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    log, screen = io.StringIO(), Terminal()
    for out in (log, screen):
        progress = Progress(out, job="archive", now_s=count(0, LOG_PAUSE_S / 400).__next__)
        for done in range(1, 101):
            progress.tasks("archives", done, 100)
        progress.close()
    assert log.getvalue() == "archive: archives: 1 of 100 tasks\narchive: archives: 100 of 100 tasks\n"
    assert screen.getvalue().count("\r") > 10 and screen.getvalue().endswith("100 of 100 tasks\n")
    quiet = io.StringIO()
    Progress(quiet, job="x", now_s=lambda: 0.0, is_quiet=True).step("plans")
    assert quiet.getvalue() == ""


def test_a_failure_that_a_repeat_cannot_cure_is_a_result_and_others_are_raised() -> None:
    """Spark repeats only what is raised."""

    def fails(error: Exception) -> int:
        raise error

    refused = attempt(fails, TopicNotFound(topic="orders"))
    assert isinstance(refused, TaskRefused) and "orders" in refused.detail
    assert isinstance(attempt(fails, JobFailed("a", "b")), TaskRefused)
    with pytest.raises(NoLeader):
        attempt(fails, NoLeader(broker_group="broker-a"))


def test_the_sentence_of_a_task_s_failure_stands_without_java() -> None:
    """The last line of Python's traceback."""
    text = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 3 times: org.apache.spark.api.python.PythonException: Traceback
  File "x.py", line 1, in f
ValueError: no such thing

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
Driver stacktrace:
ValueError: not this one"""
    assert task_failure(text) == "ValueError: no such thing"
    assert task_failure("") == "no text"


def test_every_job_is_listed_and_is_a_script_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`spark/jobs/NAME.py --help` is what `ternmq spark run NAME --help` says, with an example."""
    assert run("--help", Script(queues={}), output="table").code == 0
    unknown = run("sideways", Script(queues={}), output="table")
    assert unknown.code == 2
    assert all(name in unknown.stderr for name in JOBS)
    for name in JOBS:
        monkeypatch.setattr(sys, "argv", [name, "--help"])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(str(ROOT / f"spark/jobs/{name}.py"), run_name="__main__")
        assert stop.value.code == 0
        assert f"ternmq spark run {name}" in capsys.readouterr().out.split("options:")[0].split("\n\n", 1)[1]


def test_a_job_writes_its_page_and_says_what_failed(tmp_path: Path) -> None:
    """--html in a folder that does not exist yet; a proxy that refuses; text failures."""
    with record_server(Script(queues={"broker-a:0": two_days(0, 3)})) as script:
        page = tmp_path / "pages/archive.html"
        ended = run("archive", script, "--topics", "orders", "--to", str(tmp_path / "a"), "--html", str(page))
        assert ended.code == 0
        assert "3 rows archived by manifest 1." in page.read_text("utf-8")
        script.faults = [(404, {"code": "topic-not-found", "topic": "orders"})]
        failed = run("archive", script, "--topics", "orders", "--to", str(tmp_path / "b"), output="table")
    assert failed.code == 1
    assert failed.stderr.splitlines()[-2].startswith("error: ")
    assert (conf_directory() / "log4j2.properties").is_file()


def test_a_mesh_that_is_not_there_is_said_in_words_with_what_to_do() -> None:
    """No number of an error: nothing listens at port 1."""
    ended = run("rollup", Script(queues={}, url="http://127.0.0.1:1"), "--topics", "orders")
    assert ended.code == 1
    assert "[Errno" not in ended.stderr
    assert "Connection refused" in ended.stderr
    assert "`ternmq up`" in ended.stderr
