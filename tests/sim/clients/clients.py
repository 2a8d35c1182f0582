"""All simulated clients of one run: what they ask, when, and what they make of the answers.

Owner: the run. Everything random comes from the rng given; everything asked and heard goes into the history.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random

from tests.sim.clients.asking import Answer, Ask, Asking, CallLater, Router, Told
from tests.sim.clients.client_mix import make_clients
from tests.sim.clients.drain import Drain
from tests.sim.clients.exchange import Exchange
from tests.sim.clients.plan import draw_plan
from tests.sim.clients.transaction_clients import Books
from tests.sim.clients.workload import READERS
from tests.sim.history.history import Asked, Create, History, Offsets, Operation, Outcome, Receive, Send

__all__ = ["Answer", "Ask", "Clients", "Told"]
# Producers and consumers share so many proxies. Each reader has its own, which hears late of a new leader: who reads from an old
# one must not be answered. When a send was acknowledged by another node than a reader believes in, the reader looks, so many times.
PROXIES = 2
LOOKS_MAX = 4
# The brokers' time goes on while somebody leads; whoever has not heard of it for longer does not believe that.
FORESEEN_MAX_S = 2.0


class Clients:
    """Producers, consumers and readers; see workload.py for what they do."""

    def __init__(
        self,
        *,
        rng: Random,
        history: History,
        ask: Ask,
        now_s: Callable[[], float],
        call_later: CallLater,
        operations: int,
        brokers: list[str],
        pace_s: float = 20.0,
        repeat_within_s: float = 0.0,
        is_at_rest: Callable[[], bool] = lambda: True,
    ) -> None:
        """*operations* are spread over about *pace_s* virtual seconds when nothing goes wrong (longer with faults).

        *is_at_rest*: whether at the brokers nothing is to happen by itself any more, such as a delivery that waits for its time.
        """
        self.rng, self.history = rng, history
        self.plan = draw_plan(rng, operations, pace_s, repeat_within_s)
        self.books = Books()
        self._now_s, self._call_later, self._is_at_rest = now_s, call_later, is_at_rest
        self._exchange = Exchange()
        self._make_router: Callable[[], Router] = partial(Router, ask, brokers, now_s, call_later)
        self._routers = [self._make_router() for _ in range(PROXIES)]
        self._by_client: dict[str, Router] = {}
        self._readers: dict[str, Router] = {}
        # (reader, whom it believes in, who acknowledged) -> looks.
        self._looks: Counter[tuple[str, str, str]] = Counter()
        self._left = operations
        self._outstanding = 0
        self._is_stopped = False
        self._to_create: list[Create] = self.plan.creates()
        # The brokers' time (ms) when it was last heard of, and when that was.
        self._group_ms, self._heard_s = 0, 0.0
        self._drain: Drain | None = None

    def start(self) -> None:
        """Create topics and groups, then begin; stops issuing after `operations` or `stop`."""
        self._create(lambda: None if self._is_stopped else self._begin())

    def stop(self) -> None:
        """Issue nothing more; what is outstanding still ends."""
        self._is_stopped = True

    def is_open(self) -> bool:
        """Whether more operations may be issued."""
        return self._left > 0 and not self._is_stopped

    def is_idle(self) -> bool:
        """Whether nothing is outstanding."""
        return not self._outstanding

    def drain(self) -> None:
        """After `stop`: read every queue to its end, receive and ack until all groups have everything, browse their dead letters."""
        self._is_stopped = True
        drain = self._drain = Drain(self, self.plan.groups, self._is_at_rest, self.books.last_word)
        self._create(drain.start)

    def is_drained(self) -> bool:
        """Whether `drain` has come to its end."""
        return self._drain is not None and self._drain.is_over

    # What clients use ------------------------------------------------------------------------------------------
    def issue(self, client: str, asked: Asked, done: Callable[[Operation], None]) -> Operation:
        """Ask; *done* is told when the operation has ended."""
        operation = self.history.invoke(client, asked)
        self._left -= 1
        self._outstanding += 1
        router = self._by_client.get(client)
        if router is None:
            router = self._routers[len(self._by_client) % PROXIES]
            if client.startswith(READERS):
                router = self._readers[client] = self._make_router()
            self._by_client[client] = router
        request = self._exchange.encode(asked, operation.number, self._now_s())
        router.request(request, lambda asking: self._ended(operation, asking, done))
        return operation

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Go on with *step* later."""
        self._call_later(delay_s, step)

    def group_ms(self) -> int:
        """About what the brokers' time is; 0 while nobody has heard of it."""
        return self._group_ms and self._group_ms + int(min(self._now_s() - self._heard_s, FORESEEN_MAX_S) * 1000)

    def _ended(self, operation: Operation, asking: Asking, done: Callable[[Operation], None]) -> None:
        self._outstanding -= 1
        operation.lost_attempts = asking.lost_attempts
        if asking.outcome is Outcome.OK:
            asked = operation.asked
            self.history.ok(operation, asking.node, self._exchange.decode(asked, asking.head, asking.raw))
            if isinstance(asked, Receive) and operation.held:
                self._heard(operation.held[0].deadline_ms - asked.invisible_ms)
        elif asking.outcome is Outcome.FAIL:
            self.history.fail(operation, asking.node, asking.error)
        else:
            self.history.info(operation, asking.node, asking.error)
        done(operation)
        if operation.is_ok and isinstance(operation.asked, Send):
            self._tell_readers(operation.asked.topic, operation.node)

    def _heard(self, group_ms: int) -> None:
        if group_ms > self._group_ms:
            self._group_ms, self._heard_s = group_ms, self._now_s()

    def _tell_readers(self, topic: str, leader: str) -> None:
        for client, router in self._readers.items():
            if router.leader not in {"", leader} and self.is_open():
                look = (client, router.leader, leader)
                self._looks[look] += 1
                if self._looks[look] <= LOOKS_MAX:
                    self.issue(client, Offsets(topic), lambda _operation: None)

    # The beginning ---------------------------------------------------------------------------------------------
    def _create(self, then: Callable[[], object]) -> None:
        """Declare what is still missing, one after the other, until all of it is there."""
        if not self._to_create:
            then()
            return

        wanted = self._to_create[0]

        def created(operation: Operation) -> None:
            if operation.is_ok and wanted in self._to_create:
                self._to_create.remove(wanted)
            self._create(then)

        self.issue("setup", wanted, created)

    def _begin(self) -> None:
        for client in make_clients(self):
            self._call_later(self.rng.uniform(0.0, 0.2), client.step)
