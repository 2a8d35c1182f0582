"""When which transaction is asked about, and who asks: times, claims, reports. Decided from the entry's time alone.

A transaction is due when its time has come; then it waits for a checker to claim it. A claim is one checker's until its end. A claim that
ends without a report passes the same attempt on once more; when the second one ends so, the attempt is lost, and counts. The next check is
one interval after the report, or after the end of the claim. Who has been asked about max_checks times is parked when the next check's
time comes.

A producer group without a check URL has to ask for its checks. One that is due while nobody asks, for a whole interval, is an attempt in
vain, which counts as well: so its transactions come to an end, too. Those of a group with a URL wait for a checker however long: that
there is one is the cluster's business, not the producer's.

Law: nothing here looks at all transactions. Times lie in heaps, what is due in one heap for each producer group; pairs in them that are
not true any more are skipped when they come up, and there are never more of those than of true ones. An entry moves at most MOVES_MAX of
them; what is left moves with the next, which follows at once since `is_due` says so.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from tern_broker.core.recent_texts import RecentTexts
from tern_broker.core.transactions.open_transactions import CLAIMED, DUE, NOTES, PARKED, WAITING, OpenTransactions
from tern_broker.core.transactions.producers import ProducerGroup, Producers
from tern_wire.limits import CHECKS_KEPT_MAX
from tern_wire.transactions import LOST, NOT_ASKED

# Some 15 ms of work.
MOVES_MAX = 2_048
# A claim that ends without a report is passed on until the attempt was handed out so often.
PASSES_MAX = 2
_STALE_MAX = 256


@dataclass(slots=True)
class _Heap:
    """(time, number) of transactions in one of *phases*, the time as column *time* has it; some pairs are stale. Owner: the schedule."""

    table: OpenTransactions
    phases: tuple[int, ...]
    time: str = "at_ms"
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def push(self, at_ms: int, number: int, most: int) -> None:
        """There are *most* true pairs at the most: far beyond that, the stale ones go."""
        heapq.heappush(self.pairs, (at_ms, number))
        if len(self.pairs) > 2 * most + _STALE_MAX:
            self.pairs = sorted({pair for pair in self.pairs if self.is_true(pair)})

    def first(self) -> tuple[int, int] | None:
        """The earliest true pair; None if there is none."""
        while self.pairs and not self.is_true(self.pairs[0]):
            heapq.heappop(self.pairs)
        return self.pairs[0] if self.pairs else None

    def is_true(self, pair: tuple[int, int]) -> bool:
        """Whether it still says what the table says."""
        slot = self.table.slots.get(pair[1])
        return (
            slot is not None
            and self.table.get("phase", slot) in self.phases
            and self.table.get(self.time, slot) == pair[0]
        )


class CheckSchedule:
    """Owner: the state machine, whose transactions and producer groups it changes."""

    def __init__(self, table: OpenTransactions, producers: Producers, texts: RecentTexts) -> None:
        self._table, self._producers, self._texts = table, producers, texts
        self._times = _Heap(table, (WAITING, CLAIMED))
        # When it is in vain that a check of a group without a URL is due, unless somebody asks before.
        self._vain = _Heap(table, (DUE,), "vain_ms")
        # Producer group's id -> what of it is due, and how many; only those that have some.
        self._due: dict[int, _Heap] = {}
        self._due_counts: dict[int, int] = {}
        self.next_claim = 1

    def begun(self, pairs: Iterable[tuple[int, int]]) -> None:
        """(time of the first check, number) of transactions that were just added."""
        for at_ms, number in pairs:
            self._times.push(at_ms, number, len(self._table))

    def ended(self, slot: int) -> None:
        """The transaction is about to leave the table."""
        self._leave(slot)

    def is_due(self, now_ms: int) -> bool:
        """Whether `advance` would do something."""
        return any((first := heap.first()) is not None and first[0] <= now_ms for heap in (self._times, self._vain))

    def advance(self, now_ms: int) -> tuple[bool, int]:
        """What has come due does; whether there is something to claim now, and how many were parked."""
        is_due, parked = False, 0
        for _ in range(MOVES_MAX):
            first = self._times.first()
            if first is None or first[0] > now_ms:
                if not self._advance_vain(now_ms):
                    break
                continue
            heapq.heappop(self._times.pairs)
            at_ms, number = first
            slot = self._table.slots[number]
            group = self._group(slot)
            if self._table.get("phase", slot) == CLAIMED:
                if self._table.get("passes", slot) >= PASSES_MAX:
                    self._over(slot, group, LOST, 0, at_ms)
                    continue
                self._put(slot, DUE, at_ms)
                self._await_asking(slot, group, now_ms)
            elif self._table.get("attempts", slot) >= group.settings.max_checks:
                self._put(slot, PARKED, at_ms)
                group.open, group.expired = group.open - 1, group.expired + 1
                parked += 1
                continue
            else:
                self._table.set(slot, passes=0)
                self._put(slot, DUE, at_ms)
                self._await_asking(slot, group, now_ms)
            is_due = True
        return is_due, parked

    def available(self, producer_group_id: int) -> int:
        """How many checks of that group could be claimed now; 0: of all that have a check URL."""
        return sum(self._due_counts[group_id] for group_id in self._claimable(producer_group_id))

    def claim(
        self, now_ms: int, producer_group_id: int, checker: str, *, count_max: int, claim_ms: int, size_max_bytes: int
    ) -> list[list[int]]:
        """At most *count_max* checks of that group (0: of all that have a check URL), longest due first: [number, claim, attempt] of each.

        Groups take turns, so that one with many does not keep the others waiting. Together at most *size_max_bytes* of records, but for the
        first one's. Each is the checker's for *claim_ms*, and where somebody is to be called, for as long as that call may take on top of it.
        """
        if producer_group_id:
            self._producers.by_id[producer_group_id].asked_ms = now_ms
        turns = [
            (first, group_id) for group_id in self._claimable(producer_group_id) if (first := self._first(group_id))
        ]
        waiting = deque(group_id for _, group_id in sorted(turns))
        text = self._texts.number(checker)
        claimed: list[list[int]] = []
        size = 0
        while waiting and len(claimed) < count_max:
            group_id = waiting.popleft()
            first = self._first(group_id)
            if first is None:
                continue
            slot = self._table.slots[first[1]]
            size += self._table.get("size", slot)
            if claimed and size > size_max_bytes:
                break
            attempts, passes = self._table.get("attempts", slot), self._table.get("passes", slot)
            group = self._group(slot)
            if not passes:
                attempts += 1
                group.checks += 1
            self._table.set(
                slot, attempts=attempts, passes=passes + 1, claim=self.next_claim, claimed_ms=now_ms, checker=text
            )
            called_ms = group.settings.timeout_ms if group.settings.check_url else 0
            self._put(slot, CLAIMED, now_ms + claim_ms + called_ms)
            claimed.append([first[1], self.next_claim, attempts])
            self.next_claim += 1
            waiting.append(group_id)
        return claimed

    def report(self, now_ms: int, number: int, claim: int, answer: str, latency_ms: int) -> bool:
        """A checker tells what came of its claim; False if it is not the claim's any more."""
        slot = self._table.slots.get(number)
        if slot is None or self._table.get("phase", slot) != CLAIMED or self._table.get("claim", slot) != claim:
            return False
        self._over(slot, self._group(slot), answer, latency_ms, now_ms)
        return True

    def altered(self, group: ProducerGroup, now_ms: int) -> None:
        """The group has other settings: what of it is due waits for somebody to ask, or for a checker, from now on."""
        due = self._due.get(group.producer_group_id)
        for pair in sorted({pair for pair in due.pairs if due.is_true(pair)}) if due is not None else ():
            slot = self._table.slots[pair[1]]
            if bool(self._table.get("vain_ms", slot)) == bool(group.settings.check_url):
                self._await_asking(slot, group, now_ms)

    def restore(self, next_claim: int) -> None:
        """Take up what a saved state's table says."""
        self.next_claim = next_claim
        table = self._table
        for slot in table.used().tolist():
            phase, pair = table.get("phase", slot), (table.get("at_ms", slot), table.get("number", slot))
            group = self._group(slot)
            if phase == PARKED:
                group.expired += 1
                continue
            group.open += 1
            if phase == DUE:
                self._count(group.producer_group_id, 1)
                self._due.setdefault(group.producer_group_id, _Heap(table, (DUE,))).pairs.append(pair)
                if vain_ms := table.get("vain_ms", slot):
                    self._vain.pairs.append((vain_ms, pair[1]))
            else:
                self._times.pairs.append(pair)
        for heap in (self._times, self._vain, *self._due.values()):
            heap.pairs.sort()

    # Below -----------------------------------------------------------------------------------------------------
    def _await_asking(self, slot: int, group: ProducerGroup, from_ms: int) -> None:
        """It is due: if its group has to ask for it, for one interval."""
        vain_ms = 0 if group.settings.check_url else from_ms + group.settings.check_interval_ms
        self._table.set(slot, vain_ms=vain_ms)
        if vain_ms:
            self._vain.push(vain_ms, self._table.get("number", slot), len(self._table))

    def _advance_vain(self, now_ms: int) -> bool:
        """The next one that was due in vain for an interval has its next check now; False if there is none."""
        first = self._vain.first()
        if first is None or first[0] > now_ms:
            return False
        heapq.heappop(self._vain.pairs)
        slot = self._table.slots[first[1]]
        group, table = self._group(slot), self._table
        interval_ms = group.settings.check_interval_ms
        if group.asked_ms + interval_ms > now_ms:
            # Somebody asks, and was given others: it has its turn.
            self._await_asking(slot, group, group.asked_ms)
        elif table.get("passes", slot):
            self._over(slot, group, LOST, 0, now_ms - interval_ms)
        else:
            table.set(slot, attempts=table.get("attempts", slot) + 1, claimed_ms=table.get("at_ms", slot), checker=0)
            self._over(slot, group, NOT_ASKED, 0, now_ms - interval_ms)
        return True

    def _over(self, slot: int, group: ProducerGroup, answer: str, latency_ms: int, from_ms: int) -> None:
        """An attempt is over; the next check is one interval from *from_ms*."""
        table = self._table
        asked = (table.get("claimed_ms", slot), table.get("checker", slot))
        told = (self._texts.number(answer), latency_ms, table.get("attempts", slot), 0)
        note = np.array([(*asked, *told)], NOTES)
        table.notes[slot] = (table.notes[slot] + note.tobytes())[-CHECKS_KEPT_MAX * NOTES.itemsize :]
        table.set(slot, claim=0, passes=0)
        self._put(slot, WAITING, from_ms + group.settings.check_interval_ms)

    def _put(self, slot: int, phase: int, at_ms: int) -> None:
        self._leave(slot)
        self._table.set(slot, phase=phase, at_ms=at_ms)
        number = self._table.get("number", slot)
        if phase == DUE:
            group_id = self._table.get("group", slot)
            count = self._count(group_id, 1)
            self._due.setdefault(group_id, _Heap(self._table, (DUE,))).push(at_ms, number, count)
        elif phase != PARKED:
            self._times.push(at_ms, number, len(self._table))

    def _leave(self, slot: int) -> None:
        if self._table.get("phase", slot) == DUE:
            self._count(self._table.get("group", slot), -1)

    def _count(self, group_id: int, change: int) -> int:
        count = self._due_counts.get(group_id, 0) + change
        if count:
            self._due_counts[group_id] = count
        else:
            del self._due_counts[group_id]
            self._due.pop(group_id, None)
        return count

    def _first(self, group_id: int) -> tuple[int, int] | None:
        heap = self._due.get(group_id)
        return heap.first() if heap is not None else None

    def _claimable(self, producer_group_id: int) -> list[int]:
        if producer_group_id:
            return [producer_group_id] if producer_group_id in self._due_counts else []
        return [group_id for group_id in self._due_counts if self._producers.by_id[group_id].settings.check_url]

    def _group(self, slot: int) -> ProducerGroup:
        return self._producers.by_id[self._table.get("group", slot)]
