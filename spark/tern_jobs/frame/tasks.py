"""Where the tasks of a job run: in a Spark session that is opened at first use, or in this process.

Law: a task is a function of its item alone. It may run twice, and its result is the same.
"""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tern_jobs.frame.outcome import JobFailed
from tern_jobs.frame.progress import Progress
from tern_spark.ranges import TopicMadeAgain
from tern_spark.worker_process import spare_modules
from tern_wire.errors import TernError
from tern_wire.extras import need_extra

Item = TypeVar("Item")
Result = TypeVar("Result")

INLINE = "inline"
# More partitions cost the scheduler more than they even out.
PARTITIONS_MAX = 512
_POLL_S = 0.25


class Tasks(Protocol):
    """Runs a function over items, in any order, on as many cores as there are."""

    def map(self, what: str, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the results in the order of *items*; *what* names the work in the progress."""
        ...


class InlineTasks:
    """Tasks one after another in this process, without Spark."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def map(self, what: str, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See Tasks."""
        results = []
        for done, item in enumerate(items, 1):
            results.append(function(item))
            self._progress.tasks(what, done, len(items))
        return results

    def close(self) -> None:
        """Nothing is open."""


class SparkTasks:
    """Tasks in a Spark session, which is opened at the first call of map()."""

    def __init__(self, progress: Progress, *, job: str, master: str, cores: int) -> None:
        need_extra("ternmq[spark]", "A job", "pyspark", "pyarrow")
        self._progress, self._job, self._master, self._cores = progress, job, master, cores
        self._spark: Any = None

    def map(self, what: str, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """See Tasks. A failure that a repeat cannot cure is raised as the error of the task."""
        if not items:
            return []
        if self._spark is None:
            self._progress.step("starts Spark")
            self._spark = self._open()
        context = self._spark.sparkContext
        slices = min(len(items), PARTITIONS_MAX)
        tried = context.parallelize(list(items), slices).map(partial(attempt, function))
        done = threading.Event()
        poll = threading.Thread(target=self._poll, args=(context, what, slices, done), daemon=True)
        poll.start()
        try:
            found: list[Result | TaskRefused] = tried.collect()
        except Exception as error:
            raise JobFailed("A task failed", task_failure(str(error))) from error
        finally:
            done.set()
            poll.join()
        self._progress.tasks(what, slices, slices)
        results: list[Result] = []
        for result in found:
            if isinstance(result, TaskRefused):
                raise JobFailed(result.title, result.detail)
            results.append(result)
        return results

    def close(self) -> None:
        """Stop the session."""
        if self._spark is not None:
            self._spark.stop()

    def _open(self) -> Any:
        from tern_spark.session import open_session  # noqa: PLC0415 - PySpark is needed only from here on

        return open_session(f"ternmq {self._job}", conf_dir=conf_directory(), cores=self._cores, master=self._master)

    def _poll(self, context: Any, what: str, total: int, done: threading.Event) -> None:
        tracker = context.statusTracker()
        while not done.wait(_POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            self._progress.tasks(what, min(sum(stage.numCompletedTasks for stage in stages if stage), total - 1), total)


class TaskRefused(Exception):
    """A failure of a task that a repeat cannot cure; it travels to the driver as a result."""

    def __init__(self, title: str, detail: str) -> None:
        super().__init__(title, detail)
        self.title, self.detail = title, detail


def attempt(function: Callable[[Item], Result], item: Item) -> Result | TaskRefused:
    """Return the result of *function*, or the refusal that Spark would only repeat."""
    spare_modules()
    try:
        return function(item)
    except JobFailed as failure:
        return TaskRefused(failure.title, failure.detail)
    except TopicMadeAgain as error:
        return TaskRefused(*another_topic(error))
    except TernError as error:
        if error.retryable:
            raise
        return TaskRefused(error.title, error.detail)


def another_topic(error: TopicMadeAgain) -> tuple[str, str]:
    """Return what happened, and the detail."""
    return "The topic is another one", str(error)


def task_failure(text: str) -> str:
    """Return the sentence of a Python exception in Spark's text, without the Java around it."""
    lines = [line.strip() for line in text.splitlines()]
    ends = [at for at, line in enumerate(lines) if line.startswith(("at org.apache.spark", "Driver stacktrace"))]
    before = [line for line in lines[: ends[0] if ends else len(lines)] if line]
    named = [line for line in before if line.partition(":")[0].endswith(("Error", "Exception", "Failed", "Unknown"))]
    return (named or before or ["no text"])[-1]


def conf_directory() -> Path:
    """Return the folder with Spark's own settings: in the package, or of the checkout."""
    packaged = Path(__file__).resolve().parents[1] / "conf"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "conf"


def open_tasks(progress: Progress, *, job: str, master: str, cores: int) -> InlineTasks | SparkTasks:
    """Return the tasks of `--master`: `inline`, a cluster's URL, or "" for a local session."""
    if master == INLINE:
        return InlineTasks(progress)
    return SparkTasks(progress, job=job, master=master, cores=cores or max(1, os.cpu_count() or 1))
