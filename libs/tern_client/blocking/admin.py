# Made by `make blocking` from the file of this name in asynchronous/. Change that one.
"""BlockingAdmin, with its calls about offsets, members, messages that wait for their time, and the
cluster.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tern_client.blocking.broker_groups import BlockingBrokerGroupCalls
from tern_client.blocking.dead_letters import BlockingDeadLetterCalls
from tern_client.blocking.principals import BlockingPrincipalCalls
from tern_client.blocking.publications import BlockingPublicationCalls
from tern_client.blocking.queries import BlockingQueryCalls
from tern_client.blocking.reads import BlockingReadCalls
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
    BlockingReadCalls,
    BlockingPublicationCalls,
    BlockingProducerGroupCalls,
    BlockingPrincipalCalls,
    BlockingBrokerGroupCalls,
):
    """Declares, inspects and changes topics, groups and transactions; reads queues by offset.

    It owns its connections, and threads may share it. Its arguments are those of a producer. Errors
    are TernError; TopicNotFound and GroupNotFound name what is missing.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer


        def main() -> None:
            endpoint = "http://127.0.0.1:8080"
            with BlockingAdmin(endpoint) as admin, BlockingProducer(endpoint) as producer:
                topic = admin.create_topic("orders", type="MIXED")
                admin.create_group("billing", max_attempts=5)
                print(topic["type"])  # -> MIXED
                producer.send("orders", b"order 1", keys=["1"])
                found = admin.find("orders", "1")
                print(found["messages"][0]["body"])  # -> b'order 1'
                moved = admin.seek("billing", "orders", "latest")
                print(moved[0]["queue"], moved[0]["after"])  # -> broker-a:0 1


        main()
    """

    def offsets(self, topic: str) -> list[QueueOffsets]:
        """Return the least and the next offset of every queue of *topic*."""
        return read_offsets(self._call(offsets_request(topic)))

    def group_offsets(self, group: str, topic: str) -> dict[str, int]:
        """Return the committed offset of every queue (`broker-a:3`)."""
        return read_group_offsets(self._call(group_offsets_request(group, topic)))

    def commit_offsets(
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
        self._call(commit_request(group, topic, offsets, expected, epochs))

    def members(self, group: str, role: str = "consumer") -> dict[str, Any]:
        """Return the members of *group*, the last heartbeat of each, and the topics in which their
        subscriptions differ. *role*: consumer or producer.
        """
        return read_document(self._call(members_request(group, role)))

    def assignments(self, group: str, topic: str, *, member: str = "", strategy: str = "") -> dict[str, Any]:
        """Return which member of *group* reads which queues of *topic*; with *member*, only its
        queues. *strategy*: by default the members'.
        """
        return read_document(self._call(assignments_request(group, topic, member=member, strategy=strategy)))

    def locks(self, group: str, topic: str) -> dict[str, Any]:
        """Return the locked queues of *topic*, each with its member and epoch."""
        return read_document(self._call(locks_request(group, topic)))

    def scheduled(
        self, topic: str, *, begin_ms: int = 0, end_ms: int | None = None, limit: int = 100, cursor: str = ""
    ) -> ScheduledPage:
        """Return messages of *topic* with a delivery time in [*begin_ms*, *end_ms*), the next ones
        first; at most *limit*.
        """
        return read_scheduled(self._call(scheduled_request(topic, begin_ms, end_ms, limit, cursor)))

    def recall(self, topic: str, recall_handle: str) -> None:
        """Take back a message that waits for its delivery time. AlreadyDelivered when it is too
        late, NotScheduled after a first recall.
        """
        self._call(recall_request(topic, recall_handle))

    def cluster(self) -> dict[str, Any]:
        """Return the state of the cluster, from the view of one proxy."""
        return read_document(self._call(get_request(CLUSTER_PATH)))

    def pull_records(
        self, topic: str, queue: str, offset: int, end_offset: int, *, max_bytes: int = RECEIVE_SIZE_MAX_BYTES
    ) -> Iterator[RecordPage]:
        """Iterate over pages of records of *queue* (`broker-a:3`) from *offset* up to, not
        including, *end_offset*.

        Ends at the end of the queue. OffsetExpired when retention has dropped *offset*.
        """
        while offset < end_offset:
            page = read_page(self._call(pull_request(topic, queue, offset, end_offset, max_bytes)))
            if page.data:
                yield page
            if page.next_offset <= offset:
                return
            offset = page.next_offset
