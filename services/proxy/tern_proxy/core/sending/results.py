"""What a send answers: verdicts of the broker and refusals of the proxy become receipts and problems, in input order."""

from dataclasses import dataclass

from msgspec import UNSET
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

# In the receipt of a message that waits for its delivery time.
NO_OFFSET = -1
# Where each entry's own will be.
_NOTHING = SendResult(index=-1)
# (status, queue, offset) of one row.
Verdict = tuple[int, int, int]
# What a repeated row is told of the first message: its id, its birth (ms), and when it is to be delivered (ms; 0: at once), or for a half
# message after how many ms it was first to be asked about (0: its producer group's).
Replay = tuple[str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a parcel: verdicts, one a row, and for replayed rows what the first message was; or an error.

    *producer_group*: of half messages, its id and its times, as SEND's reply has them.
    """

    verdicts: list[Verdict]
    replays: dict[int, Replay]
    producer_group: tuple[int, ...] = ()
    error: TernError | None = None


def failed(error: TernError) -> Outcome:
    """Every row of a parcel met *error*."""
    return Outcome(verdicts=[], replays={}, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResults:
    """One entry a message, in input order: a receipt, or the error that stands for it in `errors`."""

    entries: list[SendResult]
    errors: dict[int, TernError]
    replayed: frozenset[int]

    @property
    def common_error(self) -> TernError | None:
        """The error that every message met, when it is one and the same cause."""
        if not self.errors or len(self.errors) < len(self.entries):
            return None
        first, *rest = (self.errors[index] for index in sorted(self.errors))
        return first if all(error.code == first.code for error in rest) else None


def send_results(
    topic: str, encoded: Encoded, outcomes: list[Outcome], born_ms: int, recalls: RecallMaker
) -> SendResults:
    """*outcomes*: one for each of *encoded*'s parcels, in the same order."""
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
                entries[index] = _scheduled(index, ids[index], queue, born_ms, recall, recalls)
            elif status == SCHEDULED_BEFORE:
                message_id, first_ms, deliver_ms = replays.get(row, ("", born_ms, 0))
                replayed.add(index)
                recall = Recall(broker_group, deliver_ms, offset)
                entries[index] = _scheduled(index, message_id, queue, first_ms, recall, recalls)
                entries[index].replayed = True
            else:
                errors[index] = refusal_of(status, topic, f"{broker_group}:{queue}")
    for index, error in errors.items():
        entries[index] = SendResult(index=index, error=error.problem())
    return SendResults(entries=entries, errors=errors, replayed=frozenset(replayed))


def _scheduled(
    index: int, message_id: str, queue: int, born_ms: int, recall: Recall, recalls: RecallMaker
) -> SendResult:
    """Of a message that gets its offset when its time comes. Without a time its record is gone: nothing to recall."""
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
    """*entry*, which is no error, as the answer to a send of one message."""
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
    """What a row with the verdict *status* was refused with."""
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
    """By index: the broker group that stored nothing of a message, since it belongs elsewhere."""
    return {
        index: parcel.broker_group
        for parcel, outcome in zip(parcels, outcomes, strict=True)
        for index, (status, _, _) in zip(parcel.indexes, outcome.verdicts, strict=False)
        if status == MOVED
    }


def merged(results: SendResults, indexes: list[int], further: SendResults) -> SendResults:
    """*results* with what has become since of the messages at *indexes*: *further*, in their order."""
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
    """Whether a broker group did not know the topic or queue of a row: the proxy's routes are older than the broker's state."""
    return any(
        status in {NO_TOPIC, NO_QUEUE, NOT_WRITABLE}
        for _, outcome in zip(parcels, outcomes, strict=True)
        for status, _, _ in outcome.verdicts
    )
