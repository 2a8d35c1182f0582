"""How far a long command is, on stderr and only at a terminal: a bar for what can be counted, a line for what is waited for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tern_cli.output import Format

# Told the bytes that are done, and those there are.
Advance = Callable[[int, int], None]


@contextmanager
def counting(total: int, title: str) -> Iterator[Callable[[], None]]:
    """A bar of *total* steps; what it gives is called after each."""
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
    """A line that says what is waited for; what it gives replaces the text."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415

    with Console(stderr=True).status(Text(title)) as line:
        yield lambda text: line.update(Text(text))


@contextmanager
def byte_bar(doing: str, output: Format) -> Iterator[Advance]:
    """A bar headed *doing* for the length of a block; nothing for programs, or where stderr is no terminal."""
    if output is Format.JSON or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - as above
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (doing, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
