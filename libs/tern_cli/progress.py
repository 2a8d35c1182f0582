"""Progress of long commands, on stderr and only on a terminal.

A bar shows what can be counted, a line shows what is awaited.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tern_cli.output import Format

# Receives the bytes that are done and the total.
Advance = Callable[[int, int], None]


@contextmanager
def counting(total: int, title: str) -> Iterator[Callable[[], None]]:
    """Show a bar of *total* steps; the yielded function is called after each step."""
    if not sys.stderr.isatty() or not total:
        yield lambda: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs 30 ms, scripts need none of it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn  # noqa: PLC0415

    columns = (title, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def waiting(title: str) -> Iterator[Callable[[str], None]]:
    """Show a line that names what is awaited; the yielded function replaces its text."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(Text(title)) as line:
        yield lambda text: line.update(Text(text))


@contextmanager
def byte_bar(doing: str, output: Format) -> Iterator[Advance]:
    """Show a bar titled *doing* during the block.
    Nothing is shown with JSON output or off a terminal.
    """
    if output is Format.JSON or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (doing, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
