"""The course of a send, single or batch, until every message has a receipt or a final error. Pure: steps for a shell to drive."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from tern_client.batching import split
from tern_client.calling import Course, Outcome, Pause, Step, call
from tern_client.documents import batch_request, read_results, send_request
from tern_client.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.retrying import decide
from tern_wire.errors import BatchEmpty, TernError

KeySource = Callable[[], str]


def with_key(message: OutgoingMessage, key_source: KeySource | None) -> OutgoingMessage:
    """*message* with an idempotency key, so that repeating it is harmless; as it is when it has one or nobody makes any."""
    if message.idempotency_key or key_source is None:
        return message
    return replace(message, idempotency_key=key_source())


def send_one(
    course: Course, topic: str, message: OutgoingMessage, began_ms: float
) -> Generator[Step, Outcome, SendReceipt]:
    """Steps of a single send; raises the TernError when the message is not stored, or may not be."""
    response = yield from call(course, send_request(topic, message), began_ms)
    result = read_results(response)[0]
    if isinstance(result, TernError):
        raise result
    return result


def send_many(
    course: Course, topic: str, messages: Sequence[OutgoingMessage], began_ms: float
) -> Generator[Step, Outcome, BatchOutcome]:
    """Steps of a batch of any size: split into requests, and only what failed for now is sent again.

    A request that fails as a whole gives its error to all of its messages; the others keep their receipts.
    """
    if not messages:
        raise BatchEmpty()
    receipts: list[SendReceipt | None] = [None] * len(messages)
    errors: dict[int, TernError] = {}
    for chunk in split(messages):
        pending: list[int] = list(chunk)
        attempt, now_ms = 0, began_ms
        while pending:
            request = batch_request(topic, [messages[at] for at in pending])
            try:
                response = yield from call(course, request, now_ms)
            except TernError as error:
                errors.update(dict.fromkeys(pending, error))
                break
            results = dict(zip(pending, read_results(response), strict=True))
            for at, result in results.items():
                if isinstance(result, SendReceipt):
                    receipts[at] = result
                    errors.pop(at, None)
                else:
                    errors[at] = result
            pending = [at for at, result in results.items() if isinstance(result, TernError) and result.retryable]
            if not pending:
                break
            # The clock is only known after a step, so ask for the shortest pause there is.
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
