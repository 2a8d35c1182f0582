"""Calls of a pull consumer: the queues of its topic, their pages, and its places in them."""

from collections.abc import Sequence

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.documents import (
    commit_request,
    group_offsets_request,
    offsets_request,
    read_group_offsets,
    read_offsets,
)
from tern_client.calls.pulling import (
    QUEUES_PERIOD_MS,
    GroupOffsets,
    MemoryOffsets,
    OffsetStore,
    Places,
    PulledPage,
    PullSettings,
    pull,
)
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import GroupNotFound, OffsetExpired


class PullCalls(AsyncClient):
    """Calls of pull consumers about their topic. Owner of the places."""

    __slots__ = ("_has_begun", "_offsets", "_places", "_queues_due_ms", "_settings")

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
        transport: Transport | None = None,
    ) -> None:
        """The arguments are those of PullConsumer."""
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._settings = PullSettings(topic=topic, start=start, tags=tags, sql=sql, max_messages=max_messages)
        self._offsets: OffsetStore | GroupOffsets = MemoryOffsets() if offsets is None else offsets
        self._places = Places()
        self._has_begun = False
        self._queues_due_ms = 0.0

    @property
    def skipped(self) -> int:
        """The number of messages that retention dropped before this consumer read them."""
        return self._places.skipped

    async def commit(self) -> None:
        """Save the places of all messages that were handed out. The next run begins behind them."""
        self._check_open()
        handed = dict(self._places.handed)
        if not isinstance(self._offsets, GroupOffsets):
            self._offsets.save(handed)
        elif handed:
            await self._call(commit_request(self._offsets.group, self._settings.topic, handed))

    async def _load(self) -> dict[str, int]:
        if not isinstance(self._offsets, GroupOffsets):
            return self._offsets.load()
        group, topic = self._offsets.group, self._settings.topic
        try:
            return read_group_offsets(await self._call(group_offsets_request(group, topic)))
        except GroupNotFound:
            await self._call(self._offsets.request())
            return {}

    async def _find_queues(self) -> list[str]:
        """Return all queues of the topic. The next search is due in QUEUES_PERIOD_MS."""
        queues = [row.queue for row in read_offsets(await self._call(offsets_request(self._settings.topic)))]
        if not self._has_begun:
            self._places.begin(await self._load(), queues)
            self._has_begun = True
        self._queues_due_ms = now_ms() + QUEUES_PERIOD_MS
        return queues

    async def _next_page(self, queue: str, wait_ms: int) -> PulledPage:
        """Return the next page of *queue*; the proxy waits up to *wait_ms* for a message. Continues
        with the oldest message when the place was dropped.
        """
        while True:
            try:
                request = self._settings.request(queue, self._places.asked.get(queue), wait_ms)
                page = await self._drive(pull(self._course, request, now_ms()))
            except OffsetExpired as error:
                self._places.expired(queue, int(error.fields["min_offset"]))
                continue
            self._places.asked[queue] = page.next_offset
            return page
