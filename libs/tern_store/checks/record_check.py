"""Offline check of records: commands that store records hold intact ones, with matching rows.

Storing commands are SEND, COPY and BURY. Law: all records of a span are checked as columns, across
entries; only wrong ones are looked at one by one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern_store.checks.finding import FindingKind, Findings
from tern_store.checks.log_check import LogSpan
from tern_store.checksum import crc32
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryKind
from tern_wire.dead_letters import NOTES_QUEUE, is_dead_topic
from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.link.commands import SEND_HEAD, STORING, CommandKind, read_entry
from tern_wire.link.key_rows import RECEIPT_ROW_SIZE_BYTES
from tern_wire.link.rows import BURY_ROWS, MOVE_ROWS, SEND_ROWS
from tern_wire.records.columns import RecordColumns, read_columns
from tern_wire.records.key_hashes import tag_codes

Numbers = npt.NDArray[np.int64]
# The part of the checksum that RocketMQ stores as a body's CRC.
_CRC_MASK = 0x7FFFFFFF
_AT_BODY_CRC = 8
_ROWS: dict[int, np.dtype[np.void]] = {
    CommandKind.SEND: SEND_ROWS,
    CommandKind.STAGE: SEND_ROWS,
    CommandKind.COPY: MOVE_ROWS,
    CommandKind.BURY: BURY_ROWS,
}


@dataclass(frozen=True, slots=True)
class StoredSend:
    """One command that stores records (SEND, COPY or BURY) of entry *index*.
    *row_bytes*: its rows; *records*: its records, which begin at *position* of the log. A copied
    record may be a dead letter: its rows then name the dead-letter topic, and the record names its
    own.
    """

    index: int
    now_ms: int
    position: int
    row_bytes: memoryview
    records: memoryview
    is_copy: bool = False

    @property
    def rows(self) -> npt.NDArray[np.void]:
        """Its rows, of SEND_ROWS."""
        return np.frombuffer(self.row_bytes, SEND_ROWS)

    @property
    def row_count(self) -> int:
        """Number of records by its rows."""
        return len(self.row_bytes) // SEND_ROWS.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPlaces:
    """Places of n records and the fields of their queue entries; shape (n,), positions
    ascending.
    """

    positions: Numbers
    sizes: Numbers
    tags: Numbers
    topics: Numbers
    queues: Numbers


def sends_of(span: LogSpan, on_malformed: Callable[[int, int, str], None]) -> Iterator[StoredSend]:
    """The storing commands of *span*, in order.
    *on_malformed* receives malformed ones: entry, position in the log, reason.
    """
    view = memoryview(span.data)
    for header in span.headers:
        if header.kind is not EntryKind.COMMANDS:
            continue
        body_at = header.position + HEADER_SIZE_BYTES
        body = view[body_at - span.position : header.position + header.size - span.position]
        try:
            now_ms, commands = read_entry(body)
        except LinkBodyMalformed as error:
            on_malformed(header.index, body_at, str(error.fields["reason"]))
            continue
        for command in commands:
            if command.kind not in STORING:
                continue
            payload, at = command.payload, body_at + command.at
            row_size = _ROWS[command.kind].itemsize
            count, behind = SEND_HEAD.unpack_from(payload) if len(payload) >= SEND_HEAD.size else (0, 0)
            records_at = SEND_HEAD.size + count * row_size
            # Behind the records: receipts, or the bytes of a stage's head.
            behind_size = 1 if command.kind == CommandKind.STAGE else RECEIPT_ROW_SIZE_BYTES
            records_end = len(payload) - behind * behind_size
            if command.kind == CommandKind.BURY and not count and records_at == len(payload):
                continue  # there was nothing left to bury
            if not count or records_at > records_end:
                on_malformed(header.index, at, f"{count} rows of records in {len(payload)} bytes")
                continue
            rows, records = payload[SEND_HEAD.size : records_at], payload[records_at:records_end]
            if command.kind == CommandKind.COPY:
                rows = _send_rows(rows, records)
            elif command.kind == CommandKind.BURY:
                rows = _note_rows(rows)
            is_copy = command.kind == CommandKind.COPY
            yield StoredSend(header.index, now_ms, at + records_at, rows, records, is_copy)


def _send_rows(move_rows: memoryview, records: memoryview) -> memoryview:
    """Convert the rows of copied records to those of a send, with the CRC from the record
    itself.
    """
    moved = np.frombuffer(move_rows, MOVE_ROWS)
    rows = np.zeros(len(moved), SEND_ROWS)
    for name in ("size", "topic", "queue", "tag"):
        rows[name] = moved[name]
    at = 0
    for number, size in enumerate(moved["size"].tolist()):
        rows["crc"][number] = int.from_bytes(records[at + _AT_BODY_CRC : at + _AT_BODY_CRC + 4], "big")
        at += size
    return memoryview(rows.tobytes())


def _note_rows(bury_rows: memoryview) -> memoryview:
    """Convert the rows of a BURY's notes to those of a send: notes are in their queue and have no
    body.
    """
    buried = np.frombuffer(bury_rows, BURY_ROWS)
    rows = np.zeros(len(buried), SEND_ROWS)
    rows["size"], rows["topic"], rows["tag"] = buried["note_size"], buried["dead_topic"], buried["tag"]
    rows["queue"] = NOTES_QUEUE
    return memoryview(rows.tobytes())


class RecordCheck:
    """Checks the records of one log, span by span. Owner: the check of a directory."""

    def __init__(self, findings: Findings, place: Callable[[int], tuple[Path, int]], topics: dict[int, bytes]) -> None:
        """*place*: the file and byte of a log position; *topics*: known names by id."""
        self._findings, self._place, self._topics = findings, place, topics
        self.record_count = 0

    def check(self, span: LogSpan) -> RecordPlaces:
        """Report damage in *span*; return the places of its records."""
        sends = list(sends_of(span, self._malformed))
        found = self._check_together(sends)
        if found is None:
            # Something does not match: the check of single commands finds the place.
            parts = [part for send in sends if (part := self._check_alone(send)) is not None]
            found = joined(parts)
        self.record_count += len(found.positions)
        return found

    def _check_together(self, sends: list[StoredSend]) -> RecordPlaces | None:
        if not sends:
            return joined([])
        rows = np.frombuffer(b"".join([send.row_bytes for send in sends]), SEND_ROWS)
        sizes = [len(send.records) for send in sends]
        try:
            columns = read_columns(sends[0].records if len(sends) == 1 else b"".join([send.records for send in sends]))
        except RecordMalformed:
            return None
        if len(columns) != len(rows) or (columns.heads["size"] != rows["size"]).any():
            return None
        # The log position of each record's command minus its position in the columns.
        shifts = np.array([send.position for send in sends], np.int64) - np.cumsum([0, *sizes[:-1]], dtype=np.int64)
        counts = [send.row_count for send in sends]
        starts = np.searchsorted(columns.starts, np.cumsum([0, *sizes[:-1]], dtype=np.int64))
        if (np.diff(np.append(starts, len(columns))) != counts).any():
            return None
        positions = columns.starts + np.repeat(shifts, counts)
        tags = tag_codes(columns)
        is_copy = np.repeat([send.is_copy for send in sends], counts)
        self._compare(rows, columns, tags, positions, is_copy)
        return RecordPlaces(
            positions=positions,
            sizes=rows["size"].astype(np.int64),
            tags=tags,
            topics=rows["topic"].astype(np.int64),
            queues=rows["queue"].astype(np.int64),
        )

    def _check_alone(self, send: StoredSend) -> RecordPlaces | None:
        found = self._check_together([send])
        if found is not None:
            return found
        try:
            columns = read_columns(send.records)
            reason = f"{send.row_count} rows for {len(columns)} records, or of other sizes"
            self._malformed(send.index, send.position, reason)
        except RecordMalformed as error:
            self._malformed(send.index, send.position + int(error.fields["position"]), str(error.fields["reason"]))
        return None

    def _compare(
        self,
        rows: npt.NDArray[np.void],
        columns: RecordColumns,
        tags: Numbers,
        positions: Numbers,
        is_copy: npt.NDArray[np.bool_],
    ) -> None:
        front = columns.heads
        # A copied dead letter still names its original topic and queue.
        is_dead = is_copy.copy()
        for topic_id in np.unique(rows["topic"][is_copy]).tolist():
            name = self._topics.get(topic_id)
            is_dead[(rows["topic"] == topic_id) & (name is not None and not is_dead_topic(name))] = False
        crcs = _body_crcs(columns)
        for is_wrong, what in (
            (crcs != front["body_crc"], "the record's body does not have its CRC"),
            (front["body_crc"] != rows["crc"], "the send row has another body CRC than the record"),
            ((front["queue"] != rows["queue"]) & ~is_dead, "the send row names another queue than the record"),
            (tags != rows["tag"], "the send row has another tag hash than the record"),
            (
                self._other_topics(np.where(is_dead, 0, rows["topic"]), columns),
                "the record names another topic than its topic's other records",
            ),
        ):
            for number in np.flatnonzero(is_wrong).tolist():
                self._add(int(positions[number]), what)
                if self._findings.is_full:
                    return

    def _other_topics(self, ids: npt.NDArray[np.uint32], columns: RecordColumns) -> npt.NDArray[np.bool_]:
        """Where a record's topic differs from that of its id.
        Id 0 is no topic: such sends were refused.
        """
        wrong = np.zeros(len(ids), np.bool_)
        for topic_id in np.unique(ids).tolist():
            members = np.flatnonzero(ids == topic_id)
            starts, sizes = columns.topic_starts[members], columns.topic_sizes[members]
            name = self._topics.get(topic_id)
            if name is None:
                name = bytes(columns.data[starts[0] : starts[0] + sizes[0]])
                if topic_id:
                    self._topics[topic_id] = name
            if topic_id:
                same = sizes == len(name)
                letters = columns.octets[starts[same][:, None] + np.arange(len(name))]
                same[same] = (letters == np.frombuffer(name, np.uint8)).all(axis=1)
                wrong[members] = ~same
        return wrong

    def _malformed(self, index: int, position: int, reason: str) -> None:
        self._add(position, f"entry {index}: {reason}")

    def _add(self, position: int, reason: str) -> None:
        self._findings.add(FindingKind.RECORD, *self._place(position), reason)


def _body_crcs(columns: RecordColumns) -> Numbers:
    view = memoryview(columns.data)
    starts = columns.body_starts
    ends = starts + columns.heads["body_size"]
    crcs = [crc32(view[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(crcs, np.int64) & _CRC_MASK


def joined(parts: list[RecordPlaces]) -> RecordPlaces:
    """Concatenate places."""

    def column(name: str) -> Numbers:
        return np.concatenate([np.zeros(0, np.int64), *(getattr(part, name) for part in parts)])

    return RecordPlaces(
        positions=column("positions"),
        sizes=column("sizes"),
        tags=column("tags"),
        topics=column("topics"),
        queues=column("queues"),
    )
