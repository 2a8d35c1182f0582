"""Answers to sends: verdicts of the broker and refusals of the proxy become receipts and problems,
in input order.
"""

from collections.abc import Callable

from msgspec import UNSET, Struct
from msgspec.structs import replace

from tern_proxy.core.documents.messages import SendReceipt, SendResult
from tern_proxy.core.sending.encoding import Encoded, Parcel
from tern_wire.errors import (
    IdempotencyKeyReused,
    LinkReplyMalformed,
    Overloaded,
    PlacementChanged,
    QueueNotFound,
    TernError,
    TopicNotFound,
    TopicNotWritable,
)
from tern_wire.link.rows import (
    KEY_REUSED,
    KEYS_FULL,
    MOVED,
    NO_QUEUE,
    NO_TOPIC,
    NOT_WRITABLE,
    REPLAYED,
    SCHEDULED,
    SCHEDULED_BEFORE,
    SENT,
)
from tern_wire.recall_handles import Recall, RecallMaker

# Offset in the receipt of a scheduled message.
NO_OFFSET = -1
# Placeholder of an entry.
_NOTHING = SendResult(index=-1)
# (status, queue, offset) of one row.
Verdict = tuple[int, int, int]
# First message of a repeated row: its id, its birth (ms), and its delivery time (ms; 0: at once).
# For a half message, the delay of its first check in ms (0: its producer group's setting).
Replay = tuple[str, int, int]


class Outcome(Struct, frozen=True, kw_only=True):
    """Outcome of a parcel: verdicts, one a row, and the first messages of replayed rows; or an
    error.

    *producer_group*: for half messages, its id and its times, as in SEND's reply. *is_sent*: every
    verdict is SENT, so that nobody needs to look at each.
    """

    verdicts: list[Verdict]
    replays: dict[int, Replay]
    producer_group: tuple[int, ...] = ()
    error: TernError | None = None
    is_sent: bool = False


def failed(error: TernError) -> Outcome:
    """Return the outcome of a parcel whose rows all failed with *error*."""
    return Outcome(verdicts=[], replays={}, error=error)


class SendResults(Struct, frozen=True, kw_only=True):
    """One entry a message, in input order: a receipt, or an error, which is also in `errors`."""

    entries: list[SendResult]
    errors: dict[int, TernError]
    replayed: frozenset[int]

    @property
    def common_error(self) -> TernError | None:
        """The error of all messages, if every message failed with one code; else None."""
        if not self.errors or len(self.errors) < len(self.entries):
            return None
        first, *rest = (self.errors[index] for index in sorted(self.errors))
        return first if all(error.code == first.code for error in rest) else None


def send_results(
    topic: str, encoded: Encoded, outcomes: list[Outcome], born_ms: int, recall_maker: Callable[[str], RecallMaker]
) -> SendResults:
    """Return the results of a send.

    *outcomes*: one for each parcel of *encoded*, in order. *recall_maker*: of scheduled messages,
    by topic.
    """
    errors = dict(encoded.errors)
    ids = encoded.message_ids
    entries = [_NOTHING] * len(ids)
    replayed: set[int] = set()
    for parcel, outcome in zip(encoded.parcels, outcomes, strict=True):
        if outcome.error is not None:
            errors.update(dict.fromkeys(parcel.indexes, outcome.error))
            continue
        broker_group = parcel.broker_group
        replays = outcome.replays
        for row, (index, (status, queue, offset)) in enumerate(zip(parcel.indexes, outcome.verdicts, strict=True)):
            if status == SENT:
                entries[index] = SendResult(
                    index=index,
                    message_id=ids[index],
                    queue=f"{broker_group}:{queue}",
                    offset=offset,
                    born_at=born_ms,
                )
            elif status == REPLAYED:
                message_id, first_ms, _ = replays.get(row, (ids[index], born_ms, 0))
                replayed.add(index)
                entries[index] = SendResult(
                    index=index,
                    message_id=message_id,
                    queue=f"{broker_group}:{queue}",
                    offset=offset,
                    born_at=first_ms,
                    replayed=True,
                )
            elif status == SCHEDULED:
                recall = Recall(broker_group, encoded.deliver_ms[index], offset)
                entries[index] = _scheduled(index, ids[index], queue, born_ms, recall, recall_maker(topic))
            elif status == SCHEDULED_BEFORE:
                message_id, first_ms, deliver_ms = replays.get(row, ("", born_ms, 0))
                replayed.add(index)
                recall = Recall(broker_group, deliver_ms, offset)
                entries[index] = _scheduled(index, message_id, queue, first_ms, recall, recall_maker(topic))
                entries[index].replayed = True
            else:
                errors[index] = refusal_of(status, topic, f"{broker_group}:{queue}")
    for index, error in errors.items():
        entries[index] = SendResult(index=index, error=error.problem())
    return SendResults(entries=entries, errors=errors, replayed=frozenset(replayed))


def _scheduled(
    index: int, message_id: str, queue: int, born_ms: int, recall: Recall, recalls: RecallMaker
) -> SendResult:
    """Return the entry of a scheduled message, which gets its offset at its delivery time.

    Without a time its record is gone, and there is nothing to recall.
    """
    return SendResult(
        index=index,
        message_id=message_id,
        queue=f"{recall.broker_group}:{queue}",
        offset=NO_OFFSET,
        born_at=born_ms,
        deliver_at=recall.deliver_ms or UNSET,
        recall_handle=recalls.make(recall) if recall.deliver_ms else UNSET,
    )


def receipt_of(entry: SendResult) -> SendReceipt:
    """Return *entry*, which is not an error, as the answer to a send of one message."""
    message_id, queue, offset, born_ms = entry.message_id, entry.queue, entry.offset, entry.born_at
    assert message_id is not UNSET and queue is not UNSET and offset is not UNSET and born_ms is not UNSET
    return SendReceipt(
        message_id=message_id,
        queue=queue,
        offset=offset,
        born_at=born_ms,
        deliver_at=entry.deliver_at,
        recall_handle=entry.recall_handle,
    )


def refusal_of(status: int, topic: str, queue: str) -> TernError:
    """Return the error of a row that was refused with the verdict *status*."""
    if status == KEY_REUSED:
        return IdempotencyKeyReused()
    if status == NOT_WRITABLE:
        return TopicNotWritable(topic=topic)
    if status == NO_TOPIC:
        return TopicNotFound(topic=topic)
    if status == NO_QUEUE:
        return QueueNotFound(queue=queue, topic=topic)
    if status == KEYS_FULL:
        return Overloaded(what="idempotency keys")
    if status == MOVED:
        return PlacementChanged(topic=topic)
    return LinkReplyMalformed(reason=f"the broker answered status {status}")


def moved_from(parcels: list[Parcel], outcomes: list[Outcome]) -> dict[int, str]:
    """Return by index the broker group that stored nothing of a message, since it belongs
    elsewhere.
    """
    return {
        index: parcel.broker_group
        for parcel, outcome in zip(parcels, outcomes, strict=True)
        for index, (status, _, _) in zip(parcel.indexes, outcome.verdicts, strict=False)
        if status == MOVED
    }


def merged(results: SendResults, indexes: list[int], further: SendResults) -> SendResults:
    """Return *results* with the later results *further* of the messages at *indexes*."""
    entries, errors, replayed = list(results.entries), dict(results.errors), set(results.replayed)
    for number, index in enumerate(indexes):
        entries[index] = replace(further.entries[number], index=index)
        errors.pop(index, None)
        if number in further.errors:
            errors[index] = further.errors[number]
        if number in further.replayed:
            replayed.add(index)
    return SendResults(entries=entries, errors=errors, replayed=frozenset(replayed))


def find_missing_topic(parcels: list[Parcel], outcomes: list[Outcome]) -> bool:
    """Return whether a broker group did not have the topic or queue of a row, so that this proxy's
    routes are stale.
    """
    return any(
        status in {NO_TOPIC, NO_QUEUE, NOT_WRITABLE}
        for _, outcome in zip(parcels, outcomes, strict=True)
        for status, _, _ in outcome.verdicts
    )
