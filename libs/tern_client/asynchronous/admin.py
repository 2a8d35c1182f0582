"""Admin, with its calls about offsets, members, messages that wait for their time, and the
cluster.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from tern_client.asynchronous.broker_groups import BrokerGroupCalls
from tern_client.asynchronous.dead_letters import DeadLetterCalls
from tern_client.asynchronous.principals import PrincipalCalls
from tern_client.asynchronous.publications import PublicationCalls
from tern_client.asynchronous.queries import QueryCalls
from tern_client.asynchronous.reads import ReadCalls
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


class Admin(
    TopicCalls,
    DeadLetterCalls,
    QueryCalls,
    ReadCalls,
    PublicationCalls,
    ProducerGroupCalls,
    PrincipalCalls,
    BrokerGroupCalls,
):
    """Declares, inspects and changes topics, groups and transactions; reads queues by offset.

    It owns its connections, and tasks may share it. Its arguments are those of a producer. Errors
    are TernError; TopicNotFound and GroupNotFound name what is missing.

    Example:

        import asyncio

        from tern_client import Admin, Producer


        async def main() -> None:
            endpoint = "http://127.0.0.1:8080"
            async with Admin(endpoint) as admin, Producer(endpoint) as producer:
                topic = await admin.create_topic("orders", type="MIXED")
                await admin.create_group("billing", max_attempts=5)
                print(topic["type"])  # -> MIXED
                await producer.send("orders", b"order 1", keys=["1"])
                found = await admin.find("orders", "1")
                print(found["messages"][0]["body"])  # -> b'order 1'
                moved = await admin.seek("billing", "orders", "latest")
                print(moved[0]["queue"], moved[0]["after"])  # -> broker-a:0 1


        asyncio.run(main())
    """

    __slots__ = ()

    async def offsets(self, topic: str) -> list[QueueOffsets]:
        """Return the least and the next offset of every queue of *topic*."""
        return read_offsets(await self._call(offsets_request(topic)))

    async def group_offsets(self, group: str, topic: str) -> dict[str, int]:
        """Return the committed offset of every queue (`broker-a:3`)."""
        return read_group_offsets(await self._call(group_offsets_request(group, topic)))

    async def commit_offsets(
        self,
        group: str,
        topic: str,
        offsets: Mapping[str, int],
        expected: Mapping[str, int | None] | None = None,
        epochs: Mapping[str, int] | None = None,
    ) -> None:
        """Commit *offsets* of *group* in *topic*, by queue (`broker-a:3`).

        - *expected*: commit only if these are the committed offsets now, None where the group has
          not begun, else OffsetMoved.
        - *epochs*: commit only if no other member has locked the queues since these epochs of their
          locks, else QueueLockLost.
        """
        await self._call(commit_request(group, topic, offsets, expected, epochs))

    async def members(self, group: str, role: str = "consumer") -> dict[str, Any]:
        """Return the members of *group*, the last heartbeat of each, and the topics in which their
        subscriptions differ. *role*: consumer or producer.
        """
        return read_document(await self._call(members_request(group, role)))

    async def assignments(self, group: str, topic: str, *, member: str = "", strategy: str = "") -> dict[str, Any]:
        """Return which member of *group* reads which queues of *topic*; with *member*, only its
        queues. *strategy*: by default the members'.
        """
        return read_document(await self._call(assignments_request(group, topic, member=member, strategy=strategy)))

    async def locks(self, group: str, topic: str) -> dict[str, Any]:
        """Return the locked queues of *topic*, each with its member and epoch."""
        return read_document(await self._call(locks_request(group, topic)))

    async def scheduled(
        self, topic: str, *, begin_ms: int = 0, end_ms: int | None = None, limit: int = 100, cursor: str = ""
    ) -> ScheduledPage:
        """Return messages of *topic* with a delivery time in [*begin_ms*, *end_ms*), the next ones
        first; at most *limit*.
        """
        return read_scheduled(await self._call(scheduled_request(topic, begin_ms, end_ms, limit, cursor)))

    async def recall(self, topic: str, recall_handle: str) -> None:
        """Take back a message that waits for its delivery time. AlreadyDelivered when it is too
        late, NotScheduled after a first recall.
        """
        await self._call(recall_request(topic, recall_handle))

    async def cluster(self) -> dict[str, Any]:
        """Return the state of the cluster, from the view of one proxy."""
        return read_document(await self._call(get_request(CLUSTER_PATH)))

    async def pull_records(
        self, topic: str, queue: str, offset: int, end_offset: int, *, max_bytes: int = RECEIVE_SIZE_MAX_BYTES
    ) -> AsyncIterator[RecordPage]:
        """Iterate over pages of records of *queue* (`broker-a:3`) from *offset* up to, not
        including, *end_offset*.

        Ends at the end of the queue. OffsetExpired when retention has dropped *offset*.
        """
        while offset < end_offset:
            page = read_page(await self._call(pull_request(topic, queue, offset, end_offset, max_bytes)))
            if page.data:
                yield page
            if page.next_offset <= offset:
                return
            offset = page.next_offset
