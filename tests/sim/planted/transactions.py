"""Planted bugs of transactions and their checks."""

from typing import Any

import numpy as np

from tern_broker.core.appending import append
from tern_broker.core.sending.preparing import Preparing
from tern_broker.core.transactions import check_schedule
from tern_broker.core.transactions.check_schedule import CheckSchedule
from tern_broker.core.transactions.ends import Transactions
from tern_broker.core.transactions.open_transactions import DUE, MESSAGES, PARKED, OpenTransactions, read_messages
from tern_broker.core.transactions.outcomes import Outcomes
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.transactions import COMMIT, ENDED, ENDED_BEFORE, LOST
from tests.sim.planted.planting import PlantedBug, changed

EARLY_MS = 150


def _every(number: int, count: int) -> bool:
    """Whether transaction *number* is one in *count*."""
    return (number >> 20) % count == 0


def _show(transactions: Transactions, data: bytes, applied: Any) -> None:
    if not data:
        return
    messages = read_messages(data)
    entries = np.empty(len(messages), QUEUE_ENTRIES)
    for name in ("position", "size", "tag"):
        entries[name] = messages[name]
    codes = messages["topic"].astype(np.int64) << 32 | messages["queue"]
    appends, _ = append(transactions._names, codes, entries)
    applied.appends.append(appends)


def _half_published() -> Any:
    """One transaction in five is visible as soon as it was begun."""

    def begin(self: Preparing, *arguments: Any) -> int:
        known = set(self._transactions.table.slots)
        stored = original(self, *arguments)
        table = self._transactions.table
        for number in sorted(set(table.slots) - known):
            if _every(number, 5):
                _show(self._transactions, table.messages[table.slots[number]], arguments[-1])
        return stored

    original = Preparing._begin
    return changed((Preparing, "_begin", begin))


def _prepare_dropped() -> Any:
    """One transaction in five is acknowledged, and that is all."""

    def begin(self: Transactions, numbers: Any, *arguments: Any) -> None:
        original(self, numbers, *arguments)
        for number in numbers.tolist():
            if _every(number, 5):
                slot = self.table.slots[number]
                self.producers.by_id[self.table.get("group", slot)].open -= 1
                self.table.drop(slot)

    original = Transactions.begin
    return changed((Transactions, "begin", begin))


def _ended_twice() -> Any:
    """A commit that is asked for again is done again, unless the node was started anew in between."""

    def forget(self: Transactions, slot: int, *arguments: Any) -> Any:
        vars(self).setdefault("kept", {})[self.table.get("number", slot)] = self.table.messages[slot]
        return original(self, slot, *arguments)

    def end_all(self: Transactions, rows: Any, reason: str, applied: Any) -> Any:
        verdicts = end(self, rows, reason, applied)
        for row in np.flatnonzero((verdicts["status"] == ENDED_BEFORE) & (rows["outcome"] == COMMIT)).tolist():
            _show(self, vars(self).get("kept", {}).get(int(rows["number"][row]), b""), applied)
        return verdicts

    original, end = Transactions._forget, Transactions._end_all
    return changed((Transactions, "_forget", forget), (Transactions, "_end_all", end_all))


def _commit_torn() -> Any:
    """Of one commit in three the last message stays invisible, if there are several."""

    def commit(self: Transactions, chosen: list[tuple[int, int]], *arguments: Any) -> None:
        for _, slot in chosen:
            data = self.table.messages[slot]
            if _every(self.table.get("number", slot), 3) and len(data) > MESSAGES.itemsize:
                self.table.messages[slot] = data[: -MESSAGES.itemsize]
                self.table.message_count -= 1
        original(self, chosen, *arguments)

    original = Transactions._commit
    return changed((Transactions, "_commit", commit))


def _commit_in_two_entries() -> Any:
    """The last message of several comes with the next entry, unless the node is started anew in between."""

    def commit(self: Transactions, chosen: list[tuple[int, int]], verdicts: Any, applied: Any) -> None:
        whole = {slot: self.table.messages[slot] for _, slot in chosen}
        for slot, data in whole.items():
            self.table.messages[slot] = data[: -MESSAGES.itemsize] or data
        original(self, chosen, verdicts, applied)
        late = vars(self).setdefault("late", [])
        for slot, data in whole.items():
            if len(data) > MESSAGES.itemsize:
                late.append(data[-MESSAGES.itemsize :])
            self.table.messages[slot] = data
        for row, slot in chosen:
            verdicts["messages"][row] = len(whole[slot]) // MESSAGES.itemsize

    def expire(self: Transactions, applied: Any) -> None:
        late, vars(self)["late"] = vars(self).get("late", []), []
        for data in late:
            _show(self, data, applied)
        check(self, applied)

    original, check = Transactions._commit, Transactions.expire
    return changed((Transactions, "_commit", commit), (Transactions, "expire", expire))


def _attempt_forgotten() -> Any:
    """An attempt that nobody has reported does not count."""

    def over(self: CheckSchedule, slot: int, group: Any, answer: str, *arguments: Any) -> None:
        if answer == LOST:
            self._table.set(slot, attempts=self._table.get("attempts", slot) - 1)
        original(self, slot, group, answer, *arguments)

    original = CheckSchedule._over
    return changed((CheckSchedule, "_over", over))


def _given_up_early() -> Any:
    """The last attempt is not made, if there are to be several."""

    def put(self: CheckSchedule, slot: int, phase: int, at_ms: int) -> None:
        group = self._group(slot)
        attempts = self._table.get("attempts", slot)
        if phase == DUE and not self._table.get("passes", slot) and attempts == group.settings.max_checks - 1 > 0:
            phase = PARKED
            group.open, group.expired = group.open - 1, group.expired + 1
        original(self, slot, phase, at_ms)

    original = CheckSchedule._put
    return changed((CheckSchedule, "_put", put))


def _early_check() -> Any:
    """Checks are due 150 ms too early, and claims end as much too early."""

    def advance(self: CheckSchedule, now_ms: int) -> Any:
        return original(self, now_ms + EARLY_MS)

    original = CheckSchedule.advance
    return changed((CheckSchedule, "advance", advance))


def _claim_not_passed_on() -> Any:
    """A claim that ends without a report ends its attempt."""
    return changed((check_schedule, "PASSES_MAX", 1))


def _stale_report_noted() -> Any:
    """A report of an old claim is noted as the new one's."""

    def report(self: CheckSchedule, now_ms: int, number: int, claim: int, *arguments: Any) -> bool:
        slot = self._table.slots.get(number)
        current = self._table.get("claim", slot) if slot is not None else 0
        return original(self, now_ms, number, current or claim, *arguments)

    original = CheckSchedule.report
    return changed((CheckSchedule, "report", report))


def _check_overrides() -> Any:
    """What a checker answers counts even after the client's end, if it is another answer."""

    def end_all(self: Transactions, rows: Any, *arguments: Any) -> Any:
        verdicts = original(self, rows, *arguments)
        for row in np.flatnonzero((rows["claim"] != 0) | (rows["number"] >> 20) % 3 == 0).tolist():
            if verdicts["outcome"][row] not in {0, rows["outcome"][row]}:
                verdicts["status"][row], verdicts["outcome"][row] = ENDED, rows["outcome"][row]
        return verdicts

    original = Transactions._end_all
    return changed((Transactions, "_end_all", end_all))


def _rolled_back_when_given_up() -> Any:
    """Who was asked in vain is rolled back."""

    def advance(self: CheckSchedule, now_ms: int) -> Any:
        told = original(self, now_ms)
        for slot in self._table.used().tolist():
            if self._table.get("phase", slot) == PARKED:
                self._group(slot).expired -= 1
                self._table.drop(slot)
        return told

    original = CheckSchedule.advance
    return changed((CheckSchedule, "advance", advance))


def _outcome_forgotten() -> Any:
    """A node that starts from a saved state does not know how transactions have ended."""
    return changed((Outcomes, "unpack", lambda *_: None))


def _due_forgotten() -> Any:
    """A node that starts from a saved state does not know whose time had come."""

    def restore(self: CheckSchedule, next_claim: int) -> None:
        original(self, next_claim)
        self._due.clear()
        self._due_counts.clear()

    original = CheckSchedule.restore
    return changed((CheckSchedule, "restore", restore))


def _halves_swapped() -> Any:
    """Retention copies half messages, and the first one of a transaction is then taken for the last one."""

    def move(self: OpenTransactions, number: int, ordinal: int, position: int) -> None:
        slot = self.slots.get(number)
        last = len(self.messages[slot]) // MESSAGES.itemsize - 1 if slot is not None else 0
        original(self, number, last - ordinal, position)

    original = OpenTransactions.move
    return changed((OpenTransactions, "move", move))


def _halves_not_needed() -> Any:
    """Retention drops half messages."""

    def records_below(self: OpenTransactions, position: int) -> Any:
        rows, positions = original(self, position)
        return rows[:0], positions[:0]

    original = OpenTransactions.records_below
    return changed((OpenTransactions, "records_below", records_below))


TRANSACTIONS = (
    PlantedBug("half_published", "visible before the commit", ("transactions",), _half_published),
    PlantedBug("prepare_dropped", "an acknowledged begin is forgotten", ("transactions",), _prepare_dropped),
    PlantedBug("ended_twice", "a commit appends again", ("transactions",), _ended_twice),
    PlantedBug("commit_torn", "a part is committed", ("transactions",), _commit_torn),
    PlantedBug("commit_in_two_entries", "a part comes later", ("transactions", "state_digest"), _commit_in_two_entries),
    PlantedBug("attempt_forgotten", "lost attempts do not count", ("checks",), _attempt_forgotten),
    PlantedBug("given_up_early", "given up an attempt too early", ("checks",), _given_up_early),
    PlantedBug("early_check", "asked before the time", ("checks",), _early_check),
    PlantedBug("claim_not_passed_on", "an attempt dies with its checker", ("checks",), _claim_not_passed_on),
    PlantedBug("stale_report_noted", "an old claim is reported", ("checks",), _stale_report_noted),
    PlantedBug("check_overrides", "a check is believed more than its client", ("transactions",), _check_overrides),
    PlantedBug("gone_when_given_up", "parked ones vanish", ("transactions",), _rolled_back_when_given_up),
    PlantedBug("outcome_forgotten", "a restart forgets outcomes", ("transactions", "state_digest"), _outcome_forgotten),
    PlantedBug("due_forgotten", "a restart forgets who is due", ("checks", "state_digest"), _due_forgotten),
    PlantedBug(
        "halves_swapped",
        "half messages are moved to each other's place",
        ("transactions", "unhandled", "stuck"),
        _halves_swapped,
    ),
    PlantedBug(
        "halves_not_needed", "half messages are dropped", ("transactions", "unhandled", "stuck"), _halves_not_needed
    ),
)
