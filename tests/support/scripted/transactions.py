"""What a scripted broker does with transactions: half messages wait until they are ended, producer groups are settings in a dictionary, and a
check is due when a test says so."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tern_remoting import Link
from tern_wire.errors import (
    ProducerGroupBusy,
    ProducerGroupNotFound,
    TernError,
    TransactionUnknown,
)
from tern_wire.link.requests import ERROR, RequestCode, body_parts, error_parts
from tern_wire.link.rows import (
    FLAG_KEYED,
    FLAG_SAME_TRANSACTION,
    KEY_REUSED,
    NO_PRODUCER_GROUP,
    PREPARED,
    PREPARED_BEFORE,
    TOO_MANY_OPEN,
)
from tern_wire.records.read import decode_record
from tern_wire.settings.producer_settings import ProducerSettings, read_producer_change
from tern_wire.transactions import (
    BY_HAND,
    BY_TEXTS,
    COMMIT,
    END_ROWS,
    END_VERDICTS,
    ENDED,
    ENDED_BEFORE,
    EXPIRED,
    EXPIRED_BEFORE,
    OPEN,
    OTHER_OUTCOME,
    OUTCOME_STATES,
    TRANSACTION_UNKNOWN,
)
from tests.support.scripted.admin import is_listed

Answer = tuple[dict[str, Any], bytes]
BEGUN_MS = 1_700_000_000_000
# Link, opaque, head, and what ends the wait at its deadline.
Wait = tuple[Link, int, dict[str, Any], asyncio.TimerHandle]


@dataclass(kw_only=True)
class Scripted:
    """One transaction. *halves*: topic, queue, record."""

    number: int
    producer_group: str
    check_after_ms: int
    halves: list[tuple[str, int, bytes]] = field(default_factory=list)
    state: str = OPEN
    by: int = 0
    reason: str = ""
    offset: int = -1
    attempts: int = 0


class ScriptedTransactions:
    """*topics*: name -> (id, logs), the broker's; what is committed goes there."""

    def __init__(self, topics: dict[str, tuple[int, list[list[bytes]]]]) -> None:
        self._topics = topics
        self.all: dict[int, Scripted] = {}
        self.groups: dict[str, tuple[int, ProducerSettings]] = {}
        self.revisions: dict[str, int] = {}
        # Numbers whose check is due, and what was handed out: number, checker.
        self.due: list[int] = []
        self.claimed: list[tuple[int, str]] = []
        self.claim_ends_ms = BEGUN_MS + 10_000
        self.is_full = False
        # So many ends came in each request.
        self.ends: list[int] = []
        self._keys: dict[bytes, tuple[int, int]] = {}
        # What became of the last transaction's first row.
        self._last = (PREPARED, 0)
        self._waits: list[Wait] = []

    def __len__(self) -> int:
        """Claims that wait."""
        return len(self._waits)

    def handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], Answer]]:
        """By request."""
        return {
            RequestCode.END_TRANSACTIONS: self._end,
            RequestCode.DESCRIBE_TRANSACTION: self._describe,
            RequestCode.LIST_TRANSACTIONS: self._list,
            RequestCode.RESOLVE_TRANSACTION: self._resolve,
            RequestCode.ALTER_PRODUCER_GROUP: self._alter,
            RequestCode.DELETE_PRODUCER_GROUP: self._delete,
            RequestCode.DESCRIBE_PRODUCER_GROUP: self._describe_groups,
        }

    # Half messages ---------------------------------------------------------------------------------------------
    def prepare(self, row: tuple[Any, ...], head: dict[str, Any], record: bytes) -> tuple[int, int, int]:
        """Status, number and what a replay is told of one half row; *row*: as in SEND_ROWS."""
        _, topic_number, queue, flags, _, crc, group_number, key, check_after_ms, message_group = row
        assert message_group == 0
        name = head["producer_groups"][group_number]
        if name not in self.groups:
            return NO_PRODUCER_GROUP, 0, 0
        if self.is_full:
            return TOO_MANY_OPEN, 0, 0
        half = (head["topics"][topic_number], queue, record)
        if flags & FLAG_SAME_TRANSACTION:
            assert not flags & FLAG_KEYED
            status, number = self._last
            assert self.all[number].producer_group == name
            if status == PREPARED:
                self.all[number].halves.append(half)
            return status, number, 0
        known = self._keys.get(bytes(key)) if flags & FLAG_KEYED else None
        if known is not None:
            number, first_crc = known
            self._last = PREPARED_BEFORE, number
            return (PREPARED_BEFORE if first_crc == crc else KEY_REUSED), number, self.all[number].check_after_ms
        number = (100 + len(self.all)) << 20
        self.all[number] = Scripted(number=number, producer_group=name, check_after_ms=check_after_ms, halves=[half])
        if flags & FLAG_KEYED:
            self._keys[bytes(key)] = (number, crc)
        self._last = PREPARED, number
        return PREPARED, number, 0

    def replay(self, row: int, number: int, check_after_ms: int) -> list[Any]:
        """What a repeated begin is told of the first one."""
        record = decode_record(self.all[number].halves[0][2])
        # As a broker tells it: by the record, which has whole seconds.
        return [row, record.properties["UNIQ_KEY"], record.born_ms, -(-check_after_ms // 1_000) * 1_000]

    def facts(self, names: list[str]) -> list[list[int]]:
        """Ids and times of producer groups, as SEND's reply has them."""
        found = [self.groups.get(name) for name in names]
        return [
            [one[0], one[1].check_after_ms, one[1].check_interval_ms, one[1].max_checks] if one else [0, 0, 0, 0]
            for one in found
        ]

    # Ends ------------------------------------------------------------------------------------------------------
    def _end(self, head: dict[str, Any], raw: memoryview) -> Answer:
        rows = np.frombuffer(raw, END_ROWS, head["rows"]).tolist()
        assert len(raw) == len(rows) * END_ROWS.itemsize
        self.ends.append(len(rows))
        verdicts = [self._ended(number, group_id, outcome, by) for number, _, group_id, outcome, by, _ in rows]
        return {}, np.array(verdicts, END_VERDICTS).tobytes()

    def _ended(
        self, number: int, group_id: int, outcome: int, by: int, reason: str = ""
    ) -> tuple[int, int, int, int, int, int, int]:
        found = self.all.get(number)
        if found is None or self.groups[found.producer_group][0] != group_id:
            return TRANSACTION_UNKNOWN, 0, 0, 0, 0, 0, -1
        status = ENDED
        if found.state == EXPIRED and by != BY_HAND:
            return EXPIRED_BEFORE, 0, 0, 0, 0, 0, -1
        if found.state in {OPEN, EXPIRED}:
            found.state, found.by, found.reason = OUTCOME_STATES[outcome], by, reason
            if outcome == COMMIT:
                self._show(found)
        else:
            status = ENDED_BEFORE if found.state == OUTCOME_STATES[outcome] else OTHER_OUTCOME
            outcome = next(known for known, state in OUTCOME_STATES.items() if state == found.state)
        topic, queue, _ = found.halves[0]
        return status, outcome, queue, len(found.halves), self._topics[topic][0], found.by, found.offset

    def _show(self, found: Scripted) -> None:
        for topic, queue, record in found.halves:
            log = self._topics[topic][1][queue]
            if found.offset < 0:
                found.offset = len(log)
            log.append(record[:20] + len(log).to_bytes(8, "big") + record[28:])

    def _resolve(self, head: dict[str, Any], _: memoryview) -> Answer:
        by = head.get("by", BY_HAND)
        numbers = self._ended(head["number"], head["producer_group_id"], head["outcome"], by, reason=head["reason"])
        names = ("status", "outcome", "queue", "messages", "topic_id", "by", "offset")
        return dict(zip(names, numbers, strict=True)), b""

    # What there is ---------------------------------------------------------------------------------------------
    def _document(self, found: Scripted) -> dict[str, Any]:
        is_over = found.state not in {OPEN, EXPIRED}
        messages = [[topic, queue, len(record), found.offset] for topic, queue, record in found.halves]
        return {
            "number": found.number,
            "producer_group": found.producer_group,
            "producer_group_id": self.groups[found.producer_group][0],
            "state": found.state,
            "begun_ms": BEGUN_MS,
            "check_at_ms": BEGUN_MS + 6_000 if found.state == OPEN else 0,
            "attempts": found.attempts,
            "ended_ms": BEGUN_MS + 1_000 if is_over else 0,
            "by": BY_TEXTS.get(found.by, ""),
            "reason": found.reason,
            "message_count": len(found.halves),
            "messages": messages[:1] if is_over else messages,
            "checks": [[number, BEGUN_MS, "checker-1", "unknown", 3] for number in range(1, found.attempts + 1)],
        }

    def _describe(self, head: dict[str, Any], _: memoryview) -> Answer:
        found = self.all.get(head["number"])
        if found is None or self.groups[found.producer_group][0] != head["producer_group_id"]:
            raise TransactionUnknown()
        return {"transaction": self._document(found)}, b""

    def _list(self, head: dict[str, Any], _: memoryview) -> Answer:
        if head["producer_group"] and head["producer_group"] not in self.groups:
            raise ProducerGroupNotFound(producer_group=head["producer_group"])
        states = {head["state"]} if head["state"] else {OPEN, EXPIRED}
        found = [
            one
            for number, one in sorted(self.all.items())
            if number > head["after"]
            and one.state in states
            and head["producer_group"] in {"", one.producer_group}
            and head["older_than_ms"] < 60_000
        ]
        shown = found[: head["limit"]]
        return {"transactions": [self._document(one) for one in shown], "more": len(found) > len(shown)}, b""

    # Producer groups -------------------------------------------------------------------------------------------
    def _alter(self, head: dict[str, Any], _: memoryview) -> Answer:
        change = read_producer_change(head)
        created = change.producer_group not in self.groups
        if created and not change.create:
            raise ProducerGroupNotFound(producer_group=change.producer_group)
        name = change.producer_group
        group_id, settings = self.groups.get(name, (len(self.groups) + 1, ProducerSettings()))
        revision = 0 if created else self.revisions.get(name, 0)
        if change.revision <= revision and change.revision:
            change = replace(change, settings={})
        self.groups[name] = (group_id, change.applied_to(settings))
        decided = max(revision + 1, change.least_revision) if change.least_revision else revision
        self.revisions[name] = max(decided, change.revision)
        return {"created": created, **self._group(change.producer_group)}, b""

    def _group(self, name: str) -> dict[str, Any]:
        group_id, settings = self.groups[name]
        revision = self.revisions.get(name, 0)
        return {"producer_group": name, "producer_group_id": group_id, **settings.packed(), "revision": revision}

    def _described(self, name: str) -> dict[str, Any]:
        states = [one.state for one in self.all.values() if one.producer_group == name]
        counts = {"open": OPEN, "expired": EXPIRED, "committed": "committed", "rolled_back": "rolled-back"}
        stats = {count: states.count(state) for count, state in counts.items()}
        return {**self._group(name), "stats": {**stats, "checks": len(self.claimed)}}

    def _describe_groups(self, head: dict[str, Any], _: memoryview) -> Answer:
        if name := head["producer_group"]:
            if name not in self.groups:
                raise ProducerGroupNotFound(producer_group=name)
            return {"groups": [self._described(name)], "more": False}, b""
        names = sorted(name for name in self.groups if name > head["after"] and is_listed(head, name))
        shown = names[: head["limit"]]
        return {"groups": [self._described(name) for name in shown], "more": len(names) > len(shown)}, b""

    def _delete(self, head: dict[str, Any], _: memoryview) -> Answer:
        name = head["producer_group"]
        stats = self._described(name)["stats"] if name in self.groups else {}
        if stats.get("open") or stats.get("expired"):
            raise ProducerGroupBusy(producer_group=name, open=stats["open"], expired=stats["expired"])
        return {"deleted": self.groups.pop(name, None) is not None}, b""

    # Checks ----------------------------------------------------------------------------------------------------
    def claim(self, link: Link, opaque: int, head: dict[str, Any]) -> None:
        """CLAIM_CHECKS: answered now, when a check is due, or at the deadline."""
        if head["producer_group"] not in self.groups:
            raise ProducerGroupNotFound(producer_group=head["producer_group"])

        def late() -> None:
            self._waits.remove(wait)
            link.reply(opaque, 0, body_parts({"checks": []}))

        timer = asyncio.get_running_loop().call_later(head["wait_ms"] / 1_000, late)
        wait = (link, opaque, head, timer)
        self._waits.append(wait)
        self.wake()

    def wake(self) -> None:
        """Perhaps a check is due."""
        for wait in list(self._waits):
            link, opaque, head, timer = wait
            numbers = [n for n in self.due if self.all[n].producer_group == head["producer_group"]][: head["max"]]
            if numbers:
                self._waits.remove(wait)
                timer.cancel()
                self.due = [number for number in self.due if number not in numbers]
                self.claimed += [(number, head["checker"]) for number in numbers]
                found = [self.all[number] for number in numbers]
                records = [record for one in found for _, _, record in one.halves]
                link.reply(opaque, 0, body_parts({"checks": [self._check(one) for one in found]}, records))

    def _check(self, found: Scripted) -> list[Any]:
        found.attempts += 1
        messages = [[topic, queue, len(record)] for topic, queue, record in found.halves]
        group_id = self.groups[found.producer_group][0]
        claim = len(self.claimed)
        return [
            *(found.number, claim, found.attempts, found.producer_group, group_id, BEGUN_MS, self.claim_ends_ms),
            messages,
        ]

    def refuse(self, error: TernError) -> None:
        """Not the leader any more."""
        for link, opaque, _, timer in self._waits:
            timer.cancel()
            link.reply(opaque, ERROR, error_parts(error))
        self._waits.clear()
