"""Applying a send: rows become positions, offsets and ConsumeQueue bytes with a handful of array operations an entry."""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.idempotency import KeyTable
from tern_broker.core.topics import Names
from tern_wire.commands import SEND_HEAD
from tern_wire.errors import LinkBodyMalformed
from tern_wire.rows import (
    FLAG_KEYED,
    KEY_REUSED,
    KEYS_FULL,
    MALFORMED,
    NO_QUEUE,
    NO_TOPIC,
    QUEUE_ENTRIES,
    REPLAYED,
    SEND_ROWS,
    SEND_VERDICTS,
    SENT,
    QueueAppends,
)

Rows = npt.NDArray[Any]


class SendApplier:
    """Owner: the state machine, whose names and keys it changes."""

    def __init__(self, names: Names, keys: KeyTable) -> None:
        self._names, self._keys = names, keys

    def apply(self, payload: memoryview, position: int, now_ms: int) -> tuple[Rows, QueueAppends | None]:
        """Verdicts, one a row, and what to append. *position* is where *payload* lies in the log."""
        count = SEND_HEAD.unpack_from(payload)[0] if len(payload) >= SEND_HEAD.size else 0
        records_at = SEND_HEAD.size + count * SEND_ROWS.itemsize
        if not count:
            return np.zeros(0, SEND_VERDICTS), None
        if len(payload) < records_at:
            raise LinkBodyMalformed(reason=f"a SEND of {count} rows in {len(payload)} bytes")
        rows = np.frombuffer(payload, SEND_ROWS, count, SEND_HEAD.size)
        sizes = rows["size"].astype(np.int64)
        ends = np.cumsum(sizes)
        verdicts = np.zeros(count, SEND_VERDICTS)
        verdicts["queue"] = rows["queue"]
        if int(ends[-1]) != len(payload) - records_at:
            verdicts["status"] = MALFORMED
            return verdicts, None
        positions = ends - sizes + (position + records_at)
        self._refuse_unknown(rows, verdicts)
        keyed = np.flatnonzero(rows["flags"] & FLAG_KEYED)
        repeats = self._find_repeats(rows, keyed, verdicts) if len(keyed) else {}
        appends = self._append(rows, positions, verdicts)
        if len(keyed):
            self._remember(rows, keyed, verdicts, repeats, now_ms)
        return verdicts, appends

    def _refuse_unknown(self, rows: Rows, verdicts: Rows) -> None:
        for topic_id in _distinct(rows["topic"]):
            topic = self._names.topics_by_id.get(topic_id)
            of_topic = rows["topic"] == topic_id
            if topic is None:
                verdicts["status"][of_topic] = NO_TOPIC
            else:
                verdicts["status"][of_topic & (rows["queue"] >= topic.queues)] = NO_QUEUE

    def _find_repeats(self, rows: Rows, keyed: Rows, verdicts: Rows) -> dict[int, int]:
        """Mark rows whose key is known; returns row -> earlier row of the same entry with the same key."""
        keyed = keyed[verdicts["status"][keyed] == SENT]
        keys, crcs = rows["key"][keyed].tobytes(), rows["crc"][keyed].tolist()
        known, room = self._keys.find(keys), self._keys.room()
        statuses = verdicts["status"]
        first_rows: dict[bytes, int] = {}
        repeats: dict[int, int] = {}
        for number, row in enumerate(keyed.tolist()):
            key = keys[number * 16 : number * 16 + 16]
            if number in known:
                queue, offset, crc = known[number]
                verdicts[row] = (REPLAYED if crc == crcs[number] else KEY_REUSED, queue, offset)
            elif key in first_rows:
                first = repeats[row] = first_rows[key]
                statuses[row] = REPLAYED if rows["crc"][first] == crcs[number] else KEY_REUSED
            elif len(first_rows) >= room:
                statuses[row] = KEYS_FULL
            else:
                first_rows[key] = row
        return repeats

    def _append(self, rows: Rows, positions: Rows, verdicts: Rows) -> QueueAppends | None:
        chosen = np.flatnonzero(verdicts["status"] == SENT)
        if not len(chosen):
            return None
        codes = (rows["topic"].astype(np.int64) << 32 | rows["queue"])[chosen]
        bounds = None
        if len(codes) > 1 and not (codes == codes[0]).all():
            order = np.argsort(codes, kind="stable")
            chosen, codes = chosen[order], codes[order]
            bounds = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1], [True])))
        entries = np.empty(len(chosen), QUEUE_ENTRIES)
        entries["position"], entries["size"], entries["tag"] = (
            positions[chosen],
            rows["size"][chosen],
            rows["tag"][chosen],
        )
        if bounds is None:
            (first,) = self._move_ends([int(codes[0])], [len(chosen)])
            verdicts["offset"][chosen] = np.arange(first, first + len(chosen))
            return QueueAppends(codes[:1], np.array([first]), np.array([0, len(chosen)]), entries)
        codes, counts = codes[bounds[:-1]], np.diff(bounds)
        firsts = np.array(self._move_ends(codes.tolist(), counts.tolist()), np.int64)
        verdicts["offset"][chosen] = np.arange(len(chosen)) + np.repeat(firsts - bounds[:-1], counts)
        return QueueAppends(codes, firsts, bounds, entries)

    def _move_ends(self, codes: list[int], counts: list[int]) -> list[int]:
        """Give each queue of *codes* so many more messages; the first new offset of each."""
        firsts = []
        topic_id, ends = -1, [0]
        for code, count in zip(codes, counts, strict=True):
            if code >> 32 != topic_id:
                topic_id = code >> 32
                ends = self._names.topics_by_id[topic_id].ends
            queue = code & 0xFFFFFFFF
            firsts.append(ends[queue])
            ends[queue] += count
        return firsts

    def _remember(self, rows: Rows, keyed: Rows, verdicts: Rows, repeats: dict[int, int], now_ms: int) -> None:
        for row, first_row in repeats.items():
            verdicts["queue"][row] = verdicts["queue"][first_row]
            verdicts["offset"][row] = verdicts["offset"][first_row]
        stored = keyed[verdicts["status"][keyed] == SENT]
        queues, offsets = verdicts["queue"][stored].astype(np.uint64), verdicts["offset"][stored].astype(np.uint64)
        self._keys.add(rows["key"][stored].tobytes(), queues, offsets, rows["crc"][stored].tolist(), now_ms)


def _distinct(values: Rows) -> list[int]:
    """Distinct values; the common case of one is found without sorting."""
    first = values[0]
    if (values == first).all():
        return [int(first)]
    return [int(value) for value in np.unique(values)]
