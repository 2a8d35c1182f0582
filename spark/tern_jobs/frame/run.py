"""One run of a job: arguments, tasks, the result on stdout and as HTML, and the exit code.

Exit codes: 0 what the job proves is so; 1 it is not, or the job failed; 2 wrong usage.
Law: stdout carries the result only; progress and failures go to stderr.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from tern_jobs.frame.outcome import JobFailed, Outcome, document_of
from tern_jobs.frame.page import html_page
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.tasks import INLINE, Tasks, another_topic, open_tasks
from tern_jobs.frame.text import outcome_text
from tern_spark.options import OptionError
from tern_spark.ranges import TopicMadeAgain
from tern_spark.session import is_submitted
from tern_wire.errors import TernError
from tern_wire.paths import PORT_PROXY
from tern_wire.reasons import reason_of

ENDPOINT_VARIABLE = "TERNMQ_ENDPOINT"
_ENDPOINT_DEFAULT = f"http://127.0.0.1:{PORT_PROXY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time of a run: wall clock in ms, and pauses."""

    now_ms: Callable[[], int]
    pause_s: Callable[[float], None]


REAL_CLOCK = Clock(now_ms=lambda: time.time_ns() // 1_000_000, pause_s=time.sleep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job: its words, its own arguments, and its work."""

    name: str
    summary: str
    description: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Tasks, Progress, Clock], Outcome]


def run_job(job: Job, arguments: Sequence[str] | None = None, clock: Clock = REAL_CLOCK) -> int:
    """Run *job* with *arguments* (default: those of the process); return the exit code."""
    options = parser_of(job).parse_args(arguments)
    # spark-submit writes both streams of a Python program to its stdout.
    is_quiet = options.quiet or (options.output == "json" and is_submitted(os.environ))
    progress = Progress(sys.stderr, job=job.name, now_s=time.monotonic, is_quiet=is_quiet)
    began = time.monotonic()
    try:
        tasks = open_tasks(progress, job=job.name, master=options.master, cores=options.cores)
        try:
            outcome = job.run(options, tasks, progress, clock)
        finally:
            tasks.close()
            progress.close()
        if options.html:
            _write_page(options.html, job, outcome, clock, time.monotonic() - began)
    except JobFailed as failure:
        return _fail(failure.title, failure.detail, failure.exit_code, options.output)
    except TopicMadeAgain as error:
        return _fail(*another_topic(error), 1, options.output)
    except TernError as error:
        return _fail(error.title, error.detail, 1, options.output)
    except OptionError as error:
        return _fail("An argument is wrong", str(error), 2, options.output)
    except OSError as error:
        return _fail("A file or a connection failed", _told(error), 1, options.output)
    if options.output == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document_of(job.name, outcome))).decode() + "\n")
    else:
        sys.stdout.write(outcome_text(outcome))
    return 1 if outcome.faults else 0


def _told(error: OSError) -> str:
    """Return what failed, where, and for a connection what to do."""
    where = f"{error.filename}: " if error.filename else ""
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    is_connection = isinstance(error, (ConnectionError, TimeoutError))
    remedy = ". Start the mesh with `ternmq up`, or correct --endpoint." if is_connection else ""
    return f"{where}{reason_of(error)}{notes}{remedy}"


def parser_of(job: Job) -> argparse.ArgumentParser:
    """Return the parser of the job's arguments and of those that all jobs have."""
    parser = argparse.ArgumentParser(
        prog=f"ternmq spark run {job.name}",
        description=f"{job.summary}\n\n{job.description}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    job.arguments(parser)
    shared = parser.add_argument_group("arguments of all jobs")
    shared.add_argument(
        "--endpoint",
        default=os.environ.get(ENDPOINT_VARIABLE) or _ENDPOINT_DEFAULT,
        help=f"proxies, separated by commas; default: {ENDPOINT_VARIABLE}, else {_ENDPOINT_DEFAULT}",
    )
    shared.add_argument("--key-file", help="file with the key, at each executor; default: TERNMQ_KEY_FILE")
    shared.add_argument("--ca-file", help="file with the authority of https endpoints; default: TERNMQ_CA_FILE")
    shared.add_argument(
        "--master",
        default="",
        help=f"spark://HOST:PORT, local[N], or {INLINE}: no Spark, tasks in this process; default: "
        "that of spark-submit, else TERNMQ_SPARK_MASTER, else a local session",
    )
    shared.add_argument("--cores", type=int, default=0, help="cores of a local session; default: all")
    shared.add_argument("--html", type=Path, metavar="FILE", help="also write the result as one HTML page with plots")
    shared.add_argument("-o", "--output", choices=("table", "json"), default="table", help="format on stdout")
    shared.add_argument("--quiet", action="store_true", help="no progress on stderr")
    return parser


def _write_page(path: Path, job: Job, outcome: Outcome, clock: Clock, took_s: float) -> None:
    at = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_page(job.name, outcome, note=f"{at}Z, in {took_s:.1f} s"), "utf-8")


def _fail(title: str, detail: str, exit_code: int, output: str) -> int:
    if output == "json":
        document = {"error": {"title": title, "detail": detail}}
        sys.stderr.write(msgspec.json.encode(document).decode() + "\n")
    else:
        sys.stderr.write(f"error: {title}\n  {detail}\n")
    return exit_code
