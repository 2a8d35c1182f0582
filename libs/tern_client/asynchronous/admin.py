"""The calls of Admin: topics, groups, producer groups, principals, broker groups, offsets, and what the cluster looks like."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tern_client.asynchronous.broker_groups import BrokerGroupCalls
from tern_client.asynchronous.dead_letters import DeadLetterCalls
from tern_client.asynchronous.principals import PrincipalCalls
from tern_client.asynchronous.queries import QueryCalls
from tern_client.asynchronous.topics import TopicCalls
from tern_client.asynchronous.transactions import ProducerGroupCalls
from tern_client.calls.documents import (
    commit_request,
    get_request,
    group_offsets_request,
    offsets_request,
    pull_request,
    read_document,
    read_group_offsets,
    read_offsets,
    read_page,
)
from tern_client.calls.memberships import assignments_request, locks_request, members_request
from tern_client.calls.models import QueueOffsets, RecordPage
from tern_client.calls.scheduled import ScheduledPage, read_scheduled, recall_request, scheduled_request
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.paths import CLUSTER_PATH


class Admin(TopicCalls, DeadLetterCalls, QueryCalls, ProducerGroupCalls, PrincipalCalls, BrokerGroupCalls):
    """Declares and inspects, and reads queues by offset. May be shared between tasks. Owns its connections."""

    __slots__ = ()

    async def offsets(self, topic: str) -> list[QueueOffsets]:
        """Min and max offset of every queue of *topic*."""
        return read_offsets(await self._call(offsets_request(topic)))

    async def group_offsets(self, group: str, topic: str) -> dict[str, int]:
        """The committed offset of every queue, written `broker-a:3`."""
        return read_group_offsets(await self._call(group_offsets_request(group, topic)))

    async def commit_offsets(
        self,
        group: str,
        topic: str,
        offsets: Mapping[str, int],
        expected: Mapping[str, int] | None = None,
        epochs: Mapping[str, int] | None = None,
    ) -> None:
        """Commit *offsets*; with *expected* only if those are committed now, else OffsetMoved; with the *epochs* of the queues' locks only if
        nobody else has locked them since, else QueueLockLost."""
        await self._call(commit_request(group, topic, offsets, expected, epochs))

    async def members(self, group: str, role: str = "consumer") -> dict[str, Any]:
        """Who is in *group*, what each said last, and where their subscriptions differ."""
        return read_document(await self._call(members_request(group, role)))

    async def assignments(self, group: str, topic: str, *, member: str = "", strategy: str = "") -> dict[str, Any]:
        """Which member of *group* reads which queues of *topic*; only *member*'s if given; by default as the members say."""
        return read_document(await self._call(assignments_request(group, topic, member=member, strategy=strategy)))

    async def locks(self, group: str, topic: str) -> dict[str, Any]:
        """Which queues of *topic* are locked, by which member, as of which epoch."""
        return read_document(await self._call(locks_request(group, topic)))

    async def scheduled(
        self, topic: str, *, begin_ms: int = 0, end_ms: int | None = None, limit: int = 100, cursor: str = ""
    ) -> ScheduledPage:
        """Messages of *topic* that wait for a delivery time in [*begin_ms*, *end_ms*), the next ones first, at most *limit*."""
        return read_scheduled(await self._call(scheduled_request(topic, begin_ms, end_ms, limit, cursor)))

    async def recall(self, topic: str, recall_handle: str) -> None:
        """Take back a message that waits: it is not delivered. AlreadyDelivered when it is too late, NotScheduled if it was recalled."""
        await self._call(recall_request(topic, recall_handle))

    async def cluster(self) -> dict[str, Any]:
        """What the cluster looks like from a proxy."""
        return read_document(await self._call(get_request(CLUSTER_PATH)))

    async def pull_records(
        self, topic: str, queue: str, offset: int, end_offset: int, *, max_bytes: int = RECEIVE_SIZE_MAX_BYTES
    ) -> AsyncIterator[RecordPage]:
        """Pages of records of *queue* (`broker-a:3`) from *offset* up to, not including, *end_offset*.

        Ends earlier when the queue does. OffsetExpired when *offset* is no longer kept.
        """
        while offset < end_offset:
            page = read_page(await self._call(pull_request(topic, queue, offset, end_offset, max_bytes)))
            if page.data:
                yield page
            if page.next_offset <= offset:
                return
            offset = page.next_offset
