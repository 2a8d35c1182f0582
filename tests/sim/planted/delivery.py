"""Planted bugs of retries, dead letters, message groups, delivery times and seeks."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.dead_letters.dead_letters import DeadLetters
from tern_broker.core.deadline_heap import DeadlineHeap
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.lease import Lease, Run
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.delivery.repeated_receives import Replays
from tern_broker.core.delivery.settles import Settles
from tern_broker.core.timing import Timing
from tern_broker.link import repeated_receives
from tern_broker.link.offsets import OffsetRequests
from tern_broker.link.repeated_receives import RepeatedReceives
from tern_broker.link.requests import Requests
from tern_raft import barrier
from tern_store import Store, StoreError
from tern_store.timers.timers import Timers
from tern_wire.errors import AlreadyDelivered, TernError
from tern_wire.link.timer_rows import TIMER_ROWS
from tests.sim.planted.planting import PlantedBug, changed

EARLY_MS = 150


def _early_retry() -> Any:
    """What was nacked is visible 150 ms before its delay is over."""

    def rest(self: Leasing, *arguments: Any) -> None:
        applied = arguments[-1]
        applied.now_ms -= EARLY_MS
        original(self, *arguments)
        applied.now_ms += EARLY_MS

    original = Leasing.rest
    return changed((Leasing, "rest", rest))


def _attempts_not_counted() -> Any:
    """A delivery that failed is the same attempt again, if it was not the first."""

    def leave(self: Delivery, lease: Lease, mask: int, run_id: int, attempts: int, visible_ms: int) -> Run | None:
        return original(self, lease, mask, run_id, attempts - (attempts == lease.attempt > 1), visible_ms)

    original = Delivery._leave
    return changed((Delivery, "_leave", leave))


def _release_counts() -> Any:
    """A message that was given back unseen has used up an attempt."""

    def give_back(self: Delivery, lease: Lease, mask: int, run_id: int, _attempts: int, nacked_by: int = 0) -> None:
        original(self, lease, mask, run_id, lease.attempt, nacked_by)

    original = Delivery.give_back
    return changed((Delivery, "give_back", give_back))


def _one_attempt_more() -> Any:
    """A message dies one attempt too late."""

    def condemn_last(self: Leasing, place: Any, lease: Lease, mask: int, cause: Any) -> bool:
        most = self._names.groups_by_id[place[0]].max_attempts
        return lease.attempt > most and original(self, place, lease, mask, cause)

    original = Leasing._condemn_last
    return changed((Leasing, "_condemn_last", condemn_last))


def _buried_twice() -> Any:
    """Every dead letter lies there two times."""

    def append(self: DeadLetters, dead: Any, rows: Any, positions: Any) -> Any:
        return original(self, dead, np.repeat(rows, 2), np.repeat(positions, 2))

    original = DeadLetters._append
    return changed((DeadLetters, "_append", append))


def _buried_nowhere() -> Any:
    """Messages at every third offset die without a trace."""

    def append(self: DeadLetters, dead: Any, rows: Any, positions: Any) -> Any:
        kept = rows["offset"] % 3 > 0
        return original(self, dead, rows[kept], positions[kept])

    original = DeadLetters._append
    return changed((DeadLetters, "_append", append))


def _dead_and_alive() -> Any:
    """What is buried is delivered once more."""

    def condemn(self: Delivery, lease: Lease, mask: int, death: Any) -> list[int]:
        offsets = original(self, lease, mask, death)
        if not isinstance(self, FifoDelivery):
            for offset in offsets:
                self.runs[-lease.lease_id * 1000 - offset] = Run(-lease.lease_id * 1000 - offset, offset, 1, 0, 0)
                self.waiting += 1
        return offsets

    original = Delivery.condemn
    return changed((Delivery, "condemn", condemn))


def _rejection_is_an_ack() -> Any:
    """A message that was rejected is settled, and that is all."""

    def reject(
        self: Settles, group_id: int, topic_id: int, queue: int, offset: int, lease_id: int, reason: str, now_ms: int
    ) -> int:
        delivery = self._leasing.find(group_id, topic_id, queue)
        lease = delivery.leases.get(lease_id) if delivery is not None else None
        if delivery is not None and lease is not None and 0 <= offset - lease.start < lease.count:
            delivery.settle(lease, 1 << offset - lease.start)
        return original(self, group_id, topic_id, queue, offset, lease_id, reason, now_ms)

    original = Settles._reject
    return changed((Settles, "_reject", reject))


def _next_while_held() -> Any:
    """A message group is blocked only by what is parked, not by what is in hand."""

    def is_blocked(self: FifoDelivery, message_group: int) -> bool:
        return self.parked.head(message_group) is not None

    return changed((FifoDelivery, "is_blocked", is_blocked))


def _next_while_it_rests() -> Any:
    """A message that rests does not hold up its message group."""

    def rest(self: FifoDelivery, lease: Lease, *arguments: Any) -> None:
        original(self, lease, *arguments)
        self._leave_hand(lease.start)

    original = Delivery.rest
    return changed((FifoDelivery, "rest", rest))


def _early_timer() -> Any:
    """A message is delivered up to 150 ms before its time."""

    def peek(self: Timers, now_ms: int, count_max: int) -> Any:
        return look(self, now_ms + EARLY_MS, count_max)

    def fire(self: Timing, payload: memoryview, position: int, applied: Any) -> Any:
        applied.now_ms += EARLY_MS
        verdict = apply(self, payload, position, applied)
        applied.now_ms -= EARLY_MS
        return verdict

    look, apply = Timers.peek, Timing._fire
    return changed((Timers, "peek", peek), (Timing, "_fire", fire))


def _late_timer_lost() -> Any:
    """What fires more than 400 ms late, since nobody led at its time, is delivered to nobody."""

    def fire(self: Timing, payload: memoryview, position: int, applied: Any) -> Any:
        rows: npt.NDArray[Any] = np.frombuffer(payload, TIMER_ROWS).copy()
        rows["queue"][rows["deliver_ms"] < applied.now_ms - 400] = 60_000
        verdict = original(self, memoryview(rows.tobytes()), position, applied)
        applied.fired[-1] = np.frombuffer(payload, TIMER_ROWS)
        return verdict

    original = Timing._fire
    return changed((Timing, "_fire", fire))


def _recalled_too_late() -> Any:
    """A recall of what was delivered already is answered well."""

    def cancel(self: Timing, payload: memoryview, position: int, applied: Any) -> dict[str, int]:
        try:
            return original(self, payload, position, applied)
        except AlreadyDelivered:
            return {"recalled": 1}

    original = Timing._cancel
    return changed((Timing, "_cancel", cancel))


def _seek_forgets_parked() -> Any:
    """A seek back leaves out what is behind it and before the cursor, if anything is parked."""

    def seek(self: FifoDelivery, offset: int) -> Any:
        return original(self, max(offset, self.cursor) if self.parked.count else offset)

    original = FifoDelivery.seek
    return changed((FifoDelivery, "seek", seek))


def _seek_to_a_later_time() -> Any:
    """A seek to a time leaves out the first message."""

    def offsets_at(self: OffsetRequests, topic: Any, *arguments: Any) -> Any:
        for queue, offset in original(self, topic, *arguments):
            yield queue, min(offset + 1, topic.ends[queue])

    original = OffsetRequests._offsets_at
    return changed((OffsetRequests, "_offsets_at", offsets_at))


def _forgotten_deadlines() -> Any:
    """What ends leaves its deadline behind, until its time."""
    return changed((Leasing, "_attend", lambda *_: None))


def _piled_up_extensions() -> Any:
    """The pairs of earlier deadlines stay."""
    return changed((DeadlineHeap, "_sweep_if_due", lambda _: None))


def _read_from_begin() -> tuple[tuple[object, str, Any], ...]:
    """A lease is read from its first row, held or not; and retention drops what is settled at once, which takes hours elsewhere."""

    def parts(self: RepeatedReceives, topic: Any, group: Any, found: Any) -> Any:
        firsts = {queue: first_held(lease) for queue, lease in found}

        def trimmed(store: Store, topic_id: int, queue: int, start: int, count: int) -> Any:
            first = max(start, firsts.get(queue, start))
            return read_queue(store, topic_id, queue, first, max(0, count - (first - start)))

        with changed((Store, "read_queue", trimmed)):
            return answer(self, topic, group, found)

    answer, read_queue, first_held = RepeatedReceives.parts, Store.read_queue, Lease.first_held.fget  # type: ignore[attr-defined]
    return (Lease, "first_held", property(lambda lease: lease.start)), (RepeatedReceives, "parts", parts)


def _repeat_from_the_lease_s_begin() -> Any:
    """A repeated receive is read from the first row of its lease, which retention may have dropped."""
    return changed(*_read_from_begin())


def _a_bug_costs_all() -> Any:
    """The same, and what it raises leaves the barrier's round: the other readers of it, and the attempt id, wait for ever."""

    def only(answer: Any, _refuse: Any, **_: Any) -> None:
        answer()

    def failed(self: Requests, link: Any, opaque: int, error: Exception) -> None:
        if not isinstance(error, TernError | OSError | StoreError):
            raise error
        original(self, link, opaque, error)

    original = Requests.failed
    return changed(
        *_read_from_begin(), (barrier, "tell", only), (repeated_receives, "tell", only), (Requests, "failed", failed)
    )


def _other_messages_for_a_repeat() -> Any:
    """A receive that is asked again gets what nobody holds."""
    return changed((Replays, "find", lambda *_: []))


DELIVERY = (
    PlantedBug("early_retry", "a nacked message is visible too early", ("attempts",), _early_retry),
    PlantedBug("attempts_not_counted", "attempts stay as they are", ("attempts",), _attempts_not_counted),
    PlantedBug("release_counts", "a release is an attempt", ("attempts", "dead_letters"), _release_counts),
    PlantedBug("one_attempt_more", "a message dies too late", ("attempts", "dead_letters"), _one_attempt_more),
    PlantedBug("buried_twice", "two dead letters of one message", ("dead_letters",), _buried_twice),
    PlantedBug("buried_nowhere", "dead letters are lost", ("dead_letters", "offsets"), _buried_nowhere),
    PlantedBug("dead_and_alive", "what died is delivered again", ("dead_letters", "attempts"), _dead_and_alive),
    PlantedBug("rejection_is_an_ack", "rejected messages vanish", ("dead_letters", "offsets"), _rejection_is_an_ack),
    PlantedBug("next_while_held", "two of one message group in hand", ("group_order",), _next_while_held),
    PlantedBug("next_while_it_rests", "a nack frees its message group", ("group_order",), _next_while_it_rests),
    PlantedBug("early_timer", "delivery times are not kept", ("delays",), _early_timer),
    PlantedBug("late_timer_lost", "late timers are lost", ("delays",), _late_timer_lost),
    PlantedBug("recalled_too_late", "recalled, and delivered", ("delays",), _recalled_too_late),
    PlantedBug("seek_forgets_parked", "a seek passes over what waits", ("seeks", "offsets"), _seek_forgets_parked),
    PlantedBug("forgotten_deadlines", "deadlines of what is over are kept", ("deadlines",), _forgotten_deadlines),
    PlantedBug("piled_up_extensions", "each extension is kept", ("deadlines",), _piled_up_extensions),
    PlantedBug("repeat_from_begin", "repeats read what was trimmed", ("bug",), _repeat_from_the_lease_s_begin),
    PlantedBug("bug_costs_all", "one bug, and all wait", ("unhandled", "stuck"), _a_bug_costs_all),
    PlantedBug("other_messages", "a repeat gets other messages", ("repeats",), _other_messages_for_a_repeat),
    PlantedBug("seek_to_a_later_time", "a seek to a time is one too far", ("seeks",), _seek_to_a_later_time),
)
