"""Messages, receipts and queue offsets: the values that the SDK takes and returns. Frozen; times
are milliseconds since 1970.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tern_client.bodies.decoders import TypedBody
from tern_wire.errors import TernError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """One message to send.

    - `body`: bytes, or a value that the producer's serializer takes; at most 4 MiB. `tag`, `keys`
      and `properties` are for filters and searches.
    - `queue` pins the message to one queue, such as `broker-a:3`.
    - `idempotency_key`: a message is stored once per key. The Producer fills in an empty one.
    - `message_group`: messages of one group are delivered in the order in which one producer's
      methods were called.
    - At most one of `delay` (`"30s"`, milliseconds or a timedelta), `deliver_at` (RFC 3339,
      milliseconds since 1970 or a datetime) and `delay_level` (1 to 18) delays the delivery.

    Example:

        from tern_client import BlockingProducer, OutgoingMessage

        message = OutgoingMessage(body=b"order 17", tag="new", message_group="customer-4")
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            receipt = producer.send_message("orders", message)
        print(receipt.offset)  # -> 0
    """

    body: Any
    tag: str = ""
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    content_type: str = ""
    queue: str = ""
    idempotency_key: str = ""
    message_group: str = ""
    delay: str | int | timedelta | None = None
    deliver_at: str | int | datetime | None = None
    delay_level: int | None = None

    def timing(self) -> dict[str, str | int]:
        """Return the fields for delivery time and order in the form of the HTTP API. A naive
        datetime is local time.
        """
        fields: dict[str, str | int] = {"message_group": self.message_group} if self.message_group else {}
        if self.delay is not None:
            span = self.delay
            fields["delay"] = span // timedelta(milliseconds=1) if isinstance(span, timedelta) else span
        if self.deliver_at is not None:
            moment = self.deliver_at
            fields["deliver_at"] = round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment
        if self.delay_level is not None:
            fields["delay_level"] = self.delay_level
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReceipt:
    """The place of a stored message, which is durable on a majority of its broker group's nodes.

    - `replayed`: an earlier send with the same idempotency key had stored the message.
    - A message that waits for its delivery time has `deliver_at`, a `recall_handle` for
      Admin.recall, and no offset yet (-1).

    Example:

        from tern_client import BlockingProducer, SendReceipt

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            first = producer.send("orders", b"order 17", idempotency_key="order-17")
            again: SendReceipt = producer.send("orders", b"order 17", idempotency_key="order-17")
        print(again.message_id == first.message_id, again.replayed)  # -> True True
    """

    message_id: str
    queue: str
    offset: int
    born_at: int
    replayed: bool = False
    deliver_at: int = 0
    recall_handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """The outcome of a batch in input order: a receipt, or None in `receipts` and an error under
    the same index in `errors`.

    Example:

        from tern_client import BatchOutcome, BlockingProducer, OutgoingMessage

        messages = [OutgoingMessage(body=b"small"), OutgoingMessage(body=bytes(5 * 1024 * 1024))]
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            outcome: BatchOutcome = producer.send_batch("orders", messages, return_errors=True)
        print([receipt is not None for receipt in outcome.receipts])  # -> [True, False]
        for index, error in outcome.errors.items():
            print(index, error.code)  # -> 1 message-too-large
    """

    receipts: tuple[SendReceipt | None, ...]
    errors: Mapping[int, TernError] = field(default_factory=dict)

    def confirmed(self) -> list[SendReceipt]:
        """Return all receipts; raise the first error when a message was not stored."""
        if self.errors:
            raise self.errors[min(self.errors)]
        return [receipt for receipt in self.receipts if receipt is not None]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReceivedMessage(TypedBody):
    """One received message under its lease.

    - The message is invisible to other consumers until `invisible_until`. It is delivered again
      after that unless it was acked.
    - `decode(Order)` returns the body as a value. `attempt` counts deliveries from 1.
      `receipt_handle` names the lease.
    - A request has `correlation_id` and `reply_to`. Its sender waits for the reply until
      `expires_at`; see Consumer.reply.

    Example:

        from tern_client import BlockingConsumer, BlockingProducer, ReceivedMessage


        def handle(message: ReceivedMessage) -> None:
            print(message.body, message.tag, message.attempt)  # -> b'order 17' new 1


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17", tag="new")
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            for message in consumer.until_idle():
                handle(message)
                consumer.confirm(message)
    """

    message_id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    content_type: str
    tag: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    born_at: int
    stored_at: int
    attempt: int
    receipt_handle: str
    invisible_until: int
    message_group: str = ""
    deliver_at: int = 0
    # Of a request. Its sender waits until `expires_at` for the reply.
    correlation_id: str = ""
    reply_to: str = ""
    expires_at: int = 0
    # How the producer compressed the body; and why there is none.
    content_encoding: str = ""
    refused: TernError | None = None

    def __hash__(self) -> int:
        return hash(self.receipt_handle)  # properties are no key of a dictionary


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReplyMessage(TypedBody):
    """The reply to a request, as it is stored in the cluster's reply topic.

    Example:

        import threading

        from tern_client import BlockingConsumer, BlockingProducer, ReplyMessage


        def serve() -> None:
            with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
                for message in consumer:
                    consumer.reply(message, message.body.upper())
                    consumer.ack(message)
                    return


        server = threading.Thread(target=serve)
        server.start()
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            reply: ReplyMessage = producer.request("orders", b"ping", timeout="10s")
        print(reply.body)  # -> b'PING'
        server.join()
    """

    message_id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    content_type: str
    keys: tuple[str, ...]
    properties: Mapping[str, str]
    born_at: int
    stored_at: int
    correlation_id: str
    content_encoding: str = ""
    refused: TernError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffsets:
    """Offsets of one queue: the offset of its oldest message, and the offset that its next message
    will get.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer, QueueOffsets

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17")
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            queue: QueueOffsets = admin.offsets("orders")[0]
        print(queue.queue, queue.min_offset, queue.max_offset)  # -> broker-a:0 0 1
    """

    queue: str
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPage:
    """Records of one queue, concatenated as the log stores them, and the offset at which the next
    page begins. `tern_wire.records` reads them.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer, RecordPage

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17")
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            pages: list[RecordPage] = list(admin.pull_records("orders", "broker-a:0", 0, 1))
        print(len(pages), b"order 17" in pages[0].data, pages[0].next_offset)  # -> 1 True 1
    """

    data: bytes
    next_offset: int
    max_offset: int
