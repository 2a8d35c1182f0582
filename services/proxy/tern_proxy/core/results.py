"""What a send answers: verdicts of the broker and refusals of the proxy become receipts and problems, in input order."""

from dataclasses import dataclass
from typing import Any

from tern_proxy.core.encoding import Encoded, Parcel
from tern_wire.errors import (
    IdempotencyKeyReused,
    LinkBodyMalformed,
    Overloaded,
    QueueNotFound,
    TernError,
    TopicNotFound,
)
from tern_wire.rows import KEY_REUSED, KEYS_FULL, NO_QUEUE, NO_TOPIC, REPLAYED, SENT

# (status, queue, offset) of one row.
Verdict = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a parcel: verdicts, one a row, and for replayed rows the first message's id and birth (ms); or an error."""

    verdicts: list[Verdict]
    replays: dict[int, tuple[str, int]]
    error: TernError | None = None


def failed(error: TernError) -> Outcome:
    """Every row of a parcel met *error*."""
    return Outcome(verdicts=[], replays={}, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResults:
    """One entry a message, in input order: a receipt, or the error that stands for it in `errors`."""

    entries: list[dict[str, Any]]
    errors: dict[int, TernError]
    replayed: frozenset[int]

    @property
    def common_error(self) -> TernError | None:
        """The error that every message met, when it is one and the same cause."""
        if not self.errors or len(self.errors) < len(self.entries):
            return None
        first, *rest = (self.errors[index] for index in sorted(self.errors))
        return first if all(error.code == first.code for error in rest) else None


def send_results(topic: str, encoded: Encoded, outcomes: list[Outcome], born_ms: int) -> SendResults:
    """*outcomes*: one for each of *encoded*'s parcels, in the same order."""
    errors = dict(encoded.errors)
    ids = encoded.message_ids
    entries: list[dict[str, Any]] = [{}] * len(ids)
    replayed: set[int] = set()
    for parcel, outcome in zip(encoded.parcels, outcomes, strict=True):
        if outcome.error is not None:
            errors.update(dict.fromkeys(parcel.indexes, outcome.error))
            continue
        broker_group = parcel.broker_group
        replays = outcome.replays
        for row, (index, (status, queue, offset)) in enumerate(zip(parcel.indexes, outcome.verdicts, strict=True)):
            if status == SENT:
                entries[index] = {
                    "index": index,
                    "message_id": ids[index],
                    "queue": f"{broker_group}:{queue}",
                    "offset": offset,
                    "born_at": born_ms,
                }
            elif status == REPLAYED:
                message_id, first_ms = replays.get(row, (ids[index], born_ms))
                replayed.add(index)
                entries[index] = {
                    "index": index,
                    "message_id": message_id,
                    "queue": f"{broker_group}:{queue}",
                    "offset": offset,
                    "born_at": first_ms,
                    "replayed": True,
                }
            else:
                errors[index] = _error_of(status, topic, f"{broker_group}:{queue}")
    for index, error in errors.items():
        entries[index] = {"index": index, "error": error.problem()}
    return SendResults(entries=entries, errors=errors, replayed=frozenset(replayed))


def _error_of(status: int, topic: str, queue: str) -> TernError:
    if status == KEY_REUSED:
        return IdempotencyKeyReused()
    if status == NO_TOPIC:
        return TopicNotFound(topic=topic)
    if status == NO_QUEUE:
        return QueueNotFound(queue=queue, topic=topic)
    if status == KEYS_FULL:
        return Overloaded()
    return LinkBodyMalformed(reason=f"the broker answered status {status}")


def find_missing_topic(parcels: list[Parcel], outcomes: list[Outcome]) -> bool:
    """Whether a broker group did not know the topic or queue of a row: the proxy's routes are older than the broker's state."""
    return any(
        status in {NO_TOPIC, NO_QUEUE}
        for _, outcome in zip(parcels, outcomes, strict=True)
        for status, _, _ in outcome.verdicts
    )
