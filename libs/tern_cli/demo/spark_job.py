"""The Spark job of the demo, run as its own process over exactly the offset ranges of one run."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tern_cli.demo.flights import DailyRow, DelayRow, carrier_names
from tern_cli.failures import CommandFailed

_JOB = "tern_jobs.flights"
_TIMEOUT_S = 600
_SHOWN_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOutcome:
    """Figures that the job printed, and the tables that it made.

    *daily*: what its stream wrote into a topic; *repeated*: messages of it that are there twice.
    """

    rows: int
    seconds: float
    paths: Mapping[str, str]
    table: Sequence[DelayRow]
    daily: Sequence[DailyRow] = ()
    batches: int = 0
    repeated: int = 0


def has_java(environment: Mapping[str, str]) -> bool:
    """Return whether Spark would find a Java: under JAVA_HOME, else on the path."""
    home = environment.get("JAVA_HOME")
    return (
        (Path(home) / "bin" / "java").is_file()
        if home
        else shutil.which("java", path=environment.get("PATH")) is not None
    )


def run_spark_job(
    endpoints: Sequence[str], topic: str, starting: Mapping[str, int], ending: Mapping[str, int], out: Path
) -> SparkOutcome:
    """Run the job from *starting* to *ending* (offsets by queue) and wait for it.
    CommandFailed, with the end of the job's log, when it fails.
    """
    carriers = out / "carriers.json"
    carriers.write_text(json.dumps(carrier_names()), encoding="utf-8")
    command = [sys.executable, "-m", _JOB, "--endpoint", ",".join(endpoints), "--topic", topic, "--out", str(out)]
    command += ["--starting", json.dumps({topic: dict(starting)}), "--ending", json.dumps({topic: dict(ending)})]
    command += ["--carriers", str(carriers)]
    log = out / "spark.log"
    with log.open("wb") as errors:
        ended = subprocess.run(  # noqa: S603 - our own job with our own arguments
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, timeout=_TIMEOUT_S, check=False
        )
    lines = ended.stdout.decode("utf-8", "replace").strip().splitlines()
    if ended.returncode != 0 or not lines:
        tail = log.read_text("utf-8", "replace").splitlines()[-_SHOWN_LINES:]
        raise CommandFailed("The Spark job failed", f"Exit code {ended.returncode}; all of it is in {log}.", lines=tail)
    summary: dict[str, Any] = json.loads(lines[-1])
    return SparkOutcome(
        rows=summary["spark_rows"],
        seconds=summary["seconds"],
        paths={name: path for name, path in summary.items() if isinstance(path, str) and path},
        table=json.loads(Path(summary["report_json"]).read_bytes()),
        daily=json.loads(Path(summary["daily_delays_json"]).read_bytes()),
        batches=summary["stream_batches"],
        repeated=summary["stream_repeated"],
    )
