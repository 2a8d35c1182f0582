"""PullConsumer: all queues of a topic, read by offset, for readers that keep their own place. Async, and blocking for threads.

Every such consumer reads everything: that is what broadcast means. The async one waits at all queues at once; the blocking one looks at
them in turn. Messages come in order within a queue.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Self

from tern_client.calls.documents import (
    commit_request,
    group_offsets_request,
    offsets_request,
    read_group_offsets,
    read_offsets,
)
from tern_client.calls.pulling import (
    GroupOffsets,
    MemoryOffsets,
    OffsetStore,
    Places,
    PulledMessage,
    PulledPage,
    PullSettings,
    read_pulled,
)
from tern_client.client import AsyncClient, BlockingClient, ClientClosed
from tern_client.running import ITERATING
from tern_client.transport.blocking_transport import BlockingTransport
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport, now_ms
from tern_wire.errors import GroupNotFound, OffsetExpired

WAIT_DEFAULT_MS = 20_000
# A topic that grows has new queues; its readers see them after this.
QUEUES_PERIOD_MS = 30_000
# Pages that the async consumer holds beyond the one that it hands out.
PAGES_AHEAD_MAX = 8
# The blocking consumer waits so long at one queue before it looks at the others.
WAIT_AT_QUEUE_MS = 500


class PullConsumer(AsyncClient):
    """`async for message in consumer`, then `await consumer.commit()`. Owns its connections, places and the pages it holds.

    *offsets*: where places are kept (MemoryOffsets, FileOffsets, GroupOffsets). *start*: `earliest`, `latest` or `@time`, for queues without a
    place. Iterating never ends by itself; `close` ends it with ClientClosed, and commits nothing.
    """

    __slots__ = (
        *("_begun", "_next", "_offsets", "_page", "_pages", "_places", "_pullers"),
        *("_queues_due_ms", "_settings", "_wait_ms"),
    )

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
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._settings = PullSettings(topic=topic, start=start, tags=tags, sql=sql, max_messages=max_messages)
        self._offsets: OffsetStore | GroupOffsets = MemoryOffsets() if offsets is None else offsets
        self._wait_ms = wait_ms
        self._places = Places()
        self._begun = False
        self._pages: asyncio.Queue[tuple[str, PulledPage | BaseException]] = asyncio.Queue(PAGES_AHEAD_MAX)
        # The page that is handed out, and which of its messages is next.
        self._page: PulledPage | None = None
        self._next = 0
        self._pullers: dict[str, asyncio.Task[None]] = {}
        self._queues_due_ms = 0.0

    @property
    def skipped(self) -> int:
        """Messages that retention dropped before this consumer came to them."""
        return self._places.skipped

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
        """The next page of any queue; returns without one when it is time to look for new queues."""
        await self._look_for_queues()
        try:
            left_s = max(0.0, self._queues_due_ms - now_ms()) / 1_000
            queue, page = await asyncio.wait_for(self._pages.get(), left_s)
        except TimeoutError:
            return
        self._check_open()
        if isinstance(page, BaseException):
            # Asked again by whoever goes on after this.
            self._pullers.pop(queue, None)
            self._queues_due_ms = 0.0
            raise page
        self._page, self._next = page, 0
        if not page.messages:
            self._places.hand(page, queue, -1)

    async def commit(self) -> None:
        """Keep the places of everything that was handed out."""
        self._check_open()
        handed = dict(self._places.handed)
        if not isinstance(self._offsets, GroupOffsets):
            self._offsets.save(handed)
        elif handed:
            await self._call(commit_request(self._offsets.group, self._settings.topic, handed))

    async def _finish(self) -> None:
        pullers = list(self._pullers.values())
        for task in pullers:
            task.cancel()
        await asyncio.gather(*pullers, return_exceptions=True)
        while not self._pages.empty():
            self._pages.get_nowait()
        # Whoever waits in the loop is told.
        self._pages.put_nowait(("", ClientClosed(client=type(self).__name__)))

    async def _look_for_queues(self) -> None:
        if now_ms() < self._queues_due_ms:
            return
        queues = [row.queue for row in read_offsets(await self._call(offsets_request(self._settings.topic)))]
        if not self._begun:
            self._places.begin(await self._load(), queues)
            self._begun = True
        for queue in queues:
            if queue not in self._pullers:
                self._pullers[queue] = asyncio.get_running_loop().create_task(self._pull(queue))
        self._queues_due_ms = now_ms() + QUEUES_PERIOD_MS

    async def _load(self) -> dict[str, int]:
        if not isinstance(self._offsets, GroupOffsets):
            return self._offsets.load()
        group, topic = self._offsets.group, self._settings.topic
        try:
            return read_group_offsets(await self._call(group_offsets_request(group, topic)))
        except GroupNotFound:
            await self._call(self._offsets.request())
            return {}

    async def _pull(self, queue: str) -> None:
        """Pages of one queue, for as long as this is open. What fails for good is raised where messages are taken."""
        try:
            while True:
                try:
                    request = self._settings.request(queue, self._places.asked.get(queue), self._wait_ms)
                    page = read_pulled(await self._call(request))
                except OffsetExpired as error:
                    self._places.expired(queue, int(error.fields["min_offset"]))
                    continue
                self._places.asked[queue] = page.next_offset
                await self._pages.put((queue, page))
        except Exception as error:
            await self._pages.put((queue, error))


class BlockingPullConsumer(BlockingClient):
    """As PullConsumer, for threads; not to be shared between them, but for `stop`. A loop over it waits without end; `until_idle` ends when
    nothing comes, `stop` ends either, and a loop anew goes on where the last one was."""

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
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._settings = PullSettings(topic=topic, start=start, tags=tags, sql=sql, max_messages=max_messages)
        self._offsets: OffsetStore | GroupOffsets = MemoryOffsets() if offsets is None else offsets
        self._is_stopped = False
        self._places = Places()
        self._begun = False
        self._queues: list[str] = []
        self._queues_due_ms = 0.0

    @property
    def skipped(self) -> int:
        """Messages that retention dropped before this consumer came to them."""
        return self._places.skipped

    def __iter__(self) -> Iterator[PulledMessage]:
        """Messages, without end, until `stop`."""
        return self._iterate(None)

    def until_idle(self, idle_ms: int = 0) -> Iterator[PulledMessage]:
        """As a loop over this, but it ends once nothing has come for *idle_ms*."""
        return self._iterate(idle_ms)

    def stop(self) -> None:
        """End the loop, for good: after the message in hand, or within half a second where it waits. From any thread or signal handler."""
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
            self._look_for_queues()
            # Waits at one queue a round, when the round before brought nothing.
            wait_ms = WAIT_AT_QUEUE_MS if idle_ms is None else min(WAIT_AT_QUEUE_MS, int(until_ms - now_ms()))
            wait_ms = 0 if found else max(wait_ms, 0)
            found, began_ms = 0, now_ms()
            for number, queue in enumerate(self._queues):
                page = self._pull(queue, wait_ms if number == 0 else 0)
                found += len(page.messages) or int(page.next_offset < page.max_offset)
                for at, message in enumerate(page.messages):
                    self._check_open()
                    if self._is_stopped:
                        return
                    self._places.hand(page, queue, at)
                    yield message
                if not page.messages:
                    self._places.hand(page, queue, -1)
            # Another one is waited at next.
            self._queues = self._queues[1:] + self._queues[:1]
            if found:
                until_ms = now_ms() + (idle_ms or 0)
            elif idle_ms is not None and now_ms() >= until_ms:
                return
            elif (left_ms := began_ms + wait_ms - now_ms()) > 0:
                time.sleep(left_ms / 1000)  # a proxy without room does not wait, and there may be no queue yet

    def commit(self) -> None:
        """Keep the places of everything that was handed out."""
        self._check_open()
        handed = dict(self._places.handed)
        if not isinstance(self._offsets, GroupOffsets):
            self._offsets.save(handed)
        elif handed:
            self._call(commit_request(self._offsets.group, self._settings.topic, handed))

    def _look_for_queues(self) -> None:
        if now_ms() < self._queues_due_ms:
            return
        self._queues = [row.queue for row in read_offsets(self._call(offsets_request(self._settings.topic)))]
        if not self._begun:
            self._places.begin(self._load(), self._queues)
            self._begun = True
        self._queues_due_ms = now_ms() + QUEUES_PERIOD_MS

    def _load(self) -> dict[str, int]:
        if not isinstance(self._offsets, GroupOffsets):
            return self._offsets.load()
        group, topic = self._offsets.group, self._settings.topic
        try:
            return read_group_offsets(self._call(group_offsets_request(group, topic)))
        except GroupNotFound:
            self._call(self._offsets.request())
            return {}

    def _pull(self, queue: str, wait_ms: int) -> PulledPage:
        while True:
            try:
                page = read_pulled(self._call(self._settings.request(queue, self._places.asked.get(queue), wait_ms)))
            except OffsetExpired as error:
                self._places.expired(queue, int(error.fields["min_offset"]))
                continue
            self._places.asked[queue] = page.next_offset
            return page
