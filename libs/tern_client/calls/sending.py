"""The course of a send, single or batch, until every message has a receipt or a final error. Pure:
steps for a shell to drive.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

from tern_client.bodies.arguments import check_fields, check_text, what_came
from tern_client.bodies.serializers import Encode, EncodedBody
from tern_client.calls.batching import split
from tern_client.calls.compressed_bodies import Compressor, compressed
from tern_client.calls.documents import batch_request, read_results, send_request
from tern_client.calls.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.transport.calling import Course, Outcome, Pause, Step, call
from tern_client.transport.retrying import decide
from tern_wire.errors import BatchEmpty, MessageTooLarge, OutcomeUnknown, TernError
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES

KeySource = Callable[[], str]
Message = TypeVar("Message", bound=OutgoingMessage)


def unique_keys(prefix: str) -> KeySource:
    """Make idempotency keys of one producer: *prefix*, which must be unique, and a counter."""
    numbers = count()
    return lambda: f"{prefix}-{next(numbers)}"


def prepared(message: Message, encode: Encode, key_source: KeySource | None) -> Message:
    """Return *message* as it is sent: its body as bytes, and with an idempotency key, so that
    repeats are safe. Unchanged when it has both, or without a source of keys.

    TypeError for a body that *encode* does not take, and for another field of a wrong type. Most
    messages have few fields, so these are checked only when there is one.
    """
    if (
        message.tag
        or message.keys
        or message.properties
        or message.content_type
        or message.queue
        or message.message_group
        or message.delay is not None
        or message.deliver_at is not None
        or message.delay_level is not None
    ):
        check_fields(message)
    if type(message.idempotency_key) is not str:
        check_text("idempotency_key", message.idempotency_key)
    if type(message.body) is not bytes:
        message = with_bytes(message, encode)
    return with_key(message, key_source)


def with_key(message: Message, key_source: KeySource | None) -> Message:
    """Return *message* with an idempotency key, so that repeats are safe; unchanged when it has
    one, or without a source of keys.
    """
    if message.idempotency_key or key_source is None:
        return message
    return replace(message, idempotency_key=key_source())


def with_bytes(message: Message, encode: Encode) -> Message:
    """Return *message* with the bytes that *encode* makes of its body, and what describes them."""
    encoded = encode(message.body)
    if not isinstance(encoded, EncodedBody) or type(encoded.body) is not bytes:
        raise TypeError(f"the serializer returned {what_came(encoded)}; it must return an EncodedBody with bytes")
    return replace(
        message,
        body=encoded.body,
        content_type=message.content_type or encoded.content_type,
        properties={**message.properties, **encoded.properties} if encoded.properties else message.properties,
    )


def too_large(message: OutgoingMessage) -> MessageTooLarge | None:
    """Return the proxy's own error for a body over the limit; None for others."""
    if len(message.body) <= MESSAGE_BODY_SIZE_MAX_BYTES:
        return None
    return MessageTooLarge(actual=len(message.body), limit=MESSAGE_BODY_SIZE_MAX_BYTES)


def none_stored(count: int, error: TernError) -> BatchOutcome:
    """Return the outcome of *count* messages that all failed with *error*."""
    return BatchOutcome(receipts=(None,) * count, errors=dict.fromkeys(range(count), error))


def _told(before: TernError | None, error: TernError) -> TernError:
    """Return the error to report. An unknown outcome stays unknown, unless a later attempt was
    refused for good.
    """
    return before if isinstance(before, OutcomeUnknown) and error.retryable else error


def send_one(
    course: Course, topic: str, message: OutgoingMessage, began_ms: float, compressor: Compressor | None = None
) -> Generator[Step, Outcome, SendReceipt]:
    """Return the steps of a single send. Raises the TernError when the message is not stored, or
    may not be. A message over the limit takes no step.
    """
    if error := too_large(message):
        raise error
    if compressor:
        (message,) = yield from compressed(compressor, [message])
    response = yield from call(course, send_request(topic, message), began_ms)
    result = read_results(response)[0]
    if isinstance(result, TernError):
        raise result
    return result


def send_many(
    course: Course,
    topic: str,
    messages: Sequence[OutgoingMessage],
    began_ms: float,
    compressor: Compressor | None = None,
) -> Generator[Step, Outcome, BatchOutcome]:
    """Return the steps of a batch of any size: it is split into requests, and only messages that
    failed for now are repeated.

    A request that fails as a whole gives its error to all of its messages; the others keep their
    receipts. A message over the limit gets the proxy's error without a request: the proxy would
    close the connection in the middle of its body.
    """
    if not messages:
        raise BatchEmpty()
    receipts: list[SendReceipt | None] = [None] * len(messages)
    errors: dict[int, TernError] = {at: error for at, each in enumerate(messages) if (error := too_large(each))}
    for chunk in split(topic, messages):
        pending = [at for at in chunk if at not in errors]
        ready = dict(zip(pending, (yield from compressed(compressor, [messages[at] for at in pending])), strict=True))
        attempt, now_ms = 0, began_ms
        while pending:
            request = batch_request(topic, [ready[at] for at in pending])
            try:
                response = yield from call(course, request, now_ms)
            except TernError as error:
                errors.update({at: _told(errors.get(at), error) for at in pending})
                break
            results = dict(zip(pending, read_results(response), strict=True))
            for at, result in results.items():
                if isinstance(result, SendReceipt):
                    receipts[at] = result
                    errors.pop(at, None)
                else:
                    errors[at] = _told(errors.get(at), result)
            pending = [
                at
                for at, result in results.items()
                if isinstance(result, TernError)
                and result.retryable
                # Without a key it could be stored twice.
                and (messages[at].idempotency_key or not isinstance(result, OutcomeUnknown))
            ]
            if not pending:
                break
            # The clock is only known after a step; this is the shortest one.
            now_ms = (yield Pause(0)).now_ms
            verdict = decide(
                errors[pending[0]],
                attempt=attempt + len(course.endpoints.urls),
                endpoints=len(course.endpoints.urls),
                elapsed_ms=now_ms - began_ms,
                repeatable=request.repeatable,
                chance=course.chance(),
                policy=course.policy,
            )
            if not verdict.repeat:
                break
            now_ms = (yield Pause(verdict.delay_ms)).now_ms
            attempt += 1
    return BatchOutcome(receipts=tuple(receipts), errors=errors)
