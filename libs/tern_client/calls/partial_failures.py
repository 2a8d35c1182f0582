"""Errors of calls about several messages of which some failed. Raised unless the caller asks for
the errors with `return_errors=True`: an error that nobody looks at loses a message in silence.
"""

from collections.abc import Mapping
from typing import ClassVar

from tern_client.calls.models import BatchOutcome
from tern_wire.errors import TernError


class SendsFailed(TernError):
    """Some messages of a `send_batch` were not stored. `outcome` has the receipts of the others,
    and each error under the index of its message.

    Example:

        from tern_client import BlockingProducer, OutgoingMessage, SendsFailed

        messages = [OutgoingMessage(body=b"small"), OutgoingMessage(body=bytes(5 * 1024 * 1024))]
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            try:
                producer.send_batch("orders", messages)
            except SendsFailed as error:
                print(error.outcome.errors[1].code)  # -> message-too-large
    """

    code: ClassVar[str] = "sends-failed"
    status: ClassVar[int] = 409
    title: ClassVar[str] = "Not all messages were stored"
    fix: ClassVar[str] = "{failed} of {messages} messages were not stored; the first of them, number {first}: {reason}"

    def __init__(self, outcome: BatchOutcome) -> None:
        first = min(outcome.errors)
        reason = outcome.errors[first].detail
        super().__init__(failed=len(outcome.errors), messages=len(outcome.receipts), first=first, reason=reason)
        self.outcome = outcome


class SettlesFailed(TernError):
    """Some messages could not be acked, given back, extended or made dead letters. `errors` has
    each error under its receipt handle.

    Example:

        from tern_client import BlockingConsumer, BlockingProducer, SettlesFailed

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            (message,) = consumer.receive()
            consumer.nack(message, delay_ms=60_000)
            try:
                consumer.ack(message)  # too late: it has been given back
            except SettlesFailed as error:
                print(error.errors[message.receipt_handle].code)  # -> receipt-expired
    """

    code: ClassVar[str] = "settles-failed"
    status: ClassVar[int] = 409
    title: ClassVar[str] = "Not all messages were settled"
    fix: ClassVar[str] = "{failed} of {messages} messages were not settled; the first of them: {reason}"

    def __init__(self, errors: Mapping[str, TernError], messages: int) -> None:
        first = next(iter(errors.values()))
        super().__init__(failed=len(errors), messages=messages, reason=first.detail)
        self.errors = dict(errors)
