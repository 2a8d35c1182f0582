"""The last clients of a run: they read every queue to its end, and receive and ack until each group has settled everything.

What they see goes into the history like everything else, so that what was lost, skipped or delivered again shows.
"""

from collections.abc import Callable
from typing import Protocol

from tern_wire.errors import OffsetExpired
from tern_wire.rows import ACK
from tests.sim.history import Asked, GroupOffsets, Offsets, Operation, Pull, Receive, Settle, Settling

RECEIVE_MESSAGES = 64
# While leases of others run, nothing can be received: look again after this long.
PAUSE_S = 0.2


class Desk(Protocol):
    """What the drain uses of the clients."""

    def issue(self, client: str, asked: Asked, done: Callable[[Operation], None]) -> Operation:
        """Ask; *done* is told when the operation has ended."""
        ...

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Go on with *step* later."""
        ...


class Drain:
    """One reader a queue, one consumer a group and topic, all at once. Owner: the clients."""

    def __init__(self, desk: Desk, topics: tuple[str, ...], queues: int, invisible_ms: dict[str, int]) -> None:
        self._desk, self._topics, self._queues, self._invisible_ms = desk, topics, queues, invisible_ms
        self._left = 0

    @property
    def is_over(self) -> bool:
        """Whether every part has come to its end."""
        return self._left == 0

    def start(self) -> None:
        """Begin; call once."""
        self._left = len(self._topics) * (self._queues + len(self._invisible_ms))
        for topic in self._topics:
            self._look(topic)
            for group in self._invisible_ms:
                self._receive(group, topic)

    # Queues ----------------------------------------------------------------------------------------------------
    def _look(self, topic: str) -> None:
        """Where each queue begins; then read it from there."""

        def looked(operation: Operation) -> None:
            if not operation.is_ok:
                self._desk.later(PAUSE_S, lambda: self._look(topic))
                return
            for queue, oldest, _ in operation.ends:
                self._pull(topic, queue, oldest)

        self._desk.issue("drain", Offsets(topic), looked)

    def _pull(self, topic: str, queue: int, offset: int) -> None:
        def pulled(operation: Operation) -> None:
            if operation.error == OffsetExpired.code:
                self._desk.later(PAUSE_S, lambda: self._pull_again(topic, queue))
            elif not operation.is_ok:
                self._desk.later(PAUSE_S, lambda: self._pull(topic, queue, offset))
            elif operation.pulled.next_offset < operation.pulled.max_offset:
                self._pull(topic, queue, operation.pulled.next_offset)
            else:
                self._left -= 1

        self._desk.issue("drain", Pull(topic, queue, offset), pulled)

    def _pull_again(self, topic: str, queue: int) -> None:
        """Retention has dropped what was to be read: go on at the oldest message kept."""

        def looked(operation: Operation) -> None:
            if operation.is_ok:
                self._pull(topic, queue, operation.ends[queue].min_offset)
            else:
                self._desk.later(PAUSE_S, lambda: self._pull_again(topic, queue))

        self._desk.issue("drain", Offsets(topic), looked)

    # Groups ----------------------------------------------------------------------------------------------------
    def _receive(self, group: str, topic: str) -> None:
        def received(operation: Operation) -> None:
            if not operation.is_ok:
                self._desk.later(PAUSE_S, lambda: self._receive(group, topic))
            elif operation.held:
                rows = [Settling(topic, held.queue, held.offset, held.lease, ACK, 0) for held in operation.held]
                self._desk.issue("drain", Settle(group, tuple(rows)), lambda _: self._receive(group, topic))
            else:
                self._desk.issue("drain", Offsets(topic), lambda ends: self._compare(group, topic, ends))

        asked = Receive(group, topic, RECEIVE_MESSAGES, self._invisible_ms[group])
        self._desk.issue("drain", asked, received)

    def _compare(self, group: str, topic: str, ends: Operation) -> None:
        def committed(operation: Operation) -> None:
            if ends.is_ok and operation.is_ok:
                offsets = dict(operation.committed)
                # A queue that the group has not begun would begin at its oldest message.
                if all(offsets.get(queue, oldest) >= end for queue, oldest, end in ends.ends):
                    self._left -= 1
                    return
            self._desk.later(PAUSE_S, lambda: self._receive(group, topic))

        self._desk.issue("drain", GroupOffsets(group, topic), committed)
