"""How far a long command is, on stderr and only at a terminal: a bar for what can be counted, a line for what is waited for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
