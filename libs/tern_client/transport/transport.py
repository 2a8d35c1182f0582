"""How async clients reach a proxy: the protocol of transports, the choice between two of them, and
the async shell of a call.
"""

import asyncio
import random
import ssl
from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tern_client.transport.calling import Attempt, Course, Outcome, Pause, Step, Work, namespace_headers
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import Credentials, FileName
from tern_client.transport.endpoints import Endpoints
from tern_client.transport.exchange import CONNECTIONS_MAX, Request, Response, lost_connection, unreachable
from tern_client.transport.line_streams import LineStream
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import TernError
from tern_wire.extras import need_extra

T = TypeVar("T")
# Compression of less takes about a millisecond, and a thread some 0.1 ms.
WORK_ON_LOOP_SIZE_MAX_BYTES = 64 * 1024


class Transport(Protocol):
    """Exchanges one request for one response. Raises ProxyUnreachable (nothing was sent) or
    OutcomeUnknown (it may have been).
    """

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Return the whole response of any status. The answer is due in *timeout_ms*."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


@runtime_checkable
class PausingTransport(Protocol):
    """A transport with a time of its own, in which pauses pass: that of a test's mesh."""

    async def pause(self, delay_ms: float) -> float:
        """Let a pause between two attempts pass. Return the part of it, in milliseconds, that the
        clock of calls has not seen.
        """
        ...


class HttpxTransport:
    """The transport for forward proxies of the environment. Owns an httpx client."""

    __slots__ = ("_client", "_httpx")

    def __init__(self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        need_extra("ternmq-client[forward-proxy]", "A forward proxy between client and mesh")
        import httpx  # noqa: PLC0415 - costs 100 ms and 15 MB, and most connections do not need it

        self._httpx = httpx
        limits = httpx.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=CONNECTIONS_MAX)
        self._client = httpx.AsyncClient(
            limits=limits, trust_env=not all(map(is_loopback, endpoints)), verify=tls or True
        )

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Send *request* and return the whole response; ProxyUnreachable, OutcomeUnknown."""
        try:
            response = await self._client.request(
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

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()


def is_loopback(endpoint: str) -> bool:
    """Whether *endpoint* is on this machine, where no forward proxy could reach it."""
    return urlsplit(endpoint).hostname in {"127.0.0.1", "::1", "localhost"}


def is_direct(endpoint: str) -> bool:
    """Whether plain sockets reach *endpoint*, with TLS or without: the environment names no forward
    proxy for it.
    """
    address = urlsplit(endpoint)
    proxied = address.scheme in getproxies() and not proxy_bypass(address.hostname or "")
    return is_loopback(endpoint) or not proxied


def choose_transport(
    endpoints: Sequence[str], credentials: Credentials, connections_max: int = CONNECTIONS_MAX
) -> Transport:
    """Return the fast transport when no endpoint is behind a forward proxy, else httpx. At most
    *connections_max* are open to an endpoint; httpx has CONNECTIONS_MAX.
    """
    tls = tls_of(endpoints, credentials)
    if all(map(is_direct, endpoints)):
        from tern_client.transport.fast_transport import FastTransport  # noqa: PLC0415 - blocking clients need none

        return FastTransport(connections_max, tls)
    return HttpxTransport(endpoints, tls)


def tls_of(endpoints: Sequence[str], credentials: Credentials) -> ssl.SSLContext | None:
    """Return the TLS settings of connections; None without an https endpoint, which saves some 20
    ms.
    """
    return credentials.context() if any(each.startswith("https:") for each in endpoints) else None


class AsyncCaller:
    """The async shell: drives calls over a transport. Owns the transport and the choice of
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
        transport: Transport | None = None,
    ) -> None:
        proxies = Endpoints(endpoints)
        headers = namespace_headers(namespace)
        self.course = Course(endpoints=proxies, policy=policy or RetryPolicy(), chance=random.random, headers=headers)
        self._credentials = Credentials(proxies.urls, key_file, ca_file)
        self._transport = transport or choose_transport(proxies.urls, self._credentials)

    async def drive(self, steps: Generator[Step, Outcome, T]) -> T:
        """Do what *steps* yield until they return; their errors are raised. A cancelled call ends
        its steps.
        """
        # Pauses that have passed in the transport's own time, and count for this call.
        unseen_ms = 0.0
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause) and step.delay_ms and isinstance(self._transport, PausingTransport):
                    unseen_ms += await self._transport.pause(step.delay_ms)
                    step = steps.send(Outcome(None, now_ms() + unseen_ms))
                    continue
                step = steps.send(await self._take(step, unseen_ms))
        except StopIteration as end:
            value: Any = end.value
            return value  # type: ignore[no-any-return]
        finally:
            steps.close()

    async def _take(self, step: Step, unseen_ms: float) -> Outcome:
        result: Response | TernError | None = None
        if isinstance(step, Attempt):
            try:
                request = self._credentials.applied(step.request, step.endpoint)
                result = await self._transport.exchange(step.endpoint, request, step.timeout_ms)
            except TernError as error:
                result = error
        elif isinstance(step, Work):
            if step.size_bytes < WORK_ON_LOOP_SIZE_MAX_BYTES:
                step.run()
            else:
                await asyncio.get_running_loop().run_in_executor(None, step.run)
        elif step.delay_ms:
            await asyncio.sleep(step.delay_ms / 1000)
        return Outcome(result, now_ms() + unseen_ms)

    async def stream(self, endpoint: str, request: Request, silence_max_ms: int) -> LineStream:
        """Return the answer of *request* line by line, on a connection of its own. Raise
        ProxyUnreachable, OutcomeUnknown, and the error that is the answer.
        """
        tls = tls_of([endpoint], self._credentials)
        request = self._credentials.applied(request, endpoint)
        return await LineStream.open(endpoint, request, tls, silence_max_ms=silence_max_ms)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
