"""The connections of one listener: by address, known ones, and requests being worked on.

Used by connection.py. Owner of the counts: the event loop of the listener. An address is an IPv4
address, or a network of 64 bits of IPv6, of which one host usually has all addresses. Loopback is
not counted by address: a local process can do worse.
"""

import heapq
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from starlette.types import Receive, Scope, Send

from tern_accept import OURS, Descriptors
from tern_service.connections.unsent_answers import Unsent
from tern_service.problems import problem_reply, request_id_of
from tern_wire import limits
from tern_wire.errors import Overloaded
from tern_wire.limits_requests import IDLE_LOOK_INTERVAL_MS

# Busy clients send again within less.
IDLE_MIN_S = 1.0
# One in this many of a port's connections makes room at a time.
CLOSED_SHARE = 64
# Name of requests being worked on in errors and metrics.
AT_A_TIME = "requests at a time"


class ConnectionTable:
    """Counts of one listener.
    *parked*: the number of requests that wait for an event and are not being worked on. *is_read*:
    by target, whether a request is a bulk read, which leaves some places to others. *descriptors*:
    of this process.
    """

    def __init__(
        self,
        *,
        parked: Callable[[], int] = lambda: 0,
        is_read: Callable[[bytes], bool] = lambda _target: False,
        descriptors: Descriptors = OURS,
    ) -> None:
        self.parked, self.is_read, self.descriptors = parked, is_read, descriptors
        # Connections that have sent a complete head.
        self.known = 0
        # Requests whose application has begun and waits for the rest of their body.
        self.arriving = 0
        # Requests that came whole and are worked on: they have places of their own.
        self.whole = 0
        # Answers that clients have not taken.
        self.unsent = Unsent()
        # Loop time of the last search for idle connections.
        self._looked_s = -1.0
        # At most as many as there are connections.
        self._by_address: dict[str, int] = {}

    def enter(self, host: str, limit: int) -> str | None:
        """Count a connection from *host* and return the key for `leave`; None at *limit*."""
        address = address_of(host)
        if not address:
            return ""
        count = self._by_address.get(address, 0)
        if count >= limit:
            return None
        self._by_address[address] = count + 1
        return address

    def leave(self, address: str) -> None:
        """Uncount a closed connection; *address* is the result of `enter`."""
        count = self._by_address.get(address, 0) - 1
        if count > 0:
            self._by_address[address] = count
        else:
            self._by_address.pop(address, None)

    def __len__(self) -> int:
        return len(self._by_address)

    def close_idlest(self, connections: Iterable[Any], newcomer: str, connections_max: int, now_s: float) -> bool:
        """Close the idlest connections at the cap, a 64th of *connections_max*, to admit
        *newcomer*.
        They are taken from the addresses with most connections. False if there is no room
        afterwards: none is idle, or the idle ones' addresses have fewer connections than the
        newcomer's. A connection may be closed between two requests (RFC 9112, 9.3); otherwise a
        client with one request and a long pause would keep others out for the whole keep-alive
        time. Without idle ones, connections with the oldest incomplete requests are closed with an
        answer, an eighth as many, from addresses with more than the newcomer's; nothing of them is
        done yet. A connection whose request is being worked on is never closed. Behind a reverse
        proxy all have one address, and the idlest one goes. Idleness is read from the timer that
        each uvicorn connection has while it waits.
        """
        if now_s - self._looked_s < IDLE_LOOK_INTERVAL_MS / 1_000:
            return self.known < connections_max
        self._looked_s = now_s
        before_s = now_s - IDLE_MIN_S
        counts: Counter[str] = Counter()
        idle: _Candidates = {}
        arriving: _Candidates = {}
        for number, one in enumerate(connections):
            place = _place_of(one.client[0] if one.client else "")
            counts[place] += 1
            if one.transport.is_closing():
                continue
            if one.timeout_keep_alive_task is not None:
                since_s = one.timeout_keep_alive_task.when() - one.timeout_keep_alive
                if since_s <= before_s:
                    idle.setdefault(place, []).append((since_s, number, one))
            elif one.arriving_since_s is not None and one.arriving_since_s <= before_s:
                arriving.setdefault(place, []).append((one.arriving_since_s, number, one))
        # The newcomer is counted already.
        most, mine = connections_max // CLOSED_SHARE, max(1, counts[_place_of(newcomer)])
        if not _close_some(idle, counts, mine, max(1, most)):
            _close_some(arriving, counts, mine + 1, max(1, most // 8))
        return self.known < connections_max


# By address: since when (s), a number that distinguishes equal times, and the connection.
_Candidates: TypeAlias = dict[str, list[tuple[float, int, Any]]]


def _place_of(host: str) -> str:
    return address_of(host) or host


def _close_some(candidates: _Candidates, counts: Mapping[str, int], least: int, most: int) -> bool:
    """Close *most* of *candidates*: from addresses with most connections, at least *least*, oldest
    first.
    """
    for each in candidates.values():
        heapq.heapify(each)
    places = [(-counts[place], place) for place in candidates if counts[place] >= least]
    heapq.heapify(places)
    has_any = bool(places)
    while places and most:
        most -= 1
        count, place = places[0]
        heapq.heappop(candidates[place])[-1].give_way()
        if candidates[place]:
            heapq.heapreplace(places, (count + 1, place))
        else:
            heapq.heappop(places)
    return has_any


@lru_cache(maxsize=1_024)
def address_of(host: str) -> str:
    """The address that *host* counts as; "" for loopback, and for no address (a Unix socket)."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        if mapped is None:
            return "" if address.is_loopback else str(ipaddress.ip_network((address, 64), strict=False))
        address = mapped
    return "" if address.is_loopback else str(address)


def address_in(scope: Scope) -> str:
    """The address that the client of *scope*'s request counts as; "" for loopback."""
    client = scope.get("client")
    return address_of(client[0]) if client else ""


async def answer_overloaded(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer in place of the application, while too many requests are being worked on."""
    error = Overloaded(what=AT_A_TIME, limit=limits.REQUESTS_MAX)
    status, headers, body = problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
