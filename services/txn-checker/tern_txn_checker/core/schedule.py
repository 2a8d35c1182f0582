"""The order of checks: a host that hangs delays no other host. Pure: time and chance are arguments.

    offer -> [queue of its host] -> start -> under way -> end     each queue is first in, first out;
      |                                   |                       hosts take turns
      +--> given back: busy, circuit-open |<- the result goes to the circuit of the host

Three bounds leave room for other hosts:

- Calls under way at one host: at most `per_host_max`, and one while more than half of `calls_max`
  are taken.
- Checks that wait for one host: at most a quarter of what is still free of `waiting_max`, so that a
  new host finds room however many others hang.
- Time: a check that cannot begin before its `start_by_ms` is given back, at once where that is
  known.

A check that is given back loses one of its attempts, a price that working hosts should not pay. So
claims pause while many checks wait for quick hosts (`quick_backlog`), which is short. Checks that
wait for slow hosts do not pause claims; beyond their bound they are given back.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tern_txn_checker.core.answers import BUSY, CIRCUIT_OPEN
from tern_txn_checker.core.circuit import CLOSED, Circuit
from tern_wire.checks.urls import CheckUrl

# A host that was not called for this time is forgotten; at its next check it begins with a closed
# circuit.
HOST_KEPT_MS = 300_000
# The part of the free places that one host may take.
_SHARE = 4
# A host is quick if its queue is estimated to be done within this time. So no pause of claims is
# longer.
QUICK_MS = 5_000
# The weight of one call in the estimate of the host's duration of calls: an eighth.
_TYPICAL_WEIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One check that a broker group has handed to this checker, until *until_ms*.

    *number*: of the transaction. *claim*: the id of the claim.
    """

    broker_group: str
    number: int
    claim: int
    producer_group_id: int
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One claim in the form of a call to make. Times are ms of a monotonic clock.

    A call that begins later than *start_by_ms* could not be answered within its claim.
    """

    claim: Claim
    transaction_id: str
    url: CheckUrl
    secret: str
    body: bytes
    timeout_ms: int
    start_by_ms: int

    @property
    def host(self) -> tuple[str, int]:
        """The host and port of the call."""
        return self.url.host, self.url.port


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """A check under way since *began_ms*.

    *is_probe*: it probes a host whose circuit is half-open.
    """

    check: Check
    is_probe: bool
    began_ms: int


@dataclass(slots=True)
class _Host:
    """The state of one host. Owner: the Schedule."""

    name: tuple[str, int]
    circuit: Circuit = field(default_factory=Circuit)
    queue: deque[Check] = field(default_factory=deque)
    # In the order of their start.
    under_way: dict[Started, None] = field(default_factory=dict)
    # Recent duration of a call; 0: no call has ended yet.
    typical_ms: float = 0.0
    used_ms: int = 0
    is_in_turn: bool = False
    last: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """The state of a host for a status report."""

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
    """All checks that wait or are under way. Only the Dispatcher that owns it mutates it."""

    def __init__(self, *, calls_max: int, per_host_max: int, waiting_max: int) -> None:
        self._calls_max, self._per_host_max, self._waiting_max = calls_max, per_host_max, waiting_max
        self._hosts: dict[tuple[str, int], _Host] = {}
        # Hosts that may have a check to start, each once.
        self._turns: deque[_Host] = deque()
        self.waiting = self.under_way = 0

    def offer(self, check: Check, now_ms: int) -> str:
        """Enqueue *check*; return "" when it waits, else the reason why it is given back."""
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
        """Return the next check to make, or one that is too late; None when none can begin."""
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
        """Whether the host may be called now.

        If not, its next turn comes when one of its calls ends (`_over`), or later (`look`).
        """
        most = self._per_host_max if self.under_way < self._calls_max // 2 else 1
        return len(host.under_way) < most and host.circuit.may_start(now_ms)

    def end(self, started: Started, *, is_alive: bool, text: str, now_ms: int, chance: float) -> list[GivenBack]:
        """Record the end of *started*, with the answer *text*.

        Returns the checks to give back because the host's circuit opened by it.
        """
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
        """Record that the checker itself cancelled *started*."""
        self._over(started).circuit.abandon(is_probe=started.is_probe)

    def _over(self, started: Started) -> _Host:
        host = self._hosts[started.check.host]
        del host.under_way[started]
        self.under_way -= 1
        self._take_turn(host)
        return host

    def look(self, now_ms: int) -> list[GivenBack]:
        """Give back late checks, and give turns to hosts whose circuit may be probed now.

        The Dispatcher calls this periodically while checks wait. Hosts that were not used for long
        are forgotten.
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
        """The number of checks that wait for quick hosts.

        The duration of the oldest call under way counts like that of a finished call.
        """
        backlog = 0
        for host in self._hosts.values():
            if host.queue and host.circuit.state(now_ms) == CLOSED:
                oldest_ms = now_ms - next((started.began_ms for started in host.under_way), now_ms)
                if max(host.typical_ms, oldest_ms) * len(host.queue) <= QUICK_MS * self._per_host_max:
                    backlog += len(host.queue)
        return backlog

    def hosts(self, now_ms: int) -> Iterator[HostState]:
        """Yield the state of every known host."""
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
