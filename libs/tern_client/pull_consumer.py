"""PullConsumer: reads all queues of a topic by offset and keeps its own place. Async, and blocking
for threads.

Every pull consumer reads all messages: a broadcast. The async one waits at all queues at once; the
blocking one reads them in turn. Messages come in order within a queue.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Self

from tern_client.asynchronous.pulling import PullCalls
from tern_client.blocking.pulling import BlockingPullCalls
from tern_client.calls.pulling import GroupOffsets, OffsetStore, PulledMessage, PulledPage
from tern_client.closing import ClientClosed
from tern_client.running import ITERATING
from tern_client.transport.blocking_transport import BlockingTransport
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport

WAIT_DEFAULT_MS = 20_000
# Pages that the async consumer holds, beyond the one that it hands out.
PAGES_AHEAD_MAX = 8
# The longest wait of the blocking consumer at one queue before it reads the others.
WAIT_AT_QUEUE_MS = 500


class PullConsumer(PullCalls):
    """Reads all messages of a topic: `async for message in consumer`, then
    `await consumer.commit()`.

    - *offsets*: the store of places: MemoryOffsets (default), FileOffsets, GroupOffsets, or an
      object with `load` and `save`.
    - *start*: `earliest`, `latest` or `@time`, for queues without a place.
    - *tags* (`A || B`) or *sql* filters messages. *max_messages*: the most messages of one page
      (256). *wait_ms*: the wait of a long poll.
    - *endpoints*, *namespace*, *policy*, *key_file*, *ca_file*: as for the Producer.

    The loop has no end. `close` ends it with ClientClosed, and commits nothing.

    Example:

        import asyncio

        from tern_client import FileOffsets, Producer, PullConsumer


        async def main() -> None:
            async with Producer("http://127.0.0.1:8080") as producer:
                await producer.send("orders", b"order 1")
            places = FileOffsets("places.json")
            async with PullConsumer("http://127.0.0.1:8080", "orders", offsets=places) as consumer:
                async for message in consumer:
                    print(message.queue, message.offset, message.body)  # -> broker-a:0 0 b'order 1'
                    await consumer.commit()  # the next run begins behind this message
                    break


        asyncio.run(main())
    """

    __slots__ = ("_next", "_page", "_pages", "_pullers", "_wait_ms")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        *,
        offsets: OffsetStore | GroupOffsets | None = None,
        start: str = "earliest",
        tags: str = "",
        sql: str = "",
        max_messages: int = 256,
        wait_ms: int = WAIT_DEFAULT_MS,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
    ) -> None:
        super().__init__(
            endpoints,
            topic,
            offsets=offsets,
            start=start,
            tags=tags,
            sql=sql,
            max_messages=max_messages,
            namespace=namespace,
            policy=policy,
            key_file=key_file,
            ca_file=ca_file,
            transport=transport,
        )
        self._wait_ms = wait_ms
        self._pages: asyncio.Queue[tuple[str, PulledPage | BaseException]] = asyncio.Queue(PAGES_AHEAD_MAX)
        # The page that is handed out, and the index of its next message.
        self._page: PulledPage | None = None
        self._next = 0
        self._pullers: dict[str, asyncio.Task[None]] = {}

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PulledMessage:
        self._check_open()
        while self._page is None or self._next >= len(self._page.messages):
            await self._take_page()
        message = self._page.messages[self._next]
        self._places.hand(self._page, message.queue, self._next)
        self._next += 1
        return message

    async def _take_page(self) -> None:
        """Take the next page of any queue. Returns without one when it is time to look for new
        queues.
        """
        await self._look_for_queues()
        try:
            left_s = max(0.0, self._queues_due_ms - now_ms()) / 1_000
            queue, page = await asyncio.wait_for(self._pages.get(), left_s)
        except TimeoutError:
            return
        self._check_open()
        if isinstance(page, BaseException):
            # The queue is read again when the program continues after this error.
            self._pullers.pop(queue, None)
            self._queues_due_ms = 0.0
            raise page
        self._page, self._next = page, 0
        if not page.messages:
            self._places.hand(page, queue, -1)

    async def _finish(self) -> None:
        pullers = list(self._pullers.values())
        for task in pullers:
            task.cancel()
        await asyncio.gather(*pullers, return_exceptions=True)
        while not self._pages.empty():
            self._pages.get_nowait()
        # End the loop that waits.
        self._pages.put_nowait(("", ClientClosed(client=type(self).__name__)))

    async def _look_for_queues(self) -> None:
        if now_ms() < self._queues_due_ms:
            return
        for queue in await self._find_queues():
            if queue not in self._pullers:
                self._pullers[queue] = asyncio.get_running_loop().create_task(self._pull(queue))

    async def _pull(self, queue: str) -> None:
        """Read pages of *queue* while the consumer is open. A final error is raised where messages
        are taken.
        """
        try:
            while True:
                await self._pages.put((queue, await self._next_page(queue, self._wait_ms)))
        except Exception as error:
            await self._pages.put((queue, error))


class BlockingPullConsumer(BlockingPullCalls):
    """Reads all messages of a topic: `for message in consumer`, then `consumer.commit()`. The
    arguments are those of PullConsumer, without *wait_ms*.

    Threads do not share a consumer, but any thread may call `stop`. A plain loop waits without end,
    `until_idle` ends without new messages, and `stop` ends either. The next loop continues where
    the last one ended.

    Example:

        from tern_client import BlockingProducer, BlockingPullConsumer, FileOffsets

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
        places = FileOffsets("places.json")
        with BlockingPullConsumer("http://127.0.0.1:8080", "orders", offsets=places) as consumer:
            for message in consumer.until_idle():
                print(message.queue, message.offset, message.body)  # -> broker-a:0 0 b'order 1'
            consumer.commit()  # the next run begins behind this message
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        *,
        offsets: OffsetStore | GroupOffsets | None = None,
        start: str = "earliest",
        tags: str = "",
        sql: str = "",
        max_messages: int = 256,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        super().__init__(
            endpoints,
            topic,
            offsets=offsets,
            start=start,
            tags=tags,
            sql=sql,
            max_messages=max_messages,
            namespace=namespace,
            policy=policy,
            key_file=key_file,
            ca_file=ca_file,
            transport=transport,
        )
        self._is_stopped = False
        self._queues: list[str] = []

    def __iter__(self) -> Iterator[PulledMessage]:
        """Iterate over messages until `stop`."""
        return self._iterate(None)

    def until_idle(self, idle_ms: int = 0) -> Iterator[PulledMessage]:
        """Iterate over messages until none has come for *idle_ms*, or until `stop`."""
        return self._iterate(idle_ms)

    def stop(self) -> None:
        """End the loop for good: after the message in hand, or within half a second where it waits.
        Any thread or signal handler may call it.
        """
        self._is_stopped = True

    def _iterate(self, idle_ms: int | None) -> Iterator[PulledMessage]:
        loop = object()
        ITERATING[loop] = self
        try:
            yield from self._rounds(idle_ms)
        finally:
            del ITERATING[loop]

    def _rounds(self, idle_ms: int | None) -> Iterator[PulledMessage]:
        until_ms = now_ms() + (idle_ms or 0)
        found = 1
        while not self._is_stopped:
            if now_ms() >= self._queues_due_ms:
                self._queues = self._find_queues()
            # Wait at one queue in each round, when the round before found nothing.
            wait_ms = WAIT_AT_QUEUE_MS if idle_ms is None else min(WAIT_AT_QUEUE_MS, int(until_ms - now_ms()))
            wait_ms = 0 if found else max(wait_ms, 0)
            found, began_ms = 0, now_ms()
            for number, queue in enumerate(self._queues):
                page = self._next_page(queue, wait_ms if number == 0 else 0)
                found += len(page.messages) or int(page.next_offset < page.max_offset)
                for at, message in enumerate(page.messages):
                    self._check_open()
                    if self._is_stopped:
                        return
                    self._places.hand(page, queue, at)
                    yield message
                if not page.messages:
                    self._places.hand(page, queue, -1)
            # Wait at another queue next.
            self._queues = self._queues[1:] + self._queues[:1]
            if found:
                until_ms = now_ms() + (idle_ms or 0)
            elif idle_ms is not None and now_ms() >= until_ms:
                return
            elif (left_ms := began_ms + wait_ms - now_ms()) > 0:
                time.sleep(left_ms / 1000)  # a proxy without room does not wait, and there may be no queue yet
