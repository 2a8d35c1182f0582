"""The blocking producer and admin, for threads, Spark executors and scripts: the same decisions as the async ones in another shell."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tern_client.calls.broker_groups import BlockingBrokerGroupCalls
from tern_client.calls.dead_letters import BlockingDeadLetterCalls
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
from tern_client.calls.models import BatchOutcome, OutgoingMessage, QueueOffsets, RecordPage, SendReceipt
from tern_client.calls.principals import BlockingPrincipalCalls
from tern_client.calls.queries import BlockingQueryCalls
from tern_client.calls.requesting import BlockingRequestCalls
from tern_client.calls.scheduled import ScheduledPage, read_scheduled, recall_request, scheduled_request
from tern_client.calls.sending import none_stored, send_many, send_one, unique_keys, with_key
from tern_client.calls.topics import BlockingTopicCalls
from tern_client.calls.turns import TurnNotReached
from tern_client.transactions.calls import BlockingProducerGroupCalls
from tern_client.transport.blocking_transport import BlockingTransport
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import now_ms
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES
from tern_wire.paths import CLUSTER_PATH


class BlockingProducer(BlockingRequestCalls):
    """Sends messages; may be shared between threads. Keys, errors and the order of message groups as the async Producer's, after `close` too.

    Threads that send to one message group take turns, in the order in which they call.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        idempotent: bool = True,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._keys = unique_keys(os.urandom(8).hex()) if idempotent else None

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: str = "",
        idempotency_key: str = "",
        message_group: str = "",
        delay: str | int | timedelta | None = None,
        deliver_at: str | int | datetime | None = None,
        delay_level: int | None = None,
    ) -> SendReceipt:
        """Send one message; returns when it is durable on a majority. MessageTooLarge for a body over 4 MiB."""
        message = OutgoingMessage(
            body=body,
            tag=tag,
            keys=keys,
            properties=properties or {},
            content_type=content_type,
            queue=queue,
            idempotency_key=idempotency_key,
            message_group=message_group,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
        )
        return self.send_message(topic, message)

    def send_message(self, topic: str, message: OutgoingMessage) -> SendReceipt:
        """As `send`, with the message as one value."""
        keyed = with_key(message, self._keys)
        if not keyed.message_group:
            return self._drive(send_one(self._course, topic, keyed, now_ms()))
        return self._drive_in_turn(topic, [keyed], lambda: send_one(self._course, topic, keyed, now_ms()))

    def send_batch(self, topic: str, messages: Sequence[OutgoingMessage]) -> BatchOutcome:
        """Send many messages, in as few requests as fit; what fails for now is repeated, each message once."""
        keyed = [with_key(message, self._keys) for message in messages]
        try:
            return self._drive_in_turn(topic, keyed, lambda: send_many(self._course, topic, keyed, now_ms()))
        except TurnNotReached as error:
            return none_stored(len(keyed), error)


class BlockingAdmin(
    BlockingTopicCalls,
    BlockingDeadLetterCalls,
    BlockingQueryCalls,
    BlockingProducerGroupCalls,
    BlockingPrincipalCalls,
    BlockingBrokerGroupCalls,
):
    """Declares and inspects, as the async Admin; and reads queues by offset. May be shared between threads."""

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
