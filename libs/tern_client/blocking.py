"""The blocking clients, for threads, Spark executors and scripts: the same decisions as the async ones in another shell."""

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tern_client.blocking_transport import BlockingCaller, BlockingTransport
from tern_client.calling import call
from tern_client.documents import (
    Settle,
    commit_request,
    declare_group_request,
    declare_topic_request,
    get_request,
    offsets_request,
    pull_request,
    read_document,
    read_offsets,
    read_page,
    read_received,
    read_settled,
    receive_request,
    settle_request,
)
from tern_client.exchange import Request, Response
from tern_client.models import BatchOutcome, OutgoingMessage, QueueOffsets, ReceivedMessage, RecordPage, SendReceipt
from tern_client.producer import unique_keys
from tern_client.retrying import RetryPolicy
from tern_client.sending import send_many, send_one, with_key
from tern_client.settling import PendingSettles
from tern_client.transport import now_ms
from tern_wire.errors import TernError
from tern_wire.limits import (
    INVISIBLE_DEFAULT_MS,
    QUEUES_PER_TOPIC_DEFAULT,
    RECEIVE_SIZE_DEFAULT_BYTES,
    RECEIVE_SIZE_MAX_BYTES,
)
from tern_wire.names import check_group, check_topic
from tern_wire.paths import CLUSTER_PATH, group_offsets_path


class _Client:
    """Connections and the calls over them. May be shared between threads unless a subclass says otherwise."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        policy: RetryPolicy | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        self._caller = BlockingCaller(endpoints, policy=policy, transport=transport)

    def close(self) -> None:
        """Close all connections."""
        self._caller.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, request: Request) -> Response:
        return self._caller.drive(call(self._caller.course, request, now_ms()))


class BlockingProducer(_Client):
    """Sends messages; may be shared between threads. Keys and errors as the async Producer's."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        idempotent: bool = True,
        policy: RetryPolicy | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        super().__init__(endpoints, policy=policy, transport=transport)
        self._keys = unique_keys() if idempotent else None

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
    ) -> SendReceipt:
        """Send one message; returns when it is durable on a majority."""
        message = OutgoingMessage(
            body=body,
            tag=tag,
            keys=keys,
            properties=properties or {},
            content_type=content_type,
            queue=queue,
            idempotency_key=idempotency_key,
        )
        return self.send_message(topic, message)

    def send_message(self, topic: str, message: OutgoingMessage) -> SendReceipt:
        """As `send`, with the message as one value."""
        return self._caller.drive(send_one(self._caller.course, topic, with_key(message, self._keys), now_ms()))

    def send_batch(self, topic: str, messages: Sequence[OutgoingMessage]) -> BatchOutcome:
        """Send many messages, in as few requests as fit; what fails for now is repeated, each message once."""
        keyed = [with_key(message, self._keys) for message in messages]
        return self._caller.drive(send_many(self._caller.course, topic, keyed, now_ms()))


class BlockingConsumer(_Client):
    """Messages of one topic for one group. Not to be shared between threads: give each its own.

    Iterating ends when a receive comes back empty after *wait_ms*; iterate again to go on.
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        group: str,
        *,
        max_messages: int = 32,
        max_bytes: int = RECEIVE_SIZE_DEFAULT_BYTES,
        wait_ms: int = 0,
        invisible_ms: int | None = None,
        policy: RetryPolicy | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        super().__init__(endpoints, policy=policy, transport=transport)
        self._topic, self._group = topic, group
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._wait_ms, self._invisible_ms = wait_ms, invisible_ms
        self._pending = PendingSettles()

    @property
    def expired(self) -> int:
        """How many confirmations came too late: those messages are delivered again."""
        return self._pending.expired

    def __iter__(self) -> Iterator[ReceivedMessage]:
        while messages := self.receive():
            yield from messages

    def receive(self, max_messages: int = 0, wait_ms: int | None = None) -> list[ReceivedMessage]:
        """One receive: up to *max_messages* (0: the consumer's), [] when the wait passed without any. Confirmations go along."""
        settles = self._pending.take()
        request = receive_request(
            self._topic,
            self._group,
            max_messages=max_messages or self._max_messages,
            max_bytes=self._max_bytes,
            wait_ms=self._wait_ms if wait_ms is None else wait_ms,
            invisible_ms=self._invisible_ms,
            settles=settles,
        )
        try:
            response = self._call(request)
        except BaseException:
            self._pending.give_back(settles)
            raise
        messages, errors = read_received(response)
        self._pending.settled(settles, errors)
        return messages

    def confirm(self, *messages: ReceivedMessage) -> None:
        """These are done: they are acked with the next receive or at `close`."""
        self._pending.add(Settle(message.receipt_handle) for message in messages)

    def ack(self, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Ack now; the errors by receipt handle, {} when the group will not see any of these again."""
        return self._settle([Settle(message.receipt_handle) for message in messages])

    def extend(self, invisible_ms: int, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Keep the leases for *invisible_ms* from now; the errors by receipt handle."""
        return self._settle([Settle(message.receipt_handle, "extend", invisible_ms) for message in messages])

    def close(self) -> None:
        """Ack what was confirmed, then close all connections."""
        try:
            while self._pending:
                self._settle(self._pending.take())
        finally:
            super().close()

    def _settle(self, settles: list[Settle]) -> dict[str, TernError]:
        """Settle now; the errors by receipt handle. Raises when it is not known what became of them."""
        if not settles:
            return {}
        try:
            response = self._call(settle_request(self._topic, self._group, settles))
        except TernError as error:
            if error.retryable:
                raise
            return self._pending.refused(settles, dict.fromkeys(range(len(settles)), error))
        return self._pending.refused(settles, read_settled(response))


class BlockingAdmin(_Client):
    """Declares and inspects, as the async Admin; and reads queues by offset. May be shared between threads."""

    def create_topic(self, topic: str, queues: int = QUEUES_PER_TOPIC_DEFAULT) -> dict[str, Any]:
        """Create *topic* with *queues* queues, or see that it is there; TopicConflict when it has more."""
        return read_document(self._call(declare_topic_request(topic, queues)))

    def create_group(
        self, group: str, *, invisible_ms: int = INVISIBLE_DEFAULT_MS, start: str = "earliest"
    ) -> dict[str, Any]:
        """Create *group*; *start* (`earliest`, `latest`) is where it begins in a queue that it has never read."""
        return read_document(self._call(declare_group_request(group, invisible_ms, start)))

    def offsets(self, topic: str) -> list[QueueOffsets]:
        """Min and max offset of every queue of *topic*."""
        return read_offsets(self._call(offsets_request(topic)))

    def group_offsets(self, group: str, topic: str) -> dict[str, int]:
        """The committed offset of every queue, written `broker-a:3`."""
        request = get_request(group_offsets_path(check_group(group)), topic=check_topic(topic))
        return dict(read_document(self._call(request))["offsets"])

    def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[str, int], expected: Mapping[str, int] | None = None
    ) -> None:
        """Commit *offsets*; with *expected* only if those are committed now, else OffsetMoved."""
        self._call(commit_request(group, topic, offsets, expected or {}))

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
