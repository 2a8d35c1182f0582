"""TestMesh: a whole mesh in the test's own process, in a time that the test moves."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Literal, Self, Unpack

from tern_client import Admin, Consumer, Producer, PullConsumer, TransactionProducer
from tern_client.transactions.models import AsyncChecker
from tern_testing.core import Core
from tern_testing.options import (
    ClientOptions,
    ConsumerOptions,
    ProducerOptions,
    PullOptions,
    TransactionOptions,
)
from tern_testing.records import DeadLetter, SentMessage
from tern_testing.transport import MeshTransport
from tern_testing.virtual_loop import LoopThread
from tern_wire.times import parse_duration_ms

ENDPOINT = "http://testmesh.invalid"
CAPACITY_BYTES = 256 << 20
RETENTION_MS = 72 * 3_600_000
# The turns that tasks of the test get to react to an answer before more time passes.
TURNS = 32


class MeshFailed(AssertionError):
    """Something inside the mesh failed that no request was told of: a bug of TernMQ."""


class TestMesh:
    """A broker and a proxy of the product in this process, with their files in memory.

    - Time stands still until `advance`; then delays, retries, ends of leases, checks, dead letters
      and retention happen at their time. *clock* `"real"`: the machine's time passes besides.
    - `producer`, `consumer` and the others make clients of the SDK, for the event loop of the test.
      They must be closed before the mesh ends.
    - `sent`, `pending` and `dead_letters` look inside; `fail_next` and `lose_connection` make
      requests fail.
    - *start*: the time at its begin (default: now). *capacity_bytes* bounds what it holds (256
      MiB); beyond it sends are refused as on a full disk. *retention_ms*: as of a broker (72 h).

    Topics and groups are made at their first use, as `ternmq up` does. Several meshes may live side
    by side, each with a thread of its own. MeshFailed at the end: the mesh itself has failed.

    Example:

        import asyncio

        from tern_testing import TestMesh


        async def main() -> None:
            async with TestMesh() as mesh:
                async with mesh.producer() as producer:
                    await producer.send("orders", b"order 1", delay="5m")
                async with mesh.consumer("orders", "billing") as consumer:
                    print(await consumer.receive())  # -> []
                    await mesh.advance(minutes=10)
                    (message,) = await consumer.receive()
                    print(message.body)  # -> b'order 1'
                    await consumer.ack(message)
                print(mesh.pending("orders", "billing"), mesh.dead_letters("billing"))  # -> 0 []


        asyncio.run(main())
    """

    # pytest collects classes with such names otherwise.
    __test__ = False

    def __init__(
        self,
        *,
        clock: Literal["virtual", "real"] = "virtual",
        start: datetime | None = None,
        capacity_bytes: int = CAPACITY_BYTES,
        retention_ms: int = RETENTION_MS,
    ) -> None:
        if clock not in {"virtual", "real"}:
            raise ValueError(f"clock is {clock!r}; use 'virtual' or 'real'.")
        self._follows_clock = clock == "real"
        self._began_ms = int(start.timestamp() * 1000) if start is not None else time.time_ns() // 1_000_000
        self._capacity_bytes, self._retention_ms = capacity_bytes, retention_ms
        self._thread: LoopThread | None = None
        self._running: Core | None = None
        self._advancing = asyncio.Lock()
        self._consumers: list[Consumer] = []
        self._endpoint = ""

    # Begin and end --------------------------------------------------------------------------------
    async def __aenter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("This TestMesh has begun already; make another one.")
        thread = self._thread = LoopThread(follows_clock=self._follows_clock)

        async def begin() -> Core:
            core = Core(
                thread.loop,
                began_ms=self._began_ms,
                capacity_bytes=self._capacity_bytes,
                retention_ms=self._retention_ms,
            )
            await core.begin()
            return core

        try:
            self._running = await thread.call(begin())
        except BaseException:
            thread.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        core, thread = self._core, self._thread
        assert thread is not None
        self._running, thread.is_closed = None, True
        try:
            await thread.call(core.end())
        finally:
            thread.close()
        if thread.failures and error is None:
            raise MeshFailed("; ".join(thread.failures))

    @property
    def _core(self) -> Core:
        if self._running is None:
            raise RuntimeError("This TestMesh does not run; use it within `async with TestMesh() as mesh`.")
        return self._running

    @property
    def _loop_thread(self) -> LoopThread:
        assert self._core is not None
        assert self._thread is not None
        return self._thread

    async def listen(self) -> str:
        """Serve HTTP on a free port of 127.0.0.1, and return the URL: for blocking clients, other
        programs and curl. `advance` does not wait for what these do with an answer.
        """
        if not self._endpoint:
            port = await self._loop_thread.call(self._core.listen())
            self._endpoint = f"http://127.0.0.1:{port}"
        return self._endpoint

    @property
    def endpoint(self) -> str:
        """The URL for programs that take one. RuntimeError before `listen`."""
        if not self._endpoint:
            raise RuntimeError("This TestMesh has no port; call `await mesh.listen()` first.")
        return self._endpoint

    # Time -----------------------------------------------------------------------------------------
    @property
    def now(self) -> datetime:
        """The mesh's time, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """The mesh's time in milliseconds since 1970, for clients that take a clock."""
        return self._core.clock.now_ms()

    async def advance(
        self,
        by: str | int | timedelta = 0,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass: *by* (`"10m"`, milliseconds or a timedelta) and all that is named besides.

        Whatever comes due happens at its time. A task of the test that gets an answer meanwhile
        reacts before more time passes, as long as it waits for nothing but this mesh: not for a
        thread, a socket or a sleep. Messages that a consumer of this mesh has confirmed are acked
        first. ValueError for a malformed or negative duration.
        """
        rest = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        by_ms = by // timedelta(milliseconds=1) if isinstance(by, timedelta) else parse_duration_ms(by)
        by_ms += rest // timedelta(milliseconds=1)
        if by_ms < 0:
            raise ValueError(f"time does not go back by {-by_ms} ms")
        async with self._advancing:
            await self._flush_confirmed()
            await self._settle()
            target_ms = self.now_ms() + by_ms
            while not await self._loop_thread.call(self._core.advance(target_ms)):
                await self._settle()
            await self._settle()

    async def _flush_confirmed(self) -> None:
        """Send what confirmed messages wait for: half a second of the machine's time."""
        for consumer in self._open_consumers():
            if not consumer.is_closed:  # meanwhile
                await consumer.flush()

    def _open_consumers(self) -> list[Consumer]:
        return [consumer for consumer in self._consumers if not consumer.is_closed]

    async def _settle(self) -> None:
        """Return when neither the mesh nor the test's tasks have anything to do at this time."""
        before = -1
        while before != (now := await self._loop_thread.call(self._core.quiet())):
            before = now
            for _ in range(TURNS):
                await asyncio.sleep(0)

    # Clients --------------------------------------------------------------------------------------
    @property
    def transport(self) -> MeshTransport:
        """A transport to this mesh, for any async client of the SDK that takes one."""
        return MeshTransport(self._core.door, self._loop_thread)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """A Producer of this mesh. *options*: as for the Producer."""
        return Producer(ENDPOINT, transport=self.transport, key_file="", **options)

    def consumer(self, topic: str, group: str, *, wait_ms: int = 0, **options: Unpack[ConsumerOptions]) -> Consumer:
        """A Consumer of this mesh. *options*: as for the Consumer.

        A receive returns what there is now. With *wait_ms*, in the mesh's time, it waits for a
        message or for an `advance` of another task: use it for a consumer that runs in a task.
        """
        clock = self._core.clock.now_ms
        consumer = Consumer(
            ENDPOINT, topic, group, wait_ms=wait_ms, transport=self.transport, key_file="", clock=clock, **options
        )
        self._consumers = [*self._open_consumers(), consumer]
        return consumer

    def pull_consumer(self, topic: str, **options: Unpack[PullOptions]) -> PullConsumer:
        """A PullConsumer of this mesh. *options*: as for the PullConsumer."""
        return PullConsumer(ENDPOINT, topic, transport=self.transport, key_file="", **options)

    def transaction_producer(
        self, producer_group: str, *, checker: AsyncChecker | None = None, **options: Unpack[TransactionOptions]
    ) -> TransactionProducer:
        """A TransactionProducer of this mesh. *options*: as for the TransactionProducer."""
        return TransactionProducer(
            ENDPOINT, producer_group, checker=checker, transport=self.transport, key_file="", **options
        )

    def admin(self, **options: Unpack[ClientOptions]) -> Admin:
        """An Admin of this mesh. *options*: as for the Admin."""
        return Admin(ENDPOINT, transport=self.transport, key_file="", **options)

    # What is inside -------------------------------------------------------------------------------
    def sent(self, topic: str) -> list[SentMessage]:
        """All messages of *topic* in the order of sending, those that wait for their delivery time
        included; [] if nothing was ever sent. Messages of open transactions are not there yet.
        """
        return self._loop_thread.ask(self._core.sent(topic))

    def pending(self, topic: str, group: str) -> int:
        """The number of visible messages of *topic* that *group* has not acked; GroupNotFound,
        TopicNotFound.
        """
        return self._loop_thread.ask(self._core.pending(topic, group))

    def dead_letters(self, group: str) -> list[DeadLetter]:
        """All dead letters of *group*; [] for a group that there is not."""
        return self._loop_thread.ask(self._core.dead_letters(group))

    # Faults ---------------------------------------------------------------------------------------
    def fail_next(self, operation: str, *, code: str = "overloaded", times: int = 1, **fields: object) -> None:
        """Answer the next *times* requests of *operation* with the product's error *code*, undone.

        *operation*: `any`, `send`, `receive`, `settle`, `pull`, `request`, `reply`, `begin`, `end`,
        `check`, or an operationId of the API. *fields* are the error's. The SDK repeats what it
        repeats in production, without its pauses. ValueError for unknown names.
        """
        self._ask(lambda core: core.door.faults.fail(operation, code, times, fields))

    def lose_connection(self, operation: str, *, times: int = 1, stored: bool = True) -> None:
        """Lose the connections of the next *times* requests of *operation* before their answer.

        *stored*: the request has been carried out. Clients cannot know: their call raises
        OutcomeUnknown, or is repeated where that is safe. For requests by HTTP: an answer 500.
        """
        self._ask(lambda core: core.door.faults.lose(operation, times, is_done=stored))

    def clear_faults(self) -> None:
        """Forget the faults that no request has met."""
        self._ask(lambda core: core.door.faults.clear())

    def _ask(self, question: Callable[[Core], None]) -> None:
        core = self._core

        async def ask() -> None:
            question(core)

        self._loop_thread.ask(ask())
