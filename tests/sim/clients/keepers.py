"""A slow consumer with attempt ids: it keeps what it received for long, extends it again and again, and repeats its receive.

     receive (attempt id) -> [ack the oldest, extend the others -> think -> the same receive again] ... -> ack all -> the next attempt

What it has acked is at the begin of its leases, so that retention drops it while they last. Owner: the run.
"""

from collections.abc import Callable

from tern_wire.link.rows import ACK, EXTEND
from tests.sim.clients.plan import KEPT_GROUP, KEPT_TOPIC
from tests.sim.clients.workload import ClientContext
from tests.sim.history.history import Held, Operation, Receive, Settle, Settling

MESSAGES = 8
INVISIBLE_MS = 3_000
ROUNDS_MAX = 20
PAUSE_MAX_S = 0.8


class Keeper:
    """One attempt after the other."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._context, self._name = context, name
        self._number = 0
        self._rounds_left = 0
        self._asked = Receive(KEPT_GROUP, KEPT_TOPIC, MESSAGES, INVISIBLE_MS)

    def step(self) -> None:
        """The next attempt."""
        self._number += 1
        self._rounds_left = self._context.rng.randint(1, ROUNDS_MAX)
        self._asked = Receive(KEPT_GROUP, KEPT_TOPIC, MESSAGES, INVISIBLE_MS, f"{self._name}.{self._number}")
        self._receive()

    def _receive(self) -> None:
        if self._context.is_open():
            self._context.issue(self._name, self._asked, self._received)

    def _received(self, operation: Operation) -> None:
        if not operation.is_ok:
            self._later(self._receive)
            return
        held = sorted(operation.held, key=lambda one: (one.queue, one.offset))
        if not held:
            self._later(self.step)
            return
        self._rounds_left -= 1
        is_last = self._rounds_left <= 0
        acked = held if is_last else held[: self._context.rng.randint(0, 1)]
        rows = [self._row(one, ACK if one in acked else EXTEND) for one in held]
        if self._context.is_open():
            then = self.step if is_last else self._receive
            self._context.issue(self._name, Settle(KEPT_GROUP, tuple(rows)), lambda _operation: self._later(then))

    def _row(self, held: Held, action: int) -> Settling:
        return Settling(
            KEPT_TOPIC, held.queue, held.offset, held.lease, action, INVISIBLE_MS if action == EXTEND else 0
        )

    def _later(self, step: Callable[[], None]) -> None:
        self._context.later(self._context.rng.uniform(0.0, PAUSE_MAX_S), step)
