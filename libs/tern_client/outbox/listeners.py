"""What a relay needs of an outbox, and how it learns of commits in its own process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from tern_client.outbox.databases import Database
from tern_client.outbox.statements import OutboxStatements

Wake = Callable[[], object]


class AnyOutbox(Protocol):
    """What a relay needs of an outbox."""

    @property
    def database(self) -> Database:
        """Its transactions."""

    @property
    def statements(self) -> OutboxStatements:
        """Its SQL."""

    def listening(self, wake: Wake) -> AbstractContextManager[None]:
        """Return a context manager, within which *wake* is called after commits of this process."""


class Listeners:
    """The relays of this process that want to know of commits. Any thread may notify."""

    __slots__ = ("_wakes",)

    def __init__(self) -> None:
        self._wakes: tuple[Wake, ...] = ()

    def notify(self) -> None:
        """Wake the relays of this process, which then look for rows; other relays poll."""
        for wake in self._wakes:
            try:
                wake()
            except RuntimeError:
                # Its loop has just been closed: nobody waits there.
                continue

    @contextmanager
    def listening(self, wake: Wake) -> Iterator[None]:
        """Call *wake* at each `notify` within the block."""
        self._wakes = (*self._wakes, wake)
        try:
            yield
        finally:
            self._wakes = tuple(each for each in self._wakes if each is not wake)
