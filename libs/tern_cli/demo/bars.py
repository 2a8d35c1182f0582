"""Progress of the demo on the terminal: bars with rates for sending, receiving and Spark.

On stderr, or not shown at all.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from tern_cli.demo.consuming import ReceiveLog
from tern_cli.demo.producing import SendLog

_UPDATE_INTERVAL_S = 0.1


class _RateColumn(ProgressColumn):
    """Column with the rate per second since the task began."""

    def render(self, task: Task) -> Text:
        elapsed_s = task.finished_time or task.elapsed or 0.0
        rate = task.completed / elapsed_s if elapsed_s else 0.0
        return Text(f"{rate:>8,.0f}/s" if rate else "", style="cyan")


def progress_bars(*, shown: bool) -> Progress:
    """Return empty bars with rates, on stderr; nothing is printed unless *shown*."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True, quiet=not shown, highlight=False),
    )


class RunBars:
    """Bars of one run. Owned by the run; nothing is printed unless *shown*."""

    def __init__(self, *, shown: bool) -> None:
        self._progress = progress_bars(shown=shown)
        self._tasks: dict[str, TaskID] = {}

    @contextmanager
    def running(self, total: int, *, with_spark: bool) -> Iterator[None]:
        """Show the bars during the block."""
        self._tasks["send"] = self._progress.add_task("sent", total=total)
        self._tasks["ack"] = self._progress.add_task("received and acked", total=total)
        if with_spark:
            self._tasks["spark"] = self._progress.add_task("read by Spark", total=total, start=False)
        with self._progress:
            yield

    def say(self, text: str) -> None:
        """Print one line above the bars."""
        self._progress.console.print(text)

    def update(self, sends: SendLog, receives: ReceiveLog) -> None:
        """Set the bars to the current counts of sending and receiving."""
        self._progress.update(self._tasks["send"], completed=sends.confirmed)
        self._progress.update(self._tasks["ack"], completed=len(receives.acked_ids))

    async def follow(self, sends: SendLog, receives: ReceiveLog) -> None:
        """Update the bars until cancelled."""
        while True:
            self.update(sends, receives)
            await asyncio.sleep(_UPDATE_INTERVAL_S)

    def spark_begins(self) -> None:
        """Start Spark's bar. Its progress is unknown until the job ends."""
        self._progress.start_task(self._tasks["spark"])

    def spark_ended(self, rows: int) -> None:
        """Complete Spark's bar with *rows* rows."""
        self._progress.update(self._tasks["spark"], completed=rows)
