"""The schedule of checks: times, claims, reports. Decided from the entry's time alone.

A transaction is due at its time; then it waits for a checker to claim it. A claim belongs to one
checker until it ends. A claim that ends without a report passes the same attempt on once more; when
the second claim ends so, the attempt is lost, and counts. The next check is one interval after the
report, or after the end of the claim. A transaction with max_checks attempts is parked when the
next check's time comes.

A producer group without a check URL has to request its checks. A transaction that is due for a
whole interval without a request uses up an attempt, so that it comes to an end too. Transactions of
a group with a URL wait for a checker without a limit: the availability of a checker is up to the
cluster, not to the producer.

Law: no step visits all transactions. Times are in heaps, and due transactions in one heap for each
producer group. Stale pairs are skipped when they come up, and never outnumber the true ones. An
entry moves at most MOVES_MAX pairs; the rest moves with the next entry, which follows at once since
`is_due` is true.
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
# A claim that ends without a report is passed on until the attempt was handed out this often.
PASSES_MAX = 2
_STALE_MAX = 256


@dataclass(slots=True)
class _Heap:
    """(time, number) of transactions in one of *phases*, the time from column *time*; some pairs
    are stale. Owner: the schedule.
    """

    table: OpenTransactions
    phases: tuple[int, ...]
    time: str = "at_ms"
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def push(self, at_ms: int, number: int, most: int) -> None:
        """Add a pair; there are at most *most* true pairs. With far more pairs than that, drop the
        stale ones.
        """
        heapq.heappush(self.pairs, (at_ms, number))
        if len(self.pairs) > 2 * most + _STALE_MAX:
            self.pairs = sorted({pair for pair in self.pairs if self.is_true(pair)})

    def first(self) -> tuple[int, int] | None:
        """Return the earliest true pair; None if there is none."""
        while self.pairs and not self.is_true(self.pairs[0]):
            heapq.heappop(self.pairs)
        return self.pairs[0] if self.pairs else None

    def is_true(self, pair: tuple[int, int]) -> bool:
        """Return whether the pair still matches the table."""
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
        # Times at which a due check of a group without a URL is counted as lost, unless it is
        # requested before.
        self._vain = _Heap(table, (DUE,), "vain_ms")
        # Producer group's id -> its due transactions, and their number; only groups that have some.
        self._due: dict[int, _Heap] = {}
        self._due_counts: dict[int, int] = {}
        self.next_claim = 1

    def begun(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Schedule (time of the first check, number) of transactions that were just added."""
        for at_ms, number in pairs:
            self._times.push(at_ms, number, len(self._table))

    def ended(self, slot: int) -> None:
        """Unschedule a transaction that is about to leave the table."""
        self._leave(slot)

    def is_due(self, now_ms: int) -> bool:
        """Return whether `advance` would change anything."""
        return any((first := heap.first()) is not None and first[0] <= now_ms for heap in (self._times, self._vain))

    def advance(self, now_ms: int) -> tuple[bool, int]:
        """Process due times; return whether there is a check to claim now, and how many
        transactions were parked.
        """
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
        """Return how many checks of that group could be claimed now; 0: of all groups with a check
        URL.
        """
        return sum(self._due_counts[group_id] for group_id in self._claimable(producer_group_id))

    def claim(
        self, now_ms: int, producer_group_id: int, checker: str, *, count_max: int, claim_ms: int, size_max_bytes: int
    ) -> list[list[int]]:
        """Claim at most *count_max* checks of that group (0: of all groups with a check URL);
        return [number, claim, attempt] of each.

        Longest due first. Groups take turns, so that a group with many does not delay the others.
        The records take at most *size_max_bytes* together, except that the first check always fits.
        Each claim lasts *claim_ms*, and for a group with a check URL additionally as long as the
        call may take.
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
        """Record the result of a claimed check; False if the claim is no longer valid."""
        slot = self._table.slots.get(number)
        if slot is None or self._table.get("phase", slot) != CLAIMED or self._table.get("claim", slot) != claim:
            return False
        self._over(slot, self._group(slot), answer, latency_ms, now_ms)
        return True

    def altered(self, group: ProducerGroup, now_ms: int) -> None:
        """Apply new settings of the group: its due transactions wait for a request, or for a
        checker, from now on.
        """
        due = self._due.get(group.producer_group_id)
        for pair in sorted({pair for pair in due.pairs if due.is_true(pair)}) if due is not None else ():
            slot = self._table.slots[pair[1]]
            if bool(self._table.get("vain_ms", slot)) == bool(group.settings.check_url):
                self._await_asking(slot, group, now_ms)

    def restore(self, next_claim: int) -> None:
        """Rebuild the schedule from a saved state's table."""
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

    # Helpers --------------------------------------------------------------------------------------
    def _await_asking(self, slot: int, group: ProducerGroup, from_ms: int) -> None:
        """Start the time limit for a request of the check, if its group has to request it."""
        vain_ms = 0 if group.settings.check_url else from_ms + group.settings.check_interval_ms
        self._table.set(slot, vain_ms=vain_ms)
        if vain_ms:
            self._vain.push(vain_ms, self._table.get("number", slot), len(self._table))

    def _advance_vain(self, now_ms: int) -> bool:
        """End the attempt of the next transaction that was due for an interval without a request;
        False if there is none.
        """
        first = self._vain.first()
        if first is None or first[0] > now_ms:
            return False
        heapq.heappop(self._vain.pairs)
        slot = self._table.slots[first[1]]
        group, table = self._group(slot), self._table
        interval_ms = group.settings.check_interval_ms
        if group.asked_ms + interval_ms > now_ms:
            # The group makes requests, which returned other transactions: this one waits for its
            # turn.
            self._await_asking(slot, group, group.asked_ms)
        elif table.get("passes", slot):
            self._over(slot, group, LOST, 0, now_ms - interval_ms)
        else:
            table.set(slot, attempts=table.get("attempts", slot) + 1, claimed_ms=table.get("at_ms", slot), checker=0)
            self._over(slot, group, NOT_ASKED, 0, now_ms - interval_ms)
        return True

    def _over(self, slot: int, group: ProducerGroup, answer: str, latency_ms: int, from_ms: int) -> None:
        """End an attempt; the next check is one interval after *from_ms*."""
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
