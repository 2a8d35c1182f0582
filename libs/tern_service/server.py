"""Listening and serving: sockets, uvicorn with limits, TLS and a clean stop, the main loop."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
import uvloop
from starlette.types import ASGIApp, Receive, Scope, Send

from tern_accept import OURS, Descriptors
from tern_security.contexts import TlsRefusal
from tern_security.peer_identity import peer_of
from tern_service.connections.bounds import Bounds
from tern_service.connections.table import ConnectionTable
from tern_service.connections.whole_exchange import WholeRequests
from tern_service.connections.whole_requests import WholeRequestsProtocol
from tern_service.listener import Listener, MakeProtocol
from tern_service.problems import problem_reply, request_id_of
from tern_service.settings import refuse
from tern_wire.errors import ShuttingDown
from tern_wire.reasons import reason_of

logger = logging.getLogger(__name__)

# As nginx: longer than the idle time of common clients' pools, so that clients close first.
KEEP_ALIVE_S = 75
# Time for answers under way at a stop; later ones get `shutting-down`. Docker kills after 10 s.
STOP_GRACE_S = 3
BACKLOG = 1_024


def open_socket(
    host: str, port: int, option: str, *, host_option: str = "--listen", is_protected: bool = False
) -> socket.socket:
    """Open a listening TCP socket on *host*:*port* (0: any free one); errors name *option*.
    Loopback only, unless *is_protected* confirms a call of `protection_of`. SettingsError (exit 78)
    for another address, or a port in use or not allowed.
    """
    address = _address(host, host_option, is_protected=is_protected)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    # A restarted service must not wait for its predecessor's closed connections.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((str(address), port))
        # Here and not later: with SO_REUSEADDR two processes may bind, and only listening fails for
        # the second.
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        reason = (
            "is in use by another process"
            if getattr(error, "errno", 0) == errno.EADDRINUSE
            else f"fails ({reason_of(error)})"
        )
        refuse(f"Port {port} on {host} {reason}; choose another one with {option}.")
    sock.setblocking(False)
    return sock


def _address(host: str, option: str, *, is_protected: bool) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        refuse(f"'{host}' ({option}) is not an IP address; use 127.0.0.1.")
    if not address.is_loopback and not is_protected:
        refuse(
            f"'{host}' ({option}) is not a loopback address, and this listener has no authentication; use 127.0.0.1."
        )
    return address


async def serve(
    app: ASGIApp,
    sock: socket.socket,
    *,
    stop: asyncio.Event | None = None,
    bounds: Bounds | None = None,
    table: ConnectionTable | None = None,
    whole: WholeRequests | None = None,
    tls: ssl.SSLContext | None = None,
    on_refusal: Callable[[TlsRefusal], None] = lambda _: None,
    descriptors: Descriptors = OURS,
) -> None:
    """Serve *app* on *sock* (from open_socket) until *stop* is set, then stop within 5 s; closes
    *sock*.
    *tls* None: plain HTTP. *table* (None: a new one) counts the listener's connections, and the
    parked requests, which do not count as being worked on (`Bounds.requests_max`). Every request's
    `state` has `peer`: the PeerIdentity of a client certificate, else None. *whole*: the part of
    *app* that answers requests without ASGI. *on_refusal*: as in Listener.

    Runs in the current loop of any thread and leaves signals alone; *stop* belongs to that loop
    (from another thread: `loop.call_soon_threadsafe(stop.set)`). The application's lifespan runs
    around it. SystemExit if that fails.
    """
    stop = stop or asyncio.Event()
    bounds = bounds or Bounds()
    protocol = partial(
        _KnownPeer,
        bounds=bounds,
        table=ConnectionTable(descriptors=descriptors) if table is None else table,
        whole=whole,
    )
    config = uvicorn.Config(
        _Stoppable(app, stop),
        http=cast(type[asyncio.Protocol], protocol),
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_GRACE_S,
    )
    make_listener = partial(Listener, context=tls, on_refusal=on_refusal, bounds=bounds, descriptors=descriptors)
    with sock:  # uvicorn closes it after serving, but not if it could not begin
        await _Server(config, stop, make_listener).serve(sockets=[sock])


class _KnownPeer(WholeRequestsProtocol):
    """A connection whose requests carry the identity of its peer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "peer": peer_of(transport)}
        super().connection_made(transport)


class _Stoppable:
    """The application, with an answer for the requests that a stop cuts off."""

    def __init__(self, app: ASGIApp, stop: asyncio.Event) -> None:
        self._app = app
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if scope["type"] != "http" or not self._stop.is_set():
                raise
            status, headers, body = problem_reply(ShuttingDown(), request_id=request_id_of(scope))
            with contextlib.suppress(RuntimeError):  # an answer that has begun is only broken off
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """uvicorn's server, without signals, with our listener, an event to stop, and one tick a
    second.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        stop: asyncio.Event,
        make_listener: Callable[[socket.socket, MakeProtocol], Listener],
    ) -> None:
        super().__init__(config)
        self._stop, self._make_listener = stop, make_listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        for sock in [] if self.should_exit else sockets or []:
            listener = self._make_listener(sock, self._make_protocol)
            self.servers.append(cast(asyncio.base_events.Server, listener))

    def _make_protocol(self, on_known: Callable[[], None]) -> asyncio.Protocol:
        """Make a protocol as uvicorn does in a closure."""
        make = cast(Callable[..., asyncio.Protocol], self.config.http_protocol_class)
        return make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state, on_known=on_known
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        while not self._stop.is_set():
            await self.on_tick(0)  # refreshes the Date header
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1.0)
        self.should_exit = True


def run_service(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run `main(stop)` on uvloop in this thread until it returns; SIGTERM and SIGINT set *stop*."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        stop = asyncio.Event()

        def ask_to_stop(name: str) -> None:
            logger.info("stopping", extra={"signal": name})
            stop.set()

        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, ask_to_stop, each.name)
        runner.run(main(stop))
