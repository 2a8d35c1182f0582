"""Apply a send: rows become positions, offsets and ConsumeQueue bytes with a few array operations
an entry.

A row whose delivery time is still to come becomes a timer instead; its id is the position of its
record, which is unique. Half messages become transactions (preparing.py).

Keys whose first send is in the youngest table are found here. For older keys the leader has put a
receipt behind the records. The receipt is trusted: the leader looked into its files when the state
was the same as now.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.appending import append, distinct
from tern_broker.core.applied import Applied
from tern_broker.core.delivery.slots import Slots
from tern_broker.core.sending.idempotency import KeyTable
from tern_broker.core.sending.placing import Placing
from tern_broker.core.sending.preparing import HalfRows, Preparing
from tern_broker.core.sending.small_sends import WAIT_MAX_MS, apply_few
from tern_broker.core.topics import Names
from tern_wire.array_thresholds import SEND_ROWS_ONE_BY_ONE_MAX
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import SEND_HEAD
from tern_wire.link.key_rows import (
    RECEIPT_ROW_SIZE_BYTES,
    RECEIPT_ROWS,
    SCHEDULED_QUEUE,
    Receipt,
    is_prepared,
    prepared_number,
    prepared_receipts,
    split_keys,
)
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_KEYED,
    KEY_REUSED,
    KEYS_FULL,
    MALFORMED,
    MOVED,
    NO_QUEUE,
    NO_TOPIC,
    NOT_WRITABLE,
    PLAIN_FLAGS,
    PREPARED,
    PREPARED_BEFORE,
    QUEUE_ENTRIES,
    REPLAYED,
    SCHEDULED,
    SCHEDULED_BEFORE,
    SEND_ROWS,
    SEND_VERDICTS,
    SENT,
    QueueAppends,
)
from tern_wire.link.timer_rows import TIMER_ROWS
from tern_wire.routing.route import PERM_WRITE

Rows = npt.NDArray[Any]
_NONE: Rows = np.zeros(0, np.int64)


class SendApplier:
    """Owner: the state machine, whose names and keys it changes."""

    def __init__(self, names: Names, keys: KeyTable, slots: Slots, preparing: Preparing, placing: Placing) -> None:
        self._names, self._keys, self._slots, self._preparing = names, keys, slots, preparing
        self._placing = placing

    def apply(
        self, payload: memoryview, position: int, applied: Applied
    ) -> tuple[Rows, QueueAppends | None, Rows | None, int]:
        """Return verdicts, one for each row, appends, waiting messages (TIMER_ROWS), and the number
        of stored half messages.

        *position* is the position of *payload* in the log.
        """
        now_ms = applied.now_ms
        count, receipts = SEND_HEAD.unpack_from(payload) if len(payload) >= SEND_HEAD.size else (0, 0)
        if 0 < count <= SEND_ROWS_ONE_BY_ONE_MAX and not receipts:
            few = apply_few(payload, count, position, now_ms, self._names, self._keys, self._slots)
            if few is not None:
                return (*few, 0)
        records_at = SEND_HEAD.size + count * SEND_ROWS.itemsize
        records_end = len(payload) - receipts * RECEIPT_ROW_SIZE_BYTES
        if not count:
            return np.zeros(0, SEND_VERDICTS), None, None, 0
        if records_end < records_at:
            raise LinkBodyMalformed(reason=f"a SEND of {count} rows in {len(payload)} bytes")
        rows = np.frombuffer(payload, SEND_ROWS, count, SEND_HEAD.size)
        sizes = rows["size"].astype(np.int64)
        ends = sizes.cumsum()
        verdicts = np.zeros(count, SEND_VERDICTS)
        verdicts["queue"] = rows["queue"]
        carried = _read_receipts(payload, receipts, records_end) if receipts else {}
        if int(ends[-1]) != records_end - records_at or max(carried, default=0) >= count:
            verdicts["status"] = MALFORMED
            return verdicts, None, None, 0
        positions = ends - sizes + (position + records_at)
        away, held = self._refuse_unknown(rows, verdicts)
        is_waiting = rows["deliver_ms"] > now_ms
        half: HalfRows | None = None
        if int(np.bitwise_or.reduce(rows["flags"])) & ~PLAIN_FLAGS:
            half = self._preparing.read(rows, verdicts)
            is_waiting[half.numbers] = False  # theirs is a duration
        has_waiting = bool(is_waiting.any())
        if has_waiting:
            # No proxy of ours writes these: a message that waits has no order, and there is a
            # longest delay.
            is_far = rows["deliver_ms"] > now_ms + WAIT_MAX_MS
            verdicts["status"][is_far | (is_waiting & (rows["message_group"] != 0))] = MALFORMED
        if half is not None:
            self._preparing.spread(half, verdicts)
        if len(away):
            self._refuse_moved(rows, away, verdicts, carried)
        keyed = (rows["flags"] & FLAG_KEYED).nonzero()[0]
        repeats = self._find_repeats(rows, keyed, verdicts, carried) if len(keyed) else {}
        prepared = 0
        if half is not None:
            prepared = self._preparing.prepare(half, rows, positions, verdicts, repeats, applied)
        timers = self._schedule(rows, positions, verdicts, is_waiting) if has_waiting else None
        appends = self._append(rows, positions, verdicts)
        if len(keyed):
            self._remember(rows, keyed, verdicts, repeats, now_ms)
        if len(held):
            for topic_id in np.unique(rows["topic"][held[verdicts["status"][held] == SENT]]).tolist():
                self._placing.stored(self._names.topics_by_id[topic_id], now_ms)
        return verdicts, appends, timers, prepared

    def _refuse_unknown(self, rows: Rows, verdicts: Rows) -> tuple[Rows, Rows]:
        """Refuse rows whose topic or queue does not exist, is not writable, or breaks the order of
        a message group.

        One step for each topic. Return the numbers of the rows that are not refused but belong to
        another broker group that shares the topic; and of the keyed rows that soon will.
        """
        ids, of_row = _numbered(rows["topic"])
        topics = [self._names.topics_by_id.get(topic_id) for topic_id in ids]
        queues = np.array([0 if topic is None else topic.queues for topic in topics])
        verdicts["status"][rows["queue"] >= queues[of_row]] = NO_QUEUE
        grouped = rows["message_group"].nonzero()[0]
        for number in distinct(of_row[grouped]) if len(grouped) else ():
            topic, own = topics[number], grouped[of_row[grouped] == number]
            if topic is not None:
                is_at_home = self._slots.accepts(topic, rows["message_group"][own], rows["queue"][own])
                verdicts["status"][own[~is_at_home]] = NO_QUEUE
        for number, topic in enumerate(topics):
            if topic is None or not topic.perm & PERM_WRITE:
                verdicts["status"][of_row == number] = NO_TOPIC if topic is None else NOT_WRITABLE
        found = [
            self._placing.away(topic, rows, np.flatnonzero((of_row == number) & (verdicts["status"] == SENT)))
            for number, topic in enumerate(topics)
            if topic is not None and topic.is_shared
        ]
        if not found:
            return _NONE, _NONE
        away, held = zip(*found, strict=True)
        return np.concatenate(away), np.concatenate(held)

    def _refuse_moved(self, rows: Rows, away: Rows, verdicts: Rows, carried: dict[int, Receipt]) -> None:
        """Refuse the rows *away*, which belong to another broker group, except for known keys.

        This broker group has answered with the receipts of those keys before.
        """
        keyed = away[(rows["flags"][away] & FLAG_KEYED) != 0]
        known = self._keys.find(*split_keys(keys_of(rows[keyed]))) if len(keyed) else {}
        stored_here = [row for number, row in enumerate(keyed.tolist()) if number in known or row in carried]
        still = away[~np.isin(away, stored_here)] if stored_here else away
        verdicts["status"][still[verdicts["status"][still] == SENT]] = MOVED

    def _find_repeats(self, rows: Rows, keyed: Rows, verdicts: Rows, carried: dict[int, Receipt]) -> dict[int, int]:
        """Mark rows whose key is known; return row -> earlier row of the same command with the same
        key.
        """
        statuses = verdicts["status"]
        keyed = keyed[statuses[keyed] == SENT]
        keys = keys_of(rows[keyed])
        halves = split_keys(keys)
        known, room = self._keys.find(*halves), self._keys.room()
        if not known and not carried and len(keyed) <= room and len(set(halves[0].tolist())) == len(keyed):
            return {}  # the most frequent case: all keys are new
        crcs, are_half = rows["crc"][keyed].tolist(), ((rows["flags"][keyed] & FLAG_HALF) != 0).tolist()
        first_rows: dict[bytes, int] = {}
        repeats: dict[int, int] = {}
        for number, row in enumerate(keyed.tolist()):
            key = keys[number * 16 : number * 16 + 16]
            receipt = carried.get(row) or known.get(number)
            if receipt is not None:
                status, queue, offset = _told(receipt)
                is_same = receipt[2] == crcs[number] and (status == PREPARED_BEFORE) == are_half[number]
                if is_same and are_half[number]:
                    # A transaction of another producer group: this one could not end it.
                    is_same = self._preparing.may_be_of(int(rows["producer_group"][row]), offset)
                verdicts[row] = (status if is_same else KEY_REUSED, queue, offset)
            elif key in first_rows:
                first = repeats[row] = first_rows[key]
                is_same = (
                    rows["crc"][first] == crcs[number]
                    and rows["producer_group"][first] == rows["producer_group"][row]
                    and not (rows["flags"][first] ^ rows["flags"][row]) & FLAG_HALF
                )
                statuses[row] = REPLAYED if is_same else KEY_REUSED
            elif len(first_rows) >= room:
                statuses[row] = KEYS_FULL
            else:
                first_rows[key] = row
        return repeats

    def _schedule(self, rows: Rows, positions: Rows, verdicts: Rows, is_waiting: Rows) -> Rows | None:
        chosen = (is_waiting & (verdicts["status"] == SENT)).nonzero()[0]
        if not len(chosen):
            return None
        verdicts["status"][chosen] = SCHEDULED
        verdicts["offset"][chosen] = positions[chosen]
        timers = np.zeros(len(chosen), TIMER_ROWS)
        timers["timer_id"] = timers["position"] = positions[chosen]
        for name, column in (("topic_id", "topic"), *((name, name) for name in ("deliver_ms", "size", "queue", "tag"))):
            timers[name] = rows[column][chosen]
        return timers

    def _append(self, rows: Rows, positions: Rows, verdicts: Rows) -> QueueAppends | None:
        chosen = (verdicts["status"] == SENT).nonzero()[0]
        if not len(chosen):
            return None
        entries = np.empty(len(chosen), QUEUE_ENTRIES)
        entries["position"], entries["size"], entries["tag"] = (
            positions[chosen],
            rows["size"][chosen],
            rows["tag"][chosen],
        )
        codes = (rows["topic"].astype(np.int64) << 32 | rows["queue"])[chosen]
        appends, verdicts["offset"][chosen] = append(self._names, codes, entries)
        grouped = chosen[rows["message_group"][chosen] != 0]
        if len(grouped):
            self._note_slots(rows[grouped], verdicts["offset"][grouped])
        return appends

    def _note_slots(self, rows: Rows, offsets: Rows) -> None:
        for topic_id in distinct(rows["topic"]):
            of_topic = rows["topic"] == topic_id
            self._slots.sent(
                self._names.topics_by_id[topic_id],
                rows["message_group"][of_topic],
                rows["queue"][of_topic].astype(np.int64),
                offsets[of_topic],
            )

    def _remember(self, rows: Rows, keyed: Rows, verdicts: Rows, repeats: dict[int, int], now_ms: int) -> None:
        statuses = verdicts["status"]
        for row, first_row in repeats.items():
            verdicts["queue"][row] = verdicts["queue"][first_row]
            verdicts["offset"][row] = verdicts["offset"][first_row]
            if statuses[first_row] == SCHEDULED and statuses[row] == REPLAYED:
                statuses[row] = SCHEDULED_BEFORE
        stored = keyed[(statuses[keyed] == SENT) | (statuses[keyed] == SCHEDULED) | (statuses[keyed] == PREPARED)]
        queues, offsets = verdicts["queue"][stored].astype(np.uint64), verdicts["offset"][stored].astype(np.uint64)
        queues |= np.where(statuses[stored] == SCHEDULED, np.uint64(SCHEDULED_QUEUE), np.uint64(0))
        half = (statuses[stored] == PREPARED).nonzero()[0]
        if len(half):
            queues[half], offsets[half] = prepared_receipts(verdicts["offset"][stored[half]])
        self._keys.add(keys_of(rows[stored]), queues, offsets, rows["crc"][stored], now_ms)


def keys_of(rows: Rows) -> bytes:
    """Return the keys of *rows*, combined with their topics' ids.

    A topic created under a deleted one's name has none of its keys.
    """
    halves = np.ascontiguousarray(rows["key"]).view("<u8").reshape(-1, 2)
    halves[:, 0] ^= rows["topic"]
    return halves.tobytes()


def _told(receipt: Receipt) -> tuple[int, int, int]:
    """Return the first send's status, queue and offset, for the answer to a repeat."""
    queue, offset, _ = receipt
    if is_prepared(queue):
        return PREPARED_BEFORE, 0, prepared_number(queue, offset)
    return (SCHEDULED_BEFORE if queue & SCHEDULED_QUEUE else REPLAYED), queue & ~SCHEDULED_QUEUE, offset


def _read_receipts(payload: memoryview, count: int, at: int) -> dict[int, Receipt]:
    """Return receipts by the number of the send row."""
    found = np.frombuffer(payload, RECEIPT_ROWS, count, at)
    columns = (found[name].tolist() for name in ("row", "queue", "offset", "crc"))
    return {row: (queue, offset, crc) for row, queue, offset, crc in zip(*columns, strict=True)}


def _numbered(values: Rows) -> tuple[list[int], Rows]:
    """Return the distinct values, and the index of each value among them."""
    first = values[0]
    if (values == first).all():
        return [int(first)], np.zeros(len(values), np.intp)
    distinct, numbers = np.unique(values, return_inverse=True)
    return distinct.tolist(), numbers
