"""`connect`: one set of sockets and settings for all clients of a program. Async, and blocking for
threads.

    connect() --settings--> Connection --producer(), consumer(...), open(kind, ...)--> clients
                                '--- one transport, borrowed by each of them

Law: a client that closes gives its transport back and closes no socket of the others. The
connection closes the clients that are still open, the last one first, and the sockets behind them.
"""

import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from tern_client.asynchronous.admin import Admin
from tern_client.blocking.admin import BlockingAdmin
from tern_client.blocking.sending import BlockingProducer
from tern_client.blocking_consumer import BlockingConsumer
from tern_client.closing import ClientClosed
from tern_client.consumer import Consumer
from tern_client.producer import Producer
from tern_client.pull_consumer import BlockingPullConsumer, PullConsumer
from tern_client.settings.settings import Settings
from tern_client.transactions.blocking_transactions import BlockingTransactionProducer
from tern_client.transactions.producer import TransactionProducer
from tern_client.transport.blocking_transport import BlockingTransport, PlainTransport, choose_blocking_transport
from tern_client.transport.credentials import Credentials
from tern_client.transport.endpoints import Endpoints
from tern_client.transport.exchange import Request, Response
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport, choose_transport
from tern_http.blocking import BlockingPool

P = ParamSpec("P")
# Each waiting consumer has a connection of its own, so one transport of many clients needs more
# than that of one client. A proxy has room for some thousands.
CONNECTIONS_SHARED_MAX = 1_024
_Urls = tuple[str, ...]


class _Closes(Protocol):
    async def close(self) -> None: ...


class _BlockingCloses(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)
B = TypeVar("B", bound=_BlockingCloses)
# Of the descriptors below, which serve both kinds.
K = TypeVar("K")


class _Opens(Generic[P, K]):
    """A method that opens clients of one kind, with the arguments of its class but the
    endpoints.
    """

    def __init__(self, kind: Callable[Concatenate[_Urls, P], K]) -> None:
        self._kind = kind
        self.__doc__ = f"Open a {getattr(kind, '__name__', 'client')} with its arguments but the endpoints."

    @overload
    def __get__(self, connection: None, owner: type) -> Self: ...
    @overload
    def __get__(self, connection: "Connection | BlockingConnection", owner: type) -> Callable[P, K]: ...
    def __get__(self, connection: "Connection | BlockingConnection | None", owner: type) -> Any:
        return self if connection is None else self._opener(connection)

    def _opener(self, connection: "Connection | BlockingConnection") -> Callable[P, K]:
        def opened(*args: P.args, **options: P.kwargs) -> K:
            client: Any = connection.open(self._kind, *args, **options)  # type: ignore[type-var]  # each kind stands at its connection
            return client  # type: ignore[no-any-return]

        return opened


class _Borrowed:
    """The transport of a connection, as one of its clients has it. Owner: that client."""

    __slots__ = ("_give_back", "_transport")

    def __init__(self, transport: Transport, give_back: Callable[["_Borrowed"], None]) -> None:
        self._transport, self._give_back = transport, give_back

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Coroutine[Any, Any, Response]:
        """As the connection's transport does."""
        return self._transport.exchange(endpoint, request, timeout_ms)

    async def close(self) -> None:
        """Give the transport back; its sockets stay open."""
        self._give_back(self)


class _BorrowedBlocking:
    """The same for threads. Each client ends its own long polls only."""

    __slots__ = ("_give_back", "_transport")

    def __init__(self, transport: BlockingTransport, give_back: Callable[["_BorrowedBlocking"], None]) -> None:
        self._transport, self._give_back = transport, give_back

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As the connection's transport does."""
        return self._transport.exchange(endpoint, request, timeout_ms)

    def abandon(self) -> None:
        """End the long polls of this client."""
        self._transport.abandon()

    def close(self) -> None:
        """Give the transport back; its sockets stay open."""
        self._give_back(self)


class Connection:
    """Clients of one event loop that share their sockets and settings: `connect` makes it.

    `producer`, `consumer`, `pull_consumer`, `transaction_producer` and `admin` take the arguments
    of their classes without the endpoints; `open` does so for any client class. Namespace, policy
    and credentials are the connection's, unless a client gets its own.

    `close`, or the end of `async with`, closes all clients, the last one first. Later calls raise
    ClientClosed.

    Example:

        import asyncio

        from tern_client import Connection, connect


        async def send(mesh: Connection) -> None:
            await mesh.producer().send("orders", b"order 1")


        async def main() -> None:
            async with connect("http://127.0.0.1:8080") as mesh:
                await send(mesh)
                async for message in mesh.consumer("orders", "billing", max_messages=8):
                    print(message.body)  # -> b'order 1'
                    break


        asyncio.run(main())
    """

    producer = _Opens(Producer)
    consumer = _Opens(Consumer)
    pull_consumer = _Opens(PullConsumer)
    transaction_producer = _Opens(TransactionProducer)
    admin = _Opens(Admin)

    def __init__(self, settings: Settings, *, policy: RetryPolicy | None = None) -> None:
        """EndpointMalformed, CredentialsUnusable."""
        self.settings = settings
        self._urls = Endpoints(settings.endpoints).urls
        self._policy = policy
        credentials = Credentials(self._urls, settings.key_file, settings.ca_file)
        self._transport = choose_transport(self._urls, credentials, CONNECTIONS_SHARED_MAX)
        self._clients: dict[_Borrowed, _Closes] = {}
        self._is_closed = False

    def open(self, kind: Callable[Concatenate[_Urls, P], C], *args: P.args, **options: P.kwargs) -> C:
        """Open a client of class *kind* with its arguments but the endpoints; ClientClosed.

        `mesh.open(Consumer, "orders", "billing")` is `mesh.consumer("orders", "billing")`.
        """
        if self._is_closed:
            raise ClientClosed(client=type(self).__name__)
        borrowed = _Borrowed(self._transport, self._forget)
        make: Any = kind
        client: C = make(self._urls, *args, **_defaults(self.settings, self._policy, options), transport=borrowed)
        self._clients[borrowed] = client
        return client

    async def close(self) -> None:
        """Close all clients, and the sockets. The first error is raised when all are closed."""
        self._is_closed = True
        failures = []
        try:
            while self._clients:
                _, client = self._clients.popitem()
                try:
                    await client.close()
                except Exception as error:
                    failures.append(error)
        finally:
            await self._transport.close()
        if failures:
            raise failures[0]

    def _forget(self, borrowed: _Borrowed) -> None:
        self._clients.pop(borrowed, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class BlockingConnection:
    """Clients for threads that share their sockets and settings: `connect_blocking` makes it. Any
    thread may open clients; each client says whether threads may share it.

    Example:

        from tern_client import BlockingConnection, connect_blocking

        mesh: BlockingConnection
        with connect_blocking("http://127.0.0.1:8080") as mesh:
            mesh.producer().send("orders", b"order 1")
            for message in mesh.consumer("orders", "billing"):
                print(message.body)  # -> b'order 1'
                break
            print(mesh.admin().topic("orders")["topic"])  # -> orders
    """

    producer = _Opens(BlockingProducer)
    consumer = _Opens(BlockingConsumer)
    pull_consumer = _Opens(BlockingPullConsumer)
    transaction_producer = _Opens(BlockingTransactionProducer)
    admin = _Opens(BlockingAdmin)

    def __init__(self, settings: Settings, *, policy: RetryPolicy | None = None) -> None:
        """EndpointMalformed, CredentialsUnusable."""
        self.settings = settings
        self._urls = Endpoints(settings.endpoints).urls
        self._policy = policy
        credentials = Credentials(self._urls, settings.key_file, settings.ca_file)
        self._transport = choose_blocking_transport(self._urls, credentials)
        self._pool: BlockingPool | None = self._transport.pool if isinstance(self._transport, PlainTransport) else None
        # Guards the two below: threads open and close clients.
        self._lock = threading.Lock()
        self._clients: dict[_BorrowedBlocking, _BlockingCloses] = {}
        self._is_closed = False

    def open(self, kind: Callable[Concatenate[_Urls, P], B], *args: P.args, **options: P.kwargs) -> B:
        """Open a client of class *kind* with its arguments but the endpoints; ClientClosed."""
        if self._is_closed:
            raise ClientClosed(client=type(self).__name__)
        # A transport of its own over the shared sockets, since `stop` ends the polls of a
        # transport.
        transport = self._transport if self._pool is None else PlainTransport(pool=self._pool)
        borrowed = _BorrowedBlocking(transport, self._forget)
        make: Any = kind
        client: B = make(self._urls, *args, **_defaults(self.settings, self._policy, options), transport=borrowed)
        with self._lock:
            self._clients[borrowed] = client
            is_late = self._is_closed
        if is_late:
            client.close()
            raise ClientClosed(client=type(self).__name__)
        return client

    def close(self) -> None:
        """Close all clients, and the sockets. The first error is raised when all are closed."""
        with self._lock:
            self._is_closed = True
            clients, self._clients = list(self._clients.values()), {}
        failures = []
        try:
            for client in reversed(clients):
                try:
                    client.close()
                except Exception as error:
                    failures.append(error)
        finally:
            self._transport.close()
        if failures:
            raise failures[0]

    def _forget(self, borrowed: _BorrowedBlocking) -> None:
        with self._lock:
            self._clients.pop(borrowed, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect(endpoints: str | Sequence[str] = "", *, context: str = "", policy: RetryPolicy | None = None) -> Connection:
    """Return a connection for asyncio, within a running event loop. Nothing is sent before the
    first call of a client.

    - *endpoints*: URLs of proxies. By default those of the context *context*, else of the
      environment: TERNMQ_ENDPOINT, the context TERNMQ_CONTEXT, the current context,
      http://127.0.0.1:8080.
    - Namespace, key file and authority file come from the same context, or from TERNMQ_NAMESPACE,
      TERNMQ_KEY_FILE and TERNMQ_CA_FILE.

    EndpointMalformed, ContextUnusable, CredentialsUnusable.
    """
    return Connection(_settings(endpoints, context), policy=policy)


def connect_blocking(
    endpoints: str | Sequence[str] = "", *, context: str = "", policy: RetryPolicy | None = None
) -> BlockingConnection:
    """Return a connection for threads; the arguments are those of `connect`."""
    return BlockingConnection(_settings(endpoints, context), policy=policy)


def _settings(endpoints: str | Sequence[str], context: str) -> Settings:
    if not endpoints:
        return Settings.from_env(os.environ, context=context)
    urls = endpoints if isinstance(endpoints, str) else ",".join(endpoints)
    return Settings.from_env({**os.environ, "TERNMQ_ENDPOINT": urls})


def _defaults(settings: Settings, policy: RetryPolicy | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return *options* of a client, completed by those of its connection."""
    common = {
        "namespace": settings.namespace,
        "key_file": settings.key_file,
        "ca_file": settings.ca_file,
        "policy": policy,
    }
    return {**common, **options}
