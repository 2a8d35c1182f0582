"""Who is connected to one listener: connections by address, those that have asked something, and how many requests are being worked on.

Used by connection.py.

Owner of the counts: the event loop of the listener. An address is an IPv4 address, or a network of 64 bits of IPv6, of which one host
usually has all addresses. Loopback is not counted by address: whoever is on this machine can do worse.
"""

import heapq
import ipaddress
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from starlette.types import Receive, Scope, Send

from tern_accept import OURS, Descriptors
from tern_service.problems import problem_reply, request_id_of
from tern_wire import limits
from tern_wire.errors import Overloaded

# Clients that are at work ask again within less.
IDLE_MIN_S = 1.0


class Crowd:
    """*parked*: how many requests wait for something to happen; they are not being worked on. *descriptors*: of this process."""

    def __init__(self, *, parked: Callable[[], int] = lambda: 0, descriptors: Descriptors = OURS) -> None:
        self.parked, self.descriptors = parked, descriptors
        # Connections that have sent a whole head.
        self.known = 0
        # As many as there are connections, at most.
        self._by_address: dict[str, int] = {}

    def enter(self, host: str, limit: int) -> str | None:
        """Count a connection from *host*: what to give to `leave`, or None when *limit* connections are there already."""
        address = address_of(host)
        if not address:
            return ""
        count = self._by_address.get(address, 0)
        if count >= limit:
            return None
        self._by_address[address] = count + 1
        return address

    def leave(self, address: str) -> None:
        """The connection that `enter` gave *address* for is closed."""
        count = self._by_address.get(address, 0) - 1
        if count > 0:
            self._by_address[address] = count
        else:
            self._by_address.pop(address, None)

    def __len__(self) -> int:
        return len(self._by_address)


def close_idlest(connections: Iterable[Any], connections_max: int, now_s: float) -> bool:
    """At the cap of *connections_max*: close those that have had nothing to do for longest, a 64th; False when none has been idle for IDLE_MIN_S.

    Any of them may be closed between two requests (RFC 9112, 9.3), and who asks once and then idles would keep others out for as long as
    connections are kept. What is looked at is the timer that each connection (of uvicorn) has while it waits for a request.
    """
    idle = []
    for number, one in enumerate(connections):
        if one.timeout_keep_alive_task is not None and not one.transport.is_closing():
            since_s = one.timeout_keep_alive_task.when() - one.timeout_keep_alive
            if now_s - since_s >= IDLE_MIN_S:
                idle.append((since_s, number, one))
    for _, _, one in heapq.nsmallest(max(1, connections_max // 64), idle):
        one.transport.close()
    return bool(idle)


@lru_cache(maxsize=1_024)
def address_of(host: str) -> str:
    """What *host* is counted as; "" for loopback, and for what is no address, such as a Unix socket."""
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


async def answer_overloaded(scope: Scope, receive: Receive, send: Send) -> None:
    """Instead of the application, while too many requests are being worked on."""
    error = Overloaded(what="requests at a time", limit=limits.REQUESTS_MAX)
    status, headers, body = problem_reply(error, instance=scope["path"], request_id=request_id_of(scope))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
