"""Bytes that go by, for people: a bar on stderr at a terminal, and nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tern_cli.output import Format

# Told the bytes that are done, and those there are.
Advance = Callable[[int, int], None]


@contextmanager
def byte_bar(doing: str, output: Format) -> Iterator[Advance]:
    """A bar headed *doing* for the length of a block; nothing for programs, or where stderr is no terminal."""
    if output is Format.JSON or not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415 - rich costs 30 ms, scripts need none of it
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (doing, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
