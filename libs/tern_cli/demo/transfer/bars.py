"""Progress on the terminal while money moves: what bank A has settled, what bank B has credited. On stderr, or nowhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from tern_cli.demo.bars import progress_bars


class TransferBars:
    """The bars of one run. Owned by it; nothing is printed unless *shown*."""

    __slots__ = ("_credited", "_progress", "_settled", "_transfers")

    def __init__(self, transfers: int, *, shown: bool) -> None:
        self._transfers = transfers
        self._progress = progress_bars(shown=shown)
        self._settled = self._progress.add_task("settled at A", total=transfers)
        self._credited = self._progress.add_task("credited at B", total=transfers)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Show the bars inside."""
        with self._progress:
            yield

    def say(self, text: str) -> None:
        """One line above the bars."""
        self._progress.console.print(text)

    def update(self, debited: int, refused: int, credited: int) -> None:
        """Where both banks are now."""
        self._progress.update(self._settled, completed=debited + refused)
        # What is refused is never credited, so the bar's end comes nearer.
        self._progress.update(self._credited, completed=credited, total=self._transfers - refused)
