"""Transactions: begun by half messages, checked, and ended once. One part of the state machine.

Law: an end is one entry. A committed transaction becomes visible whole: all its messages are in one
append of that entry, at the end of each queue. A rolled back one is dropped. A transaction ends
once: a repeat of the same end gets the result of the first, the other end is refused. Messages of a
topic that was deleted meanwhile are dropped from a commit; the others appear.

A check never ends a transaction. A client's answer counts however late it arrives. Only a parked
transaction, checked too often without an answer, is left to operators (RESOLVE_TRANSACTION), who
may end open ones as well.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.appending import append
from tern_broker.core.applied import Applied, Counters, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.recent_texts import RecentTexts
from tern_broker.core.topics import Names
from tern_broker.core.transactions.check_schedule import CheckSchedule
from tern_broker.core.transactions.open_transactions import MESSAGE, MESSAGES, PARKED, OpenTransactions, read_messages
from tern_broker.core.transactions.outcomes import Outcomes
from tern_broker.core.transactions.producers import Producers
from tern_broker.core.transactions.requests import read_claim, read_reports, read_resolution
from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import REASONS_KEPT_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import MOVED_HALF, QUEUE_ENTRIES
from tern_wire.transactions import (
    BY_CHECK,
    BY_CLIENT,
    BY_HAND,
    CHECK_NOT_YOURS,
    CHECK_NOTED,
    COMMIT,
    END_ROWS,
    END_VERDICTS,
    ENDED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    OTHER_OUTCOME,
    ROLLBACK,
    TRANSACTION_UNKNOWN,
)

Rows = npt.NDArray[Any]


class Transactions:
    """Owner: the state machine."""

    def __init__(self, names: Names, producers: Producers, counters: Counters) -> None:
        self._names, self.producers, self._counters = names, producers, counters
        self.table = OpenTransactions()
        self.outcomes = Outcomes()
        self.texts, self.reasons = RecentTexts(), RecentTexts(REASONS_KEPT_MAX)
        self.schedule = CheckSchedule(self.table, producers, self.texts)
        producers.on_altered.append(self.schedule.altered)

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {
            CommandKind.END_TRANSACTIONS: self._end,
            CommandKind.RESOLVE_TRANSACTION: self._resolve,
            CommandKind.CLAIM_CHECKS: self._claim,
            CommandKind.REPORT_CHECKS: self._report,
        }

    def is_due(self, now_ms: int) -> bool:
        """Return whether a check or the end of a claim is due."""
        return self.schedule.is_due(now_ms)

    def expire(self, applied: Applied) -> None:
        """Advance the schedule of checks to the entry's time."""
        has_due, given_up = self.schedule.advance(applied.now_ms)
        applied.checks_due |= has_due
        self._counters.checks_given_up += given_up

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {
            "open": self.table.pack(),
            "outcomes": self.outcomes.pack(),
            "texts": self.texts.pack(),
            "reasons": self.reasons.pack(),
            "next_claim": self.schedule.next_claim,
        }

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return max(self.table.windows(), self.outcomes.windows(), self.texts.windows(), self.reasons.windows())

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        tables = (self.table, self.outcomes, self.texts, self.reasons)
        return [self.schedule.next_claim, *(table.window(number) for table in tables)]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*. The producer groups are restored already."""
        self.table.unpack(packed["open"])
        self.outcomes.unpack(packed["outcomes"])
        self.texts.unpack(packed["texts"])
        self.reasons.unpack(packed["reasons"])
        self.schedule.restore(packed["next_claim"])

    # Effects of other commands --------------------------------------------------------------------
    def begin(self, numbers: Rows, groups: Rows, now_ms: int, at_ms: Rows, messages: list[bytes]) -> None:
        """Begin transactions whose half messages a SEND has stored; all of shape (n,), one for each
        transaction.

        The caller has checked that there is room.
        """
        added = self.table.add(numbers, groups, now_ms, at_ms, messages)
        # Usually one time for all, stored once.
        times: dict[int, int] = {}
        self.schedule.begun(zip((times.setdefault(each, each) for each in at_ms.tolist()), added, strict=True))
        for group_id, count in Counter(groups.tolist()).items():
            self.producers.by_id[group_id].open += count
        self._counters.prepared += len(numbers)

    def moved(self, rows: Rows, positions: npt.NDArray[np.int64]) -> None:
        """Update the positions of half messages among *rows* (MOVE_ROWS) that a COPY has moved to
        *positions*.
        """
        for number in np.flatnonzero(rows["kind"] == MOVED_HALF).tolist():
            self.table.move(int(rows["number"][number]), int(rows["deliver_ms"][number]), int(positions[number]))

    # Ends -----------------------------------------------------------------------------------------
    def _end(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        if len(payload) % END_ROWS.itemsize:
            raise LinkBodyMalformed(reason=f"END_TRANSACTIONS of {len(payload)} bytes")
        rows = np.frombuffer(payload, END_ROWS)
        if not are_ends(rows):
            raise LinkBodyMalformed(reason="END_TRANSACTIONS with an unknown outcome or originator")
        return self._end_all(rows, "", applied)

    def _resolve(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        request = read_resolution(read_map(payload))
        rows = np.zeros(1, END_ROWS)
        rows["number"], rows["producer_group"] = request.number, request.producer_group_id
        rows["outcome"], rows["by"] = request.outcome, request.by
        verdict = self._end_all(rows, request.reason, applied)[0]
        facts: dict[str, Any] = {name: int(verdict[name]) for name in END_VERDICTS.names or ()}
        return {**facts, "topic_id": facts.pop("topic")}

    def _end_all(self, rows: Rows, reason: str, applied: Applied) -> Rows:
        """End the transactions of *rows*, which are all well-formed; return verdicts."""
        verdicts = np.zeros(len(rows), END_VERDICTS)
        verdicts["offset"] = -1
        # Row -> slot of transactions that end now; number -> row of the same.
        ending: dict[int, int] = {}
        first_rows: dict[int, int] = {}
        repeats: list[tuple[int, int]] = []
        columns = (rows[name].tolist() for name in ("number", "producer_group", "outcome", "by"))
        for row, (number, group_id, outcome, by) in enumerate(zip(*columns, strict=True)):
            slot = self.table.slots.get(number)
            if slot is None or self.table.get("group", slot) != group_id:
                self._tell_outcome(verdicts[row : row + 1], number, group_id, outcome)
            elif number in first_rows:
                repeats.append((row, first_rows[number]))
            elif by != BY_HAND and self.table.get("phase", slot) == PARKED:
                verdicts["status"][row] = EXPIRED_BEFORE
            else:
                first_rows[number], ending[row] = row, slot
                verdicts["status"][row], verdicts["outcome"][row], verdicts["by"][row] = ENDED, outcome, by
        self._commit([(row, slot) for row, slot in ending.items() if rows["outcome"][row] == COMMIT], verdicts, applied)
        told: list[Any] = verdicts.tolist() if ending else []
        for row, slot in ending.items():
            changed = self._forget(slot, told[row], reason, applied.now_ms)
            if changed != told[row]:
                verdicts[row] = changed
        for row, first in repeats:
            is_same = rows["outcome"][row] == rows["outcome"][first]
            verdicts[row] = verdicts[first]
            verdicts["status"][row] = ENDED_BEFORE if is_same else OTHER_OUTCOME
        return verdicts

    def _tell_outcome(self, verdict: Rows, number: int, group_id: int, outcome: int) -> None:
        found = self.outcomes.find(number)
        if found is None or found["group"] != group_id:
            verdict["status"] = TRANSACTION_UNKNOWN
            return
        verdict["outcome"], verdict["by"] = found["how"] >> 4, found["how"] & 15
        verdict["status"] = ENDED_BEFORE if found["how"] >> 4 == outcome else OTHER_OUTCOME
        for name in ("queue", "messages", "topic", "offset"):
            verdict[name] = found[name]

    def _commit(self, chosen: list[tuple[int, int]], verdicts: Rows, applied: Applied) -> None:
        """Make the messages of *chosen*, (row, slot), visible together."""
        if not chosen:
            return
        parts = [self.table.messages[slot] for _, slot in chosen]
        messages = read_messages(b"".join(parts))
        owners = np.repeat([row for row, _ in chosen], [len(part) // MESSAGES.itemsize for part in parts])
        topics = set(messages["topic"].tolist())
        known = [topic_id for topic_id in topics if topic_id in self._names.topics_by_id]
        if len(known) < len(topics):
            is_there = np.isin(messages["topic"], known)
            messages, owners = messages[is_there], owners[is_there]
        if not len(messages):
            return
        entries = np.empty(len(messages), QUEUE_ENTRIES)
        for name in ("position", "size", "tag"):
            entries[name] = messages[name]
        codes = messages["topic"].astype(np.int64) << 32 | messages["queue"]
        appends, offsets = append(self._names, codes, entries)
        applied.appends.append(appends)
        applied.woken_topics |= appends.topic_ids()
        applied.committed.append(messages)
        firsts, first_of, counts = np.unique(owners, return_index=True, return_counts=True)
        for name, values in (("queue", messages["queue"]), ("topic", messages["topic"]), ("offset", offsets)):
            verdicts[name][firsts] = values[first_of]
        verdicts["messages"][firsts] = counts

    def _forget(self, slot: int, verdict: tuple[int, ...], reason: str, now_ms: int) -> tuple[int, ...]:
        """Drop an ended transaction; return its *verdict* (END_VERDICTS), completed if no message
        became visible.
        """
        table = self.table
        group = self.producers.by_id[table.get("group", slot)]
        status, outcome, queue, count, topic, by, offset = verdict
        if table.get("phase", slot) == PARKED:
            group.expired -= 1
        else:
            group.open -= 1
        if outcome == COMMIT:
            group.committed += 1
            self._counters.committed += 1
        else:
            group.rolled_back += 1
            self._counters.rolled_back += 1
            count = len(table.messages[slot]) // MESSAGES.itemsize
        _, _, size, first_topic, first_queue, _ = MESSAGE.unpack_from(table.messages[slot])
        if offset < 0:
            queue, topic = first_queue, first_topic
        self.outcomes.add(
            (
                *(table.get("number", slot), table.get("begun_ms", slot), now_ms, offset),
                *(group.producer_group_id, topic, size, self.reasons.number(reason)),
                *(queue, count, table.get("attempts", slot)),
                outcome << 4 | by,
            )
        )
        self.schedule.ended(slot)
        table.drop(slot)
        return status, outcome, queue, count, topic, by, offset

    # Checks ---------------------------------------------------------------------------------------
    def _claim(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        request = read_claim(read_map(payload))
        name = request.producer_group
        claimed = self.schedule.claim(
            applied.now_ms,
            self.producers.require(name).producer_group_id if name else 0,
            request.checker,
            count_max=request.count_max,
            claim_ms=request.claim_ms,
            size_max_bytes=request.size_max_bytes,
        )
        self._counters.checks += len(claimed)
        return {"checks": claimed}

    def _report(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        reports = read_reports(read_map(payload))
        return bytes(
            CHECK_NOTED if self.schedule.report(applied.now_ms, *report) else CHECK_NOT_YOURS for report in reports
        )


def are_ends(rows: Rows) -> bool:
    """Return whether all END_ROWS are valid: commit or rollback, by a client or a check."""
    outcome, by = rows["outcome"], rows["by"]
    is_known = (outcome == COMMIT) | (outcome == ROLLBACK)
    return bool((is_known & ((by == BY_CLIENT) | (by == BY_CHECK))).all())
