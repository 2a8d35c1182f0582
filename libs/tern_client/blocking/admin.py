# Made from libs/tern_client/asynchronous/admin.py by `make blocking`: change that file, not this one.
"""The calls of BlockingAdmin: topics, groups, producer groups, principals, broker groups, offsets, and what the cluster looks like."""

from collections.abc import Iterator, Mapping
from typing import Any

from tern_client.blocking.broker_groups import BlockingBrokerGroupCalls
from tern_client.blocking.dead_letters import BlockingDeadLetterCalls
from tern_client.blocking.principals import BlockingPrincipalCalls
from tern_client.blocking.queries import BlockingQueryCalls
from tern_client.blocking.topics import BlockingTopicCalls
from tern_client.blocking.transactions import BlockingProducerGroupCalls
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


class BlockingAdmin(
    BlockingTopicCalls,
    BlockingDeadLetterCalls,
    BlockingQueryCalls,
    BlockingProducerGroupCalls,
    BlockingPrincipalCalls,
    BlockingBrokerGroupCalls,
):
    """Declares and inspects, and reads queues by offset. May be shared between threads. Owns its connections."""

    def offsets(self, topic: str) -> list[QueueOffsets]:
        """Min and max offset of every queue of *topic*."""
        return read_offsets(self._call(offsets_request(topic)))

    def group_offsets(self, group: str, topic: str) -> dict[str, int]:
        """The committed offset of every queue, written `broker-a:3`."""
        return read_group_offsets(self._call(group_offsets_request(group, topic)))

    def commit_offsets(
        self,
        group: str,
        topic: str,
        offsets: Mapping[str, int],
        expected: Mapping[str, int] | None = None,
        epochs: Mapping[str, int] | None = None,
    ) -> None:
        """Commit *offsets*; with *expected* only if those are committed now, else OffsetMoved; with the *epochs* of the queues' locks only if
        nobody else has locked them since, else QueueLockLost."""
        self._call(commit_request(group, topic, offsets, expected, epochs))

    def members(self, group: str, role: str = "consumer") -> dict[str, Any]:
        """Who is in *group*, what each said last, and where their subscriptions differ."""
        return read_document(self._call(members_request(group, role)))

    def assignments(self, group: str, topic: str, *, member: str = "", strategy: str = "") -> dict[str, Any]:
        """Which member of *group* reads which queues of *topic*; only *member*'s if given; by default as the members say."""
        return read_document(self._call(assignments_request(group, topic, member=member, strategy=strategy)))

    def locks(self, group: str, topic: str) -> dict[str, Any]:
        """Which queues of *topic* are locked, by which member, as of which epoch."""
        return read_document(self._call(locks_request(group, topic)))

    def scheduled(
        self, topic: str, *, begin_ms: int = 0, end_ms: int | None = None, limit: int = 100, cursor: str = ""
    ) -> ScheduledPage:
        """Messages of *topic* that wait for a delivery time in [*begin_ms*, *end_ms*), the next ones first, at most *limit*."""
        return read_scheduled(self._call(scheduled_request(topic, begin_ms, end_ms, limit, cursor)))

    def recall(self, topic: str, recall_handle: str) -> None:
        """Take back a message that waits: it is not delivered. AlreadyDelivered when it is too late, NotScheduled if it was recalled."""
        self._call(recall_request(topic, recall_handle))

    def cluster(self) -> dict[str, Any]:
        """What the cluster looks like from a proxy."""
        return read_document(self._call(get_request(CLUSTER_PATH)))

    def pull_records(
        self, topic: str, queue: str, offset: int, end_offset: int, *, max_bytes: int = RECEIVE_SIZE_MAX_BYTES
    ) -> Iterator[RecordPage]:
        """Pages of records of *queue* (`broker-a:3`) from *offset* up to, not including, *end_offset*.

        Ends earlier when the queue does. OffsetExpired when *offset* is no longer kept.
        """
        while offset < end_offset:
            page = read_page(self._call(pull_request(topic, queue, offset, end_offset, max_bytes)))
            if page.data:
                yield page
            if page.next_offset <= offset:
                return
            offset = page.next_offset
