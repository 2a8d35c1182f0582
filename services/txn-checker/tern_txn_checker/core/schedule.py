"""Which check is made next, so that a host which hangs delays nobody else. Pure: time and chance are arguments.

    offer -> [queue of its host] -> start -> under way -> end        a queue is first in, first out; hosts take turns
               |                                   |
               +--> given back: busy, circuit-open |<- the circuit of the host hears what came of it

Three bounds, each of which leaves room for others. Calls under way at one host: `per_host_max`, and one while more than half of all
`calls_max` are taken. What waits for one host: a quarter of what is still free of `waiting_max`, so however many hosts hang, a
newcomer finds room. And time: a check that could not begin before its `start_by_ms` is given back, at once where that is known.

Being given back costs a check one of its attempts, which a host that works should not pay. So claims pause while much waits for hosts that
are quick (`quick_backlog`): that is over in a moment. What waits for slow ones stops nobody, and beyond its bound is given back.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tern_txn_checker.core.answers import BUSY, CIRCUIT_OPEN
from tern_txn_checker.core.circuit import CLOSED, Circuit
from tern_wire.checks.urls import CheckUrl

# A host that was not called for so long, and did not fail, is forgotten: its successor begins with a closed circuit, too.
HOST_KEPT_MS = 300_000
# What one host may take of what is free.
_SHARE = 4
# A host is quick if what waits for it is done within this time, as far as can be told. So claims never pause for longer.
QUICK_MS = 5_000
# How much one call says of how long the host's calls take: an eighth.
_TYPICAL_WEIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One check that a broker group has handed to this checker: of the transaction *number*, under the id *claim*, until *until_ms*."""

    broker_group: str
    number: int
    claim: int
    producer_group_id: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim as a call that is to be made. Times are ms of a clock that never goes back; begun later than *start_by_ms* it could not
    be answered within its claim."""

    claim: Claim
    transaction_id: str
    url: CheckUrl
    secret: str
    body: bytes
    timeout_ms: int
    start_by_ms: int

    @property
    def host(self) -> tuple[str, int]:
        """Whom it asks: host and port."""
        return self.url.host, self.url.port


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A check that is under way, since *began_ms*. *is_probe*: it tries a host whose circuit is half-open."""

    check: Check
    is_probe: bool
    began_ms: int


@dataclass(slots=True)
class _Host:
    """Owned by the Schedule."""

    name: tuple[str, int]
    circuit: Circuit = field(default_factory=Circuit)
    queue: deque[Check] = field(default_factory=deque)
    # In the order in which they began.
    under_way: dict[Started, None] = field(default_factory=dict)
    # How long a call takes, lately; 0: none has ended yet.
    typical_ms: float = 0.0
    used_ms: int = 0
    is_in_turn: bool = False
    last: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """A host, for people."""

    host: str
    port: int
    circuit: str
    waiting: int
    under_way: int
    failures: int
    open_for_ms: int
    last: str


GivenBack = tuple[Check, str]


class Schedule:
    """All checks that wait or are under way. Mutated by the Desk that owns it."""

    def __init__(self, *, calls_max: int, per_host_max: int, waiting_max: int) -> None:
        self._calls_max, self._per_host_max, self._waiting_max = calls_max, per_host_max, waiting_max
        self._hosts: dict[tuple[str, int], _Host] = {}
        # Hosts that may have something to start, each once.
        self._turns: deque[_Host] = deque()
        self.waiting = self.under_way = 0

    def offer(self, check: Check, now_ms: int) -> str:
        """Take *check* in; "" when it waits now, else why it is given back."""
        host = self._hosts.get(check.host)
        if host is None:
            host = self._hosts[check.host] = _Host(check.host)
        host.used_ms = now_ms
        if check.start_by_ms < max(now_ms, host.circuit.open_until_ms):
            return BUSY if host.circuit.state(now_ms) == CLOSED else CIRCUIT_OPEN
        if len(host.queue) >= max(self._per_host_max, (self._waiting_max - self.waiting) // _SHARE):
            return BUSY
        if self.waiting >= self._waiting_max:
            return BUSY
        host.queue.append(check)
        self.waiting += 1
        self._take_turn(host)
        return ""

    def start(self, now_ms: int) -> Started | GivenBack | None:
        """The next check to make, or one that came too late to be made; None when nothing can begin now."""
        for _ in range(len(self._turns) if self.under_way < self._calls_max else 0):
            host = self._turns.popleft()
            host.is_in_turn = False
            if not host.queue:
                continue
            if host.queue[0].start_by_ms < now_ms:
                self._take_turn(host)
                return self._take(host), BUSY
            if self._may_start(host, now_ms):
                started = Started(self._take(host), host.circuit.start(), now_ms)
                host.under_way[started] = None
                self.under_way += 1
                host.used_ms = now_ms
                self._take_turn(host)
                return started
        return None

    def _may_start(self, host: _Host, now_ms: int) -> bool:
        """If not, its next turn comes when one of its calls ends (`_over`), or after a while (`look`)."""
        most = self._per_host_max if self.under_way < self._calls_max // 2 else 1
        return len(host.under_way) < most and host.circuit.may_start(now_ms)

    def end(self, started: Started, *, is_alive: bool, text: str, now_ms: int, chance: float) -> list[GivenBack]:
        """*started* is over, with the answer *text*. What must be given back, because its host's circuit opened by that."""
        host = self._over(started)
        host.last = text
        took_ms = now_ms - started.began_ms
        host.typical_ms += (took_ms - host.typical_ms) / (_TYPICAL_WEIGHT if host.typical_ms else 1)
        if is_alive:
            host.circuit.succeed()
        elif host.circuit.fail(now_ms, is_probe=started.is_probe, chance=chance):
            return self._drop(host, lambda check: check.start_by_ms < host.circuit.open_until_ms, CIRCUIT_OPEN)
        return []

    def abandon(self, started: Started) -> None:
        """*started* was given up by ourselves."""
        self._over(started).circuit.abandon(is_probe=started.is_probe)

    def _over(self, started: Started) -> _Host:
        host = self._hosts[started.check.host]
        del host.under_way[started]
        self.under_way -= 1
        self._take_turn(host)
        return host

    def look(self, now_ms: int) -> list[GivenBack]:
        """To be called now and then while something waits: what is too late is given back, and hosts whose time has come get a turn.

        Hosts that nobody has needed for long are forgotten.
        """
        given_back: list[GivenBack] = []
        for host in list(self._hosts.values()):
            if host.queue:
                given_back += self._drop(host, lambda check: check.start_by_ms < now_ms, BUSY)
                self._take_turn(host)
            elif not host.under_way and now_ms - host.used_ms > HOST_KEPT_MS:
                del self._hosts[host.name]
        return given_back

    def _drop(self, host: _Host, is_lost: Callable[[Check], bool], why: str) -> list[GivenBack]:
        lost = [(check, why) for check in host.queue if is_lost(check)]
        if lost:
            host.queue = deque(check for check in host.queue if not is_lost(check))
            self.waiting -= len(lost)
        return lost

    def _take(self, host: _Host) -> Check:
        self.waiting -= 1
        return host.queue.popleft()

    def _take_turn(self, host: _Host) -> None:
        if host.queue and not host.is_in_turn:
            host.is_in_turn = True
            self._turns.append(host)

    def quick_backlog(self, now_ms: int) -> int:
        """How many checks wait for hosts that are quick. A call that is under way for long says as much as one that took long."""
        backlog = 0
        for host in self._hosts.values():
            if host.queue and host.circuit.state(now_ms) == CLOSED:
                oldest_ms = now_ms - next((started.began_ms for started in host.under_way), now_ms)
                if max(host.typical_ms, oldest_ms) * len(host.queue) <= QUICK_MS * self._per_host_max:
                    backlog += len(host.queue)
        return backlog

    def hosts(self, now_ms: int) -> Iterator[HostState]:
        """Every host that is known."""
        for (name, port), host in self._hosts.items():
            yield HostState(
                host=name,
                port=port,
                circuit=host.circuit.state(now_ms),
                waiting=len(host.queue),
                under_way=len(host.under_way),
                failures=host.circuit.failures,
                open_for_ms=max(0, host.circuit.open_until_ms - now_ms) if host.circuit.openings else 0,
                last=host.last,
            )
