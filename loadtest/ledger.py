"""The messages that a load run sent, received and acked, and those with unknown outcome. Pure.

Owner: one Locust process. Law: a send or an ack is entered before it leaves and removed by its
final answer, so the entries of a killed user are exactly the requests to repeat at the end.
Messages are identified by their place in the store, so a repeated send counts once.

A run may last for days: memory grows with open requests, not with messages sent.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, int]  # a queue such as `broker-a:3`, and an offset in it
_WRONG_ANSWERS_TOLD = 5


@dataclass(frozen=True, slots=True)
class Send:
    """One send request, single or batch.

    It has idempotency keys: a repetition is not stored again.
    """

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Offsets:
    """The offsets of one queue: all below *floor*, and the few *above* it that came early."""

    floor: int = 0
    above: set[int] = field(default_factory=set)


class Places:
    """A set of places.

    Its queues are filled from 0 on and nearly in order, so memory is needed only for places that
    came early, however long the run is.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Offsets] = {}

    def add(self, place: Place) -> None:
        """Add *place*."""
        queue, offset = place
        offsets = self._queues.setdefault(queue, _Offsets())
        if offset >= offsets.floor:
            offsets.above.add(offset)
            while offsets.floor in offsets.above:
                offsets.above.remove(offsets.floor)
                offsets.floor += 1

    def __len__(self) -> int:
        return sum(offsets.floor + len(offsets.above) for offsets in self._queues.values())

    def __iter__(self) -> Iterator[Place]:
        """Yield all places."""
        for queue, offsets in self._queues.items():
            yield from ((queue, offset) for offset in range(offsets.floor))
            yield from ((queue, offset) for offset in sorted(offsets.above))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and self._queues == other._queues

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class Ledger:
    """The totals of one run."""

    open_sends: dict[str, Send] = field(default_factory=dict)
    open_acks: dict[str, Place] = field(default_factory=dict)
    stored: Places = field(default_factory=Places)
    acked: Places = field(default_factory=Places)
    received: int = 0
    repeated_sends: int = 0
    expired_acks: int = 0
    wrong_answers: int = 0
    first_wrong_answers: list[str] = field(default_factory=list)

    def begin_send(self, key: str, send: Send) -> None:
        """Enter *send*, which leaves now."""
        self.open_sends[key] = send

    def end_send(self, key: str, receipts: Iterable[Mapping[str, Any]]) -> None:
        """Record the places of its messages, from *receipts*, and remove the send."""
        for receipt in receipts:
            self.stored.add((receipt["queue"], receipt["offset"]))
        del self.open_sends[key]

    def refuse_send(self, key: str, why: str) -> None:
        """Remove a send with a wrong answer: its messages will never be stored."""
        self.note_wrong(why)
        del self.open_sends[key]

    def receive(self, messages: Iterable[Mapping[str, Any]]) -> list[str]:
        """Enter the received *messages*; return their receipt handles for the next acks."""
        handles = []
        for message in messages:
            handles.append(message["receipt_handle"])
            self.open_acks[message["receipt_handle"]] = (message["queue"], message["offset"])
        self.received += len(handles)
        return handles

    def end_acks(self, handles: Iterable[str], results: Iterable[Mapping[str, Any]]) -> None:
        """Enter the answers to acks, in their order.

        An expired lease is no error: its message is delivered again.
        """
        for handle, result in zip(handles, results, strict=True):
            place = self.open_acks.pop(handle)
            code = result["error"]["code"] if "error" in result else ""
            if not code:
                self.acked.add(place)
            elif code == "receipt-expired":
                self.expired_acks += 1
            elif result["error"].get("retryable"):
                self.open_acks[handle] = place
            else:
                self.note_wrong(f"an ack got {code}")

    def note_wrong(self, why: str) -> None:
        """Count an answer that must not occur under this load; keep the first few texts."""
        self.wrong_answers += 1
        if len(self.first_wrong_answers) < _WRONG_ANSWERS_TOLD:
            self.first_wrong_answers.append(why)

    @property
    def agrees(self) -> bool:
        """Whether all outcomes are known, and exactly the stored messages were acked."""
        return not (self.open_sends or self.open_acks or self.wrong_answers) and self.stored == self.acked

    def report(self, stored_by_broker: int) -> str:
        """Return the totals in a line or two."""
        text = (
            f"sent {len(self.stored):,} (the broker holds {stored_by_broker:,}), acked {len(self.acked):,}, received "
            f"{self.received:,}; sends repeated {self.repeated_sends:,}, acks too late {self.expired_acks:,}, outcomes "
            f"unknown {len(self.open_sends) + len(self.open_acks):,}"
        )
        wrong = [f"wrong answers {self.wrong_answers:,}, the first of them:"] if self.wrong_answers else []
        return "\n".join([text, *wrong, *self.first_wrong_answers])
