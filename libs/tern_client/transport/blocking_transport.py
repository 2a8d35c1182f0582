"""How blocking clients reach a proxy: http.client, httpx for forward proxies; and their shell of a call.

Measured in DESIGN.md beside this file: http.client costs a quarter of httpx's CPU, and 80 ms less at start-up.
"""

import contextlib
import http.client
import random
import socket
import ssl
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeVar

from tern_client.transport.calling import Attempt, Course, Outcome, Step, namespace_headers
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import Credentials, FileName
from tern_client.transport.endpoints import Endpoints, path_prefix
from tern_client.transport.exchange import CONNECTIONS_MAX, Request, Response, lost_connection, unreachable
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import is_direct, is_loopback, tls_of
from tern_http.blocking import BlockingPool
from tern_wire.errors import TernError
from tern_wire.extras import need_extra

T = TypeVar("T")


class BlockingTransport(Protocol):
    """Exchanges one request for one response, from any thread. Errors as the async protocol's."""

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """The whole response, whatever its status."""
        ...

    def abandon(self) -> None:
        """End long polls that are under way, and any later one, as lost connections. From any thread or signal handler: it waits for
        nothing. Where that cannot be done they end by themselves, when their wait is over."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class PlainTransport:
    """One keep-alive connection per thread in use, kept in a pool per endpoint."""

    __slots__ = ("_is_abandoned", "_polling", "_pool")

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._pool = BlockingPool(tls)
        # Connections on which a long poll is under way; and whether there are to be none any more.
        self._polling: set[http.client.HTTPConnection] = set()
        self._is_abandoned = False

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As the protocol says."""
        connection = self._pool.take(endpoint, timeout_ms / 1000)
        if connection.sock is None:
            try:
                connection.connect()
            except OSError as error:
                raise unreachable(endpoint, error) from error
        try:
            if request.wait_ms:
                self._polling.add(connection)  # before the look: `abandon` comes at any moment
                if self._is_abandoned:
                    raise http.client.NotConnected("the consumer was told to stop")
            connection.putrequest(request.method, path_prefix(endpoint) + request.path, skip_accept_encoding=True)
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(request.body)))
            is_whole = _send_rest(connection, request.body)
            answer = connection.getresponse()
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
            self._pool.keep(endpoint, connection)
        return Response(answer.status, headers, body)

    def abandon(self) -> None:
        """As the protocol says."""
        self._is_abandoned = True
        for connection in tuple(self._polling):
            with contextlib.suppress(OSError, AttributeError):  # it has just ended
                # Below TLS: whoever reads there finds the end, and is not disturbed in the middle.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close all connections; one in use is closed when its answer has come."""
        self._pool.close()


def _send_rest(connection: http.client.HTTPConnection, body: bytes) -> bool:
    """Send head and body; False when the proxy closed its side meanwhile: it may have answered before the body's end."""
    try:
        connection.endheaders(body or None)
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


class HttpxBlockingTransport:
    """For forward proxies of the environment. Owns an httpx client, which is safe to share between threads."""

    __slots__ = ("_client", "_httpx")

    def __init__(self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        need_extra("ternmq-client[forward-proxy]", "A forward proxy between client and mesh")
        import httpx  # noqa: PLC0415 - costs 100 ms and 15 MB, and most connections do not need it

        self._httpx = httpx
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX)
        self._client = httpx.Client(limits=limits, trust_env=not all(map(is_loopback, endpoints)), verify=tls or True)

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As the protocol says."""
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
        """As the protocol says: httpx has no way."""

    def close(self) -> None:
        """Close all connections."""
        self._client.close()


def _choose_transport(endpoints: Sequence[str], credentials: Credentials) -> BlockingTransport:
    tls = tls_of(endpoints, credentials)
    return PlainTransport(tls) if all(map(is_direct, endpoints)) else HttpxBlockingTransport(endpoints, tls)


class CallAbandoned(Exception):
    """A call has failed, and is not repeated, since nobody wants it any more."""


class BlockingCaller:
    """Drives calls in the calling thread: the blocking shell. Owns the transport and the choice of endpoint."""

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
        self._transport = transport or _choose_transport(proxies.urls, self._credentials)

    def drive(self, steps: Generator[Step, Outcome, T], *, is_over: Callable[[], bool] = lambda: False) -> T:
        """Do what *steps* say until they return; their errors are raised. An interrupted call ends its steps, too, and so does one that
        has failed once *is_over*: CallAbandoned."""
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
        elif step.delay_ms:
            time.sleep(step.delay_ms / 1000)
        return Outcome(result, now_ms())

    def abandon(self) -> None:
        """As the transport's."""
        self._transport.abandon()

    def close(self) -> None:
        """Close all connections."""
        self._transport.close()
