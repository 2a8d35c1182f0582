"""How blocking clients reach a proxy: http.client, or httpx for forward proxies; and the blocking
shell of a call.

Measured in DESIGN.md of the folder above: http.client costs a quarter of httpx's CPU, and 80 ms
less at start-up.
"""

import contextlib
import http.client
import random
import socket
import ssl
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from tern_client.transport.calling import Attempt, Course, Outcome, Step, Work, namespace_headers
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import Credentials, FileName
from tern_client.transport.endpoints import Endpoints, path_prefix
from tern_client.transport.exchange import CONNECTIONS_MAX, Request, Response, lost_connection, unreachable
from tern_client.transport.line_streams import BlockingLineStream
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import is_direct, is_loopback, tls_of
from tern_http.blocking import BlockingPool
from tern_wire.errors import TernError
from tern_wire.extras import need_extra

T = TypeVar("T")


class BlockingTransport(Protocol):
    """Exchanges one request for one response, from any thread. Raises ProxyUnreachable or
    OutcomeUnknown, as Transport does.
    """

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Return the whole response of any status. The answer is due in *timeout_ms*."""
        ...

    def abandon(self) -> None:
        """End long polls that are under way, and any later one, as lost connections. Any thread or
        signal handler may call it: it does not wait. A transport that cannot end a poll lets its
        wait pass.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class PlainTransport:
    """One keep-alive connection per thread in use, kept in a pool per endpoint. *pool*: one that
    several transports share, and that none of them closes.
    """

    __slots__ = ("_is_abandoned", "_owns_pool", "_polling", "pool")

    def __init__(self, tls: ssl.SSLContext | None = None, *, pool: BlockingPool | None = None) -> None:
        self.pool = pool or BlockingPool(tls)
        self._owns_pool = pool is None
        # Connections with a long poll under way, and whether long polls are abandoned.
        self._polling: set[http.client.HTTPConnection] = set()
        self._is_abandoned = False

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Send *request* and return the whole response; ProxyUnreachable, OutcomeUnknown."""
        connection = self.pool.take(endpoint, timeout_ms / 1000)
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise unreachable(endpoint, error) from error
        try:
            if request.wait_ms:
                self._polling.add(connection)  # before the check: `abandon` may come at any moment
                if self._is_abandoned:
                    raise http.client.NotConnected("the consumer was stopped")
            connection.putrequest(request.method, path_prefix(endpoint) + request.path, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(request.body)))
            is_whole = _send_rest(connection, request.body)
            answer = connection.getresponse()
            if answer.length is None and answer.getheader("Content-Length") and not answer.chunked:
                # http.client would read to the end of the connection, which may never come.
                raise http.client.HTTPException("the answer's Content-Length is no number")
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise lost_connection(endpoint, error) from error
        except BaseException:
            connection.close()
            raise
        finally:
            self._polling.discard(connection)
        headers = {name.lower(): value for name, value in answer.getheaders()}
        if answer.will_close or not is_whole:
            connection.close()
        else:
            self.pool.keep(endpoint, connection)
        return Response(answer.status, headers, body)

    def abandon(self) -> None:
        """End long polls, now and later, by shutting down their sockets."""
        self._is_abandoned = True
        for connection in tuple(self._polling):
            with contextlib.suppress(OSError, AttributeError):  # the poll has just ended
                # Below TLS: the reading thread finds the end of the stream, and is not interrupted
                # within a record.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all connections; a connection in use is closed when its answer has come."""
        if self._owns_pool:
            self.pool.close()


def _send_rest(connection: http.client.HTTPConnection, body: bytes) -> bool:
    """Send head and body; False when the proxy closed its side meanwhile. It may have answered
    before the end of the body.
    """
    try:
        connection.endheaders(body or None)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


class HttpxBlockingTransport:
    """The transport for forward proxies of the environment. Owns an httpx client, which threads may
    share.
    """

    __slots__ = ("_client", "_httpx")

    def __init__(self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        need_extra("ternmq-client[forward-proxy]", "A forward proxy between client and mesh")
        import httpx  # noqa: PLC0415 - costs 100 ms and 15 MB, and most connections do not need it

        self._httpx = httpx
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX)
        self._client = httpx.Client(limits=limits, trust_env=not all(map(is_loopback, endpoints)), verify=tls or True)

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Send *request* and return the whole response; ProxyUnreachable, OutcomeUnknown."""
        try:
            response = self._client.request(
                request.method,
                endpoint + request.path,
                headers=list(request.headers),
                content=request.body,
                timeout=timeout_ms / 1000,
            )
        except (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout) as error:
            raise unreachable(endpoint, error) from error
        except self._httpx.TransportError as error:
            raise lost_connection(endpoint, error) from error
        return Response(response.status_code, dict(response.headers), response.content)

    def abandon(self) -> None:
        """Do nothing: httpx cannot end a request from another thread."""

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def choose_blocking_transport(endpoints: Sequence[str], credentials: Credentials) -> BlockingTransport:
    """Return the plain transport when no endpoint is behind a forward proxy, else httpx."""
    tls = tls_of(endpoints, credentials)
    return PlainTransport(tls) if all(map(is_direct, endpoints)) else HttpxBlockingTransport(endpoints, tls)


class CallAbandoned(Exception):
    """A call failed and is not repeated, since its result is not needed any more."""


class BlockingCaller:
    """The blocking shell: drives calls in the calling thread. Owns the transport and the choice of
    endpoint.
    """

    __slots__ = ("_credentials", "_transport", "course")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        proxies = Endpoints(endpoints)
        headers = namespace_headers(namespace)
        self.course = Course(endpoints=proxies, policy=policy or RetryPolicy(), chance=random.random, headers=headers)
        self._credentials = Credentials(proxies.urls, key_file, ca_file)
        self._transport = transport or choose_blocking_transport(proxies.urls, self._credentials)

    def drive(self, steps: Generator[Step, Outcome, T], *, is_over: Callable[[], bool] = lambda: False) -> T:
        """Do what *steps* yield until they return; their errors are raised. An interrupted call
        ends its steps. A call that fails once *is_over* is true raises CallAbandoned.
        """
        try:
            step = next(steps)
            while True:
                outcome = self._take(step)
                if isinstance(outcome.result, TernError) and is_over():
                    raise CallAbandoned from outcome.result
                step = steps.send(outcome)
        except StopIteration as end:
            value: Any = end.value
            return value  # type: ignore[no-any-return]
        finally:
            steps.close()

    def _take(self, step: Step) -> Outcome:
        result: Response | TernError | None = None
        if isinstance(step, Attempt):
            try:
                request = self._credentials.applied(step.request, step.endpoint)
                result = self._transport.exchange(step.endpoint, request, step.timeout_ms)
            except TernError as error:
                result = error
        elif isinstance(step, Work):
            step.run()
        elif step.delay_ms:
            time.sleep(step.delay_ms / 1000)
        return Outcome(result, now_ms())

    def stream(self, endpoint: str, request: Request, silence_max_ms: int) -> BlockingLineStream:
        """As AsyncCaller.stream."""
        tls = tls_of([endpoint], self._credentials)
        request = self._credentials.applied(request, endpoint)
        return BlockingLineStream.open(endpoint, request, tls, silence_max_ms=silence_max_ms)

    def abandon(self) -> None:
        """End long polls that are under way, and any later one."""
        self._transport.abandon()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()
