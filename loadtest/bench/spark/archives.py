"""The job `archive` beside `df.write.parquet`, both with zstd, by their CPU."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TextIO, TypeVar

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import HOST
from loadtest.bench.spark.engine import Engine
from loadtest.bench.spark.rounds import Measured, figure_of, measure
from loadtest.bench.spark.rows import TOPIC
from tern_jobs import archive_job
from tern_jobs.frame.outcome import JobFailed
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import REAL_CLOCK, parser_of
from tern_jobs.frame.tasks import TaskRefused, attempt

Item = TypeVar("Item")
Result = TypeVar("Result")
_ROWS_PER_FILE = 100_000


class SessionTasks:
    """Tasks of a job in the session of the bench, which stays open."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def map(self, what: str, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See tern_jobs.frame.tasks.Tasks."""
        del what
        tried = self._spark.sparkContext.parallelize(list(items), max(1, len(items))).map(partial(attempt, function))
        results: list[Result] = []
        for result in tried.collect():
            if isinstance(result, TaskRefused):
                raise JobFailed(result.title, result.detail)
            results.append(result)
        return results


def bench_archives(engine: Engine, rounds: int, warm_ups: int) -> Iterator[Figure]:
    """Yield spark_write_parquet, spark_archive. BenchFailed when the archive lacks a row."""
    folders = (str(engine.folder / f"archived-{number}") for number in count())
    cases = {
        "spark_write_parquet": lambda: _write(engine, next(folders)),
        "spark_archive": lambda: _archive(engine, next(folders)),
    }
    found = measure(cases, engine.rows, engine.cpu_seconds, rounds=rounds, warm_ups=warm_ups)
    parquet, archive = found["spark_write_parquet"], found["spark_archive"]
    yield figure_of("spark_write_parquet", parquet)
    yield figure_of("spark_archive", archive, parquet, cpu_ratio=round(_total_us(archive) / _total_us(parquet), 3))


def _total_us(measured: Measured) -> float:
    return sum(measured.cpu().values())


def _write(engine: Engine, folder: str) -> None:
    engine.ternmq(engine.spark.read).write.option("compression", "zstd").parquet(folder)


def _archive(engine: Engine, folder: str) -> None:
    # By the job's own parser: it knows the arguments that the job will have next.
    given = ["--topics", TOPIC, "--to", folder, "--rows-per-file", str(_ROWS_PER_FILE)]
    options = parser_of(archive_job.JOB).parse_args([*given, "--endpoint", f"http://{HOST}:{engine.mesh.port}"])
    with Path("/dev/null").open("w", encoding="utf-8") as nothing:
        outcome = archive_job.run(options, SessionTasks(engine.spark), _silent(nothing), REAL_CLOCK)
    if outcome.facts["rows"] != engine.rows:
        raise BenchFailed(f"the archive has {outcome.facts['rows']} rows of {engine.rows}")


def _silent(out: TextIO) -> Progress:
    return Progress(out, job="archive", now_s=lambda: 0.0, is_quiet=True)
