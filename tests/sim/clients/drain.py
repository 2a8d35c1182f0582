"""The last clients of a run: they read every queue to its end, receive and ack until each group has settled everything, and then look at
its dead letters.

Before that a person ends the transactions that nobody has ended, but for some that stay as they are.

A group has settled everything only when nothing of it is leased, rests, or is about to be buried. What waits for its time is in no queue
yet, so this begins when there is no such message any more.

What they see goes into the history like everything else, so that what was lost, skipped or delivered again shows.
"""

from collections.abc import Callable
from typing import Protocol

from tern_wire.errors import OffsetExpired
from tern_wire.link.rows import ACK
from tests.sim.clients.plan import QUEUES, GroupPlan
from tests.sim.history.history import Asked, Browse, GroupOffsets, Offsets, Operation, Pull, Receive, Settle, Settling
from tests.sim.history.transaction_values import ListTransactions, Resolve

RECEIVE_MESSAGES = 64
# While leases of others run, nothing can be received: look again after this long, and a little later every time.
PAUSE_S, PAUSE_MAX_S = 0.2, 0.6


class ClientContext(Protocol):
    """What the drain uses of the clients."""

    def issue(self, client: str, asked: Asked, done: Callable[[Operation], None]) -> Operation:
        """Ask; *done* is told when the operation has ended."""
        ...

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Go on with *step* later."""
        ...


class Drain:
    """One reader a topic's queue, one consumer a group and topic, all at once. Owner: the clients."""

    def __init__(
        self,
        context: ClientContext,
        groups: tuple[GroupPlan, ...],
        is_at_rest: Callable[[], bool],
        last_word: Callable[[int], int],
    ) -> None:
        """*is_at_rest*: whether nothing happens any more by itself: no message waits for its time, no redrive is running.

        *last_word*: of a transaction's number, how it is to be ended; 0: not at all.
        """
        self._context, self._groups, self._is_at_rest, self._last_word = context, groups, is_at_rest, last_word
        self._left = 0
        self._pauses: dict[tuple[str, str], float] = {}

    @property
    def is_over(self) -> bool:
        """Whether every part has come to its end."""
        return self._left == 0

    def start(self) -> None:
        """Begin; call once."""
        self._left = 1
        self._end_transactions()

    def _end_transactions(self) -> None:
        """Again and again, until only those are left that are to stay."""

        def listed(operation: Operation) -> None:
            if not operation.is_ok:
                self._context.later(PAUSE_S, self._end_transactions)
                return
            wanted = [
                Resolve(described.number, described.producer_group, outcome)
                for described in operation.described
                if (outcome := self._last_word(described.number))
            ]
            for asked in wanted:
                self._context.issue("drain", asked, lambda _operation: None)
            if wanted:
                self._context.later(PAUSE_S, self._end_transactions)
            else:
                self._wait_for_rest()

        self._context.issue("drain", ListTransactions(""), listed)

    def _wait_for_rest(self) -> None:
        """What is read to its end must not grow any more."""
        if not self._is_at_rest():
            self._context.later(PAUSE_S, self._wait_for_rest)
            return
        self._left = len(QUEUES) + sum(len(group.topics) + 1 for group in self._groups)
        for topic in QUEUES:
            self._look(topic)
        for group in self._groups:
            for topic in group.topics:
                self._receive(group, topic)

    # Queues ----------------------------------------------------------------------------------------------------
    def _look(self, topic: str) -> None:
        """Where each queue begins; then read it from there."""

        def looked(operation: Operation) -> None:
            if not operation.is_ok:
                self._context.later(PAUSE_S, lambda: self._look(topic))
                return
            # A topic may have grown.
            self._left += len(operation.ends) - 1
            for queue, oldest, _ in operation.ends:
                self._pull(topic, queue, oldest)

        self._context.issue("drain", Offsets(topic), looked)

    def _pull(self, topic: str, queue: int, offset: int) -> None:
        def pulled(operation: Operation) -> None:
            if operation.error == OffsetExpired.code:
                self._context.later(PAUSE_S, lambda: self._pull_again(topic, queue))
            elif not operation.is_ok:
                self._context.later(PAUSE_S, lambda: self._pull(topic, queue, offset))
            elif operation.pulled.next_offset < operation.pulled.max_offset:
                self._pull(topic, queue, operation.pulled.next_offset)
            else:
                self._left -= 1

        self._context.issue("drain", Pull(topic, queue, offset), pulled)

    def _pull_again(self, topic: str, queue: int) -> None:
        """Retention has dropped what was to be read: go on at the oldest message kept."""

        def looked(operation: Operation) -> None:
            if operation.is_ok:
                self._pull(topic, queue, operation.ends[queue].min_offset)
            else:
                self._context.later(PAUSE_S, lambda: self._pull_again(topic, queue))

        self._context.issue("drain", Offsets(topic), looked)

    # Groups ----------------------------------------------------------------------------------------------------
    def _receive(self, group: GroupPlan, topic: str) -> None:
        def received(operation: Operation) -> None:
            if not operation.is_ok:
                self._context.later(PAUSE_S, lambda: self._receive(group, topic))
            elif operation.held:
                rows = [Settling(topic, held.queue, held.offset, held.lease, ACK, 0) for held in operation.held]
                self._pauses.pop((group.name, topic), None)
                self._context.issue("drain", Settle(group.name, tuple(rows)), lambda _: self._receive(group, topic))
            else:
                self._context.issue("drain", Offsets(topic), lambda ends: self._compare(group, topic, ends))

        asked = Receive(group.name, topic, RECEIVE_MESSAGES, group.invisible_ms)
        self._context.issue("drain", asked, received)

    def _compare(self, group: GroupPlan, topic: str, ends: Operation) -> None:
        def committed(operation: Operation) -> None:
            if ends.is_ok and operation.is_ok:
                offsets = dict(operation.committed)
                # A queue that the group has not begun would begin at its oldest message.
                if all(offsets.get(queue, oldest) >= end for queue, oldest, end in ends.ends):
                    self._left -= 1
                    if topic == group.topics[-1]:
                        self._browse(group, 0)
                    return
            pause_s = self._pauses.get((group.name, topic), PAUSE_S)
            self._pauses[group.name, topic] = min(PAUSE_MAX_S, 1.5 * pause_s)
            self._context.later(pause_s, lambda: self._receive(group, topic))

        self._context.issue("drain", GroupOffsets(group.name, topic), committed)

    def _browse(self, group: GroupPlan, offset: int) -> None:
        def browsed(operation: Operation) -> None:
            if not operation.is_ok:
                self._context.later(PAUSE_S, lambda: self._browse(group, offset))
            elif operation.browsed.next_offset >= 0:
                self._browse(group, operation.browsed.next_offset)
            else:
                self._left -= 1

        self._context.issue("drain", Browse(group.name, offset), browsed)
