"""What the end of a handler means for its message: ack, nack or dead letter. Pure.

returns                    ack; the value that it returns is the reply to a request
raises Retry(after=...)    nack with that delay
raises DeadLetter(reason)  dead letter with the reason
raises BatchFailed({...})  each message of the batch by its own error, the others acked
raises anything else       nack with the handler's `retry_in`, or by the group's retry policy
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from tern_client.calls.models import ReceivedMessage
from tern_wire.limits import DEAD_LETTER_REASON_SIZE_MAX_BYTES, INVISIBLE_MAX_MS
from tern_wire.times import given_duration, parse_duration_ms


def duration_ms(value: str | int | timedelta, name: str, least_ms: int = 0, most_ms: int = INVISIBLE_MAX_MS) -> int:
    """Return the milliseconds of `"30s"`, 30_000 or a timedelta. TypeError and ValueError name the
    argument *name*.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | timedelta):
        kind = type(value).__name__
        raise TypeError(f"{name} is a {kind}; give a duration such as '30s', milliseconds or a timedelta")
    given: str | int = value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
    try:
        found_ms = parse_duration_ms(given)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if not least_ms <= found_ms <= most_ms:
        raise ValueError(f"{name} is {given_duration(given)}; use {least_ms} ms to {most_ms} ms")
    return found_ms


class DeadLetter(Exception):
    """Raised by a handler: no consumer of the group can process this message. It becomes a dead
    letter with *reason*, of which 1 KiB is kept.

    Example:

        import asyncio

        from tern_client import BlockingProducer, DeadLetter, Worker

        worker = Worker("http://127.0.0.1:8080")


        @worker.on("orders", group="billing")
        async def bill(body: bytes) -> None:
            print(body)  # -> b'order of nobody'
            worker.stop()
            raise DeadLetter("no such shop")


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order of nobody")
        asyncio.run(worker.serve())
        print(worker.stats().subscriptions[0].dead_lettered)  # -> 1
    """

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str):
            raise TypeError(f"reason is a {type(reason).__name__}; give a text that says why nobody can process it")
        super().__init__(reason)
        self.reason = reason


class Retry(Exception):
    """Raised by a handler: the message comes again *after* a duration (`"30s"`, milliseconds or a
    timedelta; at most 12 hours). None: by the group's retry policy. The attempt counts.

    Example:

        import asyncio

        from tern_client import BlockingProducer, ReceivedMessage, Retry, Worker

        worker = Worker("http://127.0.0.1:8080")


        @worker.on("orders", group="billing")
        async def bill(message: ReceivedMessage) -> None:
            if message.attempt == 1:
                print("not yet")  # -> not yet
                raise Retry(after="100ms")
            print("done")  # -> done
            worker.stop()


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
        asyncio.run(worker.serve())
    """

    def __init__(self, after: str | int | timedelta | None = None) -> None:
        self.after_ms = None if after is None else duration_ms(after, "after")
        super().__init__("" if after is None else f"after {self.after_ms} ms")


class BatchFailed(Exception):
    """Raised by a batch handler: the messages in *errors* failed, each with its error, which may be
    a Retry or a DeadLetter. The others of the batch are acked.

    Example:

        import asyncio

        from tern_client import BatchFailed, BlockingProducer, DeadLetter, ReceivedMessage, Worker

        worker = Worker("http://127.0.0.1:8080")


        @worker.on("orders", group="billing", batch_max=2, batch_wait="5s")
        async def bill(messages: list[ReceivedMessage]) -> None:
            worker.stop()
            odd = [message for message in messages if b"?" in message.body]
            raise BatchFailed({message: DeadLetter("no number") for message in odd})


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
            producer.send("orders", b"order ?")
        asyncio.run(worker.serve())
        done = worker.stats().subscriptions[0]
        print(done.acked, done.dead_lettered)  # -> 1 1
    """

    def __init__(self, errors: Mapping[ReceivedMessage, BaseException]) -> None:
        for error in errors.values():
            if not isinstance(error, BaseException):
                raise TypeError(f"errors holds a {type(error).__name__}; give an exception for each failed message")
        super().__init__(f"{len(errors)} messages of the batch failed")
        self.errors = {message.receipt_handle: error for message, error in errors.items()}


class DeadlinePassed(Exception):
    """A handler did not end within its deadline."""


class BodyRefused(Exception):
    """A body does not fit the type that the handler's annotation asks for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of one message: `ack`, `nack` (visible again after *delay_ms*; None: by the
    group's policy) or `dead_letter` with a *reason*.
    """

    action: str = "ack"
    delay_ms: int | None = None
    reason: str = ""


ACK = Outcome()
# A handler that a stop has ended: another worker takes its message at once.
STOPPED = Outcome("nack", 0)


def outcome_of(error: BaseException | None, retry_in_ms: int | None) -> Outcome:
    """Return what *error* means for its message; None: the handler has returned."""
    match error:
        case None:
            return ACK
        case DeadLetter():
            return Outcome("dead_letter", reason=kept_reason(error.reason))
        case BodyRefused():
            return Outcome("dead_letter", reason=kept_reason(str(error)))
        case Retry():
            return Outcome("nack", error.after_ms)
        case _:
            return Outcome("nack", retry_in_ms)


def error_of_message(error: BaseException | None, handle: str) -> BaseException | None:
    """Return the error of the message with this *handle* when its batch has ended with *error*."""
    return error.errors.get(handle) if isinstance(error, BatchFailed) else error


def is_unhandled(error: BaseException | None) -> bool:
    """Whether *error* is no answer of the handler but a failure, which is logged and counted."""
    return error is not None and not isinstance(error, DeadLetter | Retry | BodyRefused)


def kept_reason(reason: str) -> str:
    """Return as much of *reason* as a dead letter keeps."""
    return reason.encode("utf-8", "replace")[:DEAD_LETTER_REASON_SIZE_MAX_BYTES].decode("utf-8", "ignore")
