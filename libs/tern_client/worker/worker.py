"""The Worker that programs use: handlers by decorator, `run` for a program, `serve` for a part of
one.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from tern_client.calls.pulling import GroupOffsets, OffsetStore
from tern_client.consumer import WAIT_DEFAULT_MS
from tern_client.running import signals_as_before
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.worker.arguments import read_handler
from tern_client.worker.broadcast import PAGE_MESSAGES_MAX, Broadcast, BroadcastSource
from tern_client.worker.flow import FlowBudget
from tern_client.worker.health import HealthPort
from tern_client.worker.memory import WorkerMemory
from tern_client.worker.options import Duration, Start, SubscriptionOptions, check_options
from tern_client.worker.outcomes import duration_ms
from tern_client.worker.running import WorkerRun
from tern_client.worker.source import GroupSource
from tern_client.worker.stats import Counters, WorkerStats, snapshot
from tern_client.worker.subscription import Subscription
from tern_wire.limits import MIB, RECEIVE_SIZE_MAX_BYTES

H = TypeVar("H", bound=Callable[[Any], Any])
MESSAGES_MAX, BYTES_MAX = 1_000, 100 * MIB
GRACE_DEFAULT = "30s"
GRACE_MAX_MS = 3_600_000
_STOPPING = (signal.SIGINT, signal.SIGTERM)
_STATUS_OF_SIGNALS = 128


class Worker:
    """Hands messages of many topics and groups to handlers: `@worker.on("orders", group="billing")`
    on an async function or a plain one, then `worker.run()`.

    - *max_messages*, *max_bytes*: what is in memory at most, received and not settled (1,000 and
      100 MiB of bodies). Each subscription has a share of its own, and half is common.
    - *grace*: how long handlers may finish after a stop ("30s").
    - *health_port*: serves `/health` and `/metrics` at *health_host* while the worker runs.
    - *endpoints*, *namespace*, *policy*, *key_file*, *ca_file*: as for the Consumer.

    A handler that returns acks; the value that it returns is the reply to a request. An exception
    gives the message back by the group's retry policy; Retry and DeadLetter say it otherwise.
    Leases are extended while a handler runs. `run` ends with SIGTERM or Ctrl-C; `async with
    worker:` and `await worker.serve()` are for a loop that runs.

    Example:

        from tern_client import BlockingProducer, ReceivedMessage, Worker

        worker = Worker("http://127.0.0.1:8080")


        @worker.on("orders", group="billing", concurrency=8)
        async def bill(message: ReceivedMessage) -> None:
            print(message.body, message.attempt)  # -> b'order 1' 1
            worker.stop()  # a service leaves this out


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
        worker.run()
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        max_messages: int = MESSAGES_MAX,
        max_bytes: int = BYTES_MAX,
        grace: Duration = GRACE_DEFAULT,
        health_port: int | None = None,
        health_host: str = "127.0.0.1",
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
    ) -> None:
        self._endpoints, self._namespace, self._policy = endpoints, namespace, policy
        self._key_file, self._ca_file = key_file, ca_file
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self.grace_ms = duration_ms(grace, "grace", 0, GRACE_MAX_MS)
        self.health_host, self.health_port = health_host, health_port
        self._options: list[SubscriptionOptions] = []
        self._subscriptions: list[Subscription | Broadcast] = []
        self._run: WorkerRun | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None

    def on(
        self,
        topic: str,
        *,
        group: str = "",
        concurrency: int = 1,
        ordered: bool = False,
        broadcast: bool = False,
        start: Start | None = None,
        offsets: OffsetStore | GroupOffsets | None = None,
        tags: str = "",
        sql: str = "",
        deadline: Duration | None = None,
        retry_in: Duration | None = None,
        lease: Duration | None = None,
        batch_max: int = 32,
        batch_wait: Duration = "100ms",
    ) -> Callable[[H], H]:
        """Subscribe the decorated function to *topic* as *group*. TypeError and ValueError name
        what is wrong.

        - The annotation of its one parameter decides what it gets: ReceivedMessage, bytes, or a
          list of these: a batch of at most *batch_max* (1 to 256) that waits *batch_wait* (up to
          60 s).
        - *concurrency*: how many handlers run at a time, 1 to 1,000.
        - *ordered*: one at a time per message group, others side by side.
        - *deadline*: an async handler is cancelled then, and its message given back. The message of
          a plain function is given back, too, but its thread cannot be ended: its result is
          ignored, and its place stays occupied until it returns.
        - *retry_in*: the delay after an exception; None: by the group's retry policy.
        - *lease*: the visibility timeout, 1 s to 12 h; None: the group's.
        - *tags* (`A || B`) or *sql* filters messages.
        - *broadcast*: without a group, each worker gets all messages, as PulledMessage. It begins
          at *start*: `latest` (default), `earliest`, a time (RFC 3339, milliseconds since 1970 or a
          datetime) or offsets by queue. *offsets* keeps the places: a FileOffsets, GroupOffsets or
          an object with `load` and `save`; None: this process.
        """

        def subscribe(function: H) -> H:
            if self._run is not None:
                raise RuntimeError("the worker runs already; subscribe before it starts")
            options = check_options(
                read_handler(function, is_broadcast=broadcast),
                topic,
                group=group,
                concurrency=concurrency,
                ordered=ordered,
                broadcast=broadcast,
                start=start,
                offsets=offsets,
                tags=tags,
                sql=sql,
                deadline=deadline,
                retry_in=retry_in,
                lease=lease,
                batch_max=batch_max,
                batch_wait=batch_wait,
            )
            if group and any((other.topic, other.group) == (topic, group) for other in self._options):
                raise ValueError(
                    f"{topic} has a handler for {group} already; use another group, or a higher concurrency"
                )
            self._options.append(options)
            return function

        return subscribe

    def run(self) -> None:
        """Run until SIGTERM or Ctrl-C: the first one stops in order, the second one at once with
        SystemExit(128 + the signal's number), the third one as Python's default. Blocks. Outside
        the main thread, only `stop` ends it.
        """
        told: list[int] = []
        with signals_as_before():
            asyncio.run(self._run_until_told(told))
        if len(told) > 1:
            raise SystemExit(_STATUS_OF_SIGNALS + told[-1])

    async def serve(self) -> None:
        """Run until `stop`, or until cancelled: then at once. Raises the TernError of a
        subscription that can never receive, and ValueError without a handler.
        """
        if self._run is not None:
            raise RuntimeError("the worker runs already, or has run; make a new one")
        if not self._options:
            raise ValueError('the worker has no handler; add one with @worker.on("topic", group="group")')
        budget = FlowBudget(self._max_messages, self._max_bytes, len(self._options), RECEIVE_SIZE_MAX_BYTES)
        memory = WorkerMemory(budget)
        self._loop = asyncio.get_running_loop()
        self._subscriptions = [self._subscription(number, memory) for number in range(len(self._options))]
        self._run = WorkerRun(self._subscriptions, self.grace_ms)
        health = HealthPort(self.stats)
        try:
            if self.health_port is not None:
                await health.open(self.health_host, self.health_port)
            await self._run.run()
        finally:
            health.close()

    def stop(self, *, at_once: bool = False) -> None:
        """Stop in order: receive nothing more, let handlers finish within `grace`, release the
        rest. *at_once*: end handlers now; their messages are visible again. Any thread or signal
        handler may call it; without effect when the worker does not run.
        """
        run, loop = self._run, self._loop
        if run is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(run.force if at_once else run.stop)

    def stats(self) -> WorkerStats:
        """Return the counters of all subscriptions now."""
        if self._run is None:
            none = Counters()
            rows = tuple(snapshot(options.topic, options.group, none) for options in self._options)
            return WorkerStats(state="new", subscriptions=rows)
        return WorkerStats(
            state=self._run.state,
            problem=self._run.problem,
            subscriptions=tuple(each.stats() for each in self._subscriptions),
        )

    async def __aenter__(self) -> Self:
        self._serving = asyncio.get_running_loop().create_task(self.serve())
        await asyncio.sleep(0)
        if self._serving.done():
            await self._serving  # it cannot begin
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._serving is not None
        self.stop()
        await self._serving

    async def _run_until_told(self, told: list[int]) -> None:
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            told.append(number)
            self.stop(at_once=len(told) > 1)
            if len(told) > 1:
                # A handler that ignores its cancellation: the third one ends the process.
                for each in _STOPPING:
                    loop.remove_signal_handler(each)

        if threading.current_thread() is threading.main_thread():
            for number in _STOPPING:
                loop.add_signal_handler(number, stop, number)
        await self.serve()

    def _subscription(self, number: int, memory: WorkerMemory) -> Subscription | Broadcast:
        options = self._options[number]
        shared: dict[str, Any] = {
            "namespace": self._namespace,
            "policy": self._policy,
            "key_file": self._key_file,
            "ca_file": self._ca_file,
            "tags": options.tags,
            "sql": options.sql,
        }
        if options.is_broadcast:
            page_max = min(PAGE_MESSAGES_MAX, max(1, self._max_messages // (2 * len(self._options))))
            reader = BroadcastSource(
                self._endpoints,
                options.topic,
                start=options.start,
                offsets=options.offsets,
                max_messages=page_max,
                **shared,
            )
            return Broadcast(options, reader, memory, number, page_max)
        # The worker's memory bounds what is in flight, not the consumer.
        source = GroupSource(
            self._endpoints,
            options.topic,
            options.group,
            max_bytes=RECEIVE_SIZE_MAX_BYTES,
            wait_ms=WAIT_DEFAULT_MS,
            invisible_ms=options.lease_ms,
            in_flight_max=2 * self._max_messages,
            **shared,
        )
        return Subscription(options, source, memory, number)
