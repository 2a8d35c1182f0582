"""A stopped node's messages as a RocketMQ store: one record per queue entry, with its own offset.

Law: everything that RocketMQ derives from a record must match our queue entry. A record that is
delivered by reference is therefore written once per reference, with the topic and queue of that
entry, as committed, and with the time at which it became visible (which is what RocketMQ does when
it delivers a delayed message). All other bytes stay. A damaged record ends the export, since a
broker would drop it and everything behind it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern_cli.store.rocketmq_topics import own_topic
from tern_store.checksum import crc32
from tern_store.errors import StoreError
from tern_store.offline import OfflineStore
from tern_store.rocketmq.order import EntryMerge, Rows
from tern_store.rocketmq.queues import RocketQueue
from tern_store.rocketmq.store import RocketSettings, RocketStoreWriter, RocketTopic
from tern_wire.errors import LinkBodyMalformed, RecordMalformed
from tern_wire.records.columns import RecordColumns, read_columns
from tern_wire.records.java_hashes import blocks, unit_positions
from tern_wire.records.layout import COMMITTED, TOPIC_SIZE_MAX_BYTES, TRANSACTION
from tern_wire.records.queue_entry import is_queued
from tern_wire.records.read import decode_record, decode_rocketmq_record
from tern_wire.records.write import encode_rocketmq_record

# Bytes of the log in memory at a time, except for one larger record.
BATCH_SIZE_MAX_BYTES = 8 << 20
BATCH_ROWS_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSummary:
    """Result of an export.
    *left_out*: topics whose names RocketMQ reserves. *settings*: settings that a broker needs.
    """

    messages: int
    topics: int
    queues: int
    size_bytes: int
    segments: int
    index_entries: int
    first_position: int
    left_out: list[str]
    settings: dict[str, int]


class RocketExport:
    """One export. Owner: the command. `messages` is the number to write; `run` runs once."""

    def __init__(self, store: OfflineStore, settings: RocketSettings) -> None:
        """Read topic names and the ends of queues; errors are those of `OfflineStore.read`."""
        self._store, self._settings = store, settings
        self._keys: list[tuple[int, int]] = []
        self._names: list[bytes] = []
        self._topics: dict[str, int] = {topic.name: topic.queues for topic in store.topics.values()}
        for topic_id, queue in store.queue_keys():
            name = self._name(topic_id, queue)
            self._topics[name] = max(self._topics.get(name, 0), queue + 1)
            if not own_topic(name) and store.queues.min(topic_id, queue) < store.queues.end(topic_id, queue):
                self._keys.append((topic_id, queue))
                self._names.append(name.encode())
        self.left_out = sorted(name for name in self._topics if own_topic(name))
        self._ranges = [(store.queues.min(*key), store.queues.end(*key)) for key in self._keys]
        self.messages = sum(end - first for first, end in self._ranges)
        sizes = [len(name) for name in self._names]
        self._name_sizes = np.array(sizes, np.int64)
        self._name_starts = np.cumsum(self._name_sizes) - self._name_sizes
        self._name_units = np.frombuffer(b"".join(self._names), np.uint8)

    def run(self, directory: Path, progress: Callable[[int, int], None]) -> ExportSummary:
        """Write the store into the empty *directory*.
        *progress* gets messages and bytes as written. LogRot, DerivedDamage or StoreError when data
        is damaged; OSError when the disk is full.
        """
        queues = [
            RocketQueue(name.decode(), queue, first)
            for name, (_, queue), (first, _) in zip(self._names, self._keys, self._ranges, strict=True)
        ]
        writer = RocketStoreWriter(directory, queues, self._settings)
        size_bytes = 0
        try:
            for rows in _batches(EntryMerge(self._ranges, self._read_entries)):
                data, columns = self._records(rows)
                writer.add(data, columns, rows["source"].astype(np.int64), rows["offset"])
                size_bytes += len(data)
                progress(len(rows), len(data))
            topics = [
                RocketTopic(name, count) for name, count in sorted(self._topics.items()) if name not in self.left_out
            ]
            groups = self._store.config("subscriptionGroup.json").get("subscriptionGroupTable", {})
            writer.finish(topics, groups=groups, offsets=self._offsets(queues))
        finally:
            writer.close()
        return ExportSummary(
            messages=writer.messages,
            topics=len(topics),
            queues=len(queues),
            size_bytes=size_bytes,
            segments=writer.segments,
            index_entries=writer.index_entries,
            first_position=writer.first_position,
            left_out=self.left_out,
            settings=self._settings.unusual(),
        )

    def _offsets(self, queues: list[RocketQueue]) -> dict[str, dict[str, int]]:
        """Return the committed offsets of groups.
        A queue without messages restarts at 0: pre-blanks alone would hide later messages.
        """
        ends = {(queue.topic, str(queue.queue)): end for queue, (_, end) in zip(queues, self._ranges, strict=True)}
        table = self._store.config("consumerOffset.json").get("offsetTable", {})
        return {
            key: {queue: min(int(offset), ends.get((key.partition("@")[0], queue), 0)) for queue, offset in row.items()}
            for key, row in table.items()
        }

    # Entries and names ----------------------------------------------------------------------------
    def _read_entries(self, source: int, offset: int, count: int) -> Rows:
        topic_id, queue = self._keys[source]
        entries = self._store.entries(topic_id, queue, offset, count)
        if not len(entries):
            raise StoreError(f"queue {topic_id}/{queue} has no entry {offset}, but it should")
        return entries

    def _name(self, topic_id: int, queue: int) -> str:
        """Return the topic's name: from the configuration, else from a record of the queue."""
        topic = self._store.topics.get(topic_id)
        if topic is not None:
            return topic.name
        entries = self._store.entries(topic_id, queue, self._store.queues.min(topic_id, queue), 1)
        if not len(entries):
            return f"topic-{topic_id}"
        record = self._store.read(entries["position"].astype(np.int64), entries["size"].astype(np.int64))
        try:
            return decode_record(record).topic
        except LinkBodyMalformed as error:
            raise StoreError(f"the first record of queue {topic_id}/{queue} is not one: {error.detail}") from error

    # Records --------------------------------------------------------------------------------------
    def _records(self, rows: Rows) -> tuple[memoryview, RecordColumns]:
        sizes = rows["size"].astype(np.int64)
        data = self._store.read(rows["position"].astype(np.int64), sizes)
        columns = self._columns(data, rows)
        if not np.array_equal(columns.starts, np.cumsum(sizes) - sizes):
            number = int(np.flatnonzero(columns.heads["size"] != sizes[: len(columns)])[0])
            raise self._unsound(rows, number, f"the queue says {sizes[number]} bytes, the record is of another size")
        self._require_sound_bodies(data, columns, rows)
        queue_numbers = np.array([queue for _, queue in self._keys], np.int64)
        foreign = ~self._has_topic(columns, rows) | (columns.heads["queue"] != queue_numbers[rows["source"]])
        foreign |= ~is_queued(columns.heads["sysflag"])
        if foreign.any():
            data = self._rewritten(data, columns, rows, foreign)
            columns = self._columns(data, rows)
        return data, self._with_visible_times(data, columns, rows)

    def _columns(self, data: memoryview, rows: Rows) -> RecordColumns:
        try:
            return read_columns(data)
        except RecordMalformed as error:
            ends = np.cumsum(rows["size"].astype(np.int64))
            number = int(np.searchsorted(ends, int(error.fields["position"]), "right"))
            raise self._unsound(rows, min(number, len(rows) - 1), str(error.fields["reason"])) from error

    def _require_sound_bodies(self, data: memoryview, columns: RecordColumns, rows: Rows) -> None:
        starts, heads = columns.body_starts, columns.heads
        ends = starts + heads["body_size"]
        bounds = zip(starts.tolist(), ends.tolist(), heads["body_crc"].tolist(), strict=True)
        for number, (begin, end, crc) in enumerate(bounds):
            if begin < end and crc32(data[begin:end]) & 0x7FFFFFFF != crc:
                raise self._unsound(rows, number, "its body does not have the checksum in the record")

    def _has_topic(self, columns: RecordColumns, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return for each record whether its topic is the topic of the queue that lists it."""
        sources = rows["source"]
        same: npt.NDArray[np.bool_] = columns.topic_sizes == self._name_sizes[sources]
        for run in blocks(columns.topic_sizes):
            numbers = np.flatnonzero(same[run]) + run.start
            sizes = columns.topic_sizes[numbers]
            if not len(numbers):
                continue
            positions, within = unit_positions(columns.topic_starts[numbers], sizes)
            wanted = self._name_units[np.repeat(self._name_starts[sources[numbers]], sizes) + within]
            firsts = np.cumsum(sizes) - sizes
            same[numbers] = np.logical_and.reduceat(columns.octets[positions] == wanted, firsts)
        return same

    def _rewritten(
        self, data: memoryview, columns: RecordColumns, rows: Rows, foreign: npt.NDArray[np.bool_]
    ) -> memoryview:
        """Return *data* with the *foreign* records rewritten for their queues, one by one."""
        parts: list[bytes | memoryview] = []
        done = 0
        for number in np.flatnonzero(foreign).tolist():
            start = int(columns.starts[number])
            record = decode_rocketmq_record(data, start)
            source = int(rows["source"][number])
            topic, sysflag = self._names[source], record.sysflag
            if not is_queued(np.array([sysflag]))[0]:
                sysflag = sysflag & ~TRANSACTION | COMMITTED
            version = 1 if len(topic) <= TOPIC_SIZE_MAX_BYTES[1] else 2
            shown = replace(record, topic=topic, queue=self._keys[source][1], sysflag=sysflag, version=version)
            parts += (data[done:start], encode_rocketmq_record(shown))
            done = start + record.size_bytes
        return memoryview(bytearray(b"".join([*parts, data[done:]])))

    def _with_visible_times(self, data: memoryview, columns: RecordColumns, rows: Rows) -> RecordColumns:
        """Give messages delivered by reference the time of their delivery.
        RocketMQ's search by time requires ascending times in a queue.
        """
        stored_ms = columns.heads["stored_ms"]
        lifted = stored_ms.copy()
        for source in np.unique(rows["source"]).tolist():
            topic_id, queue = self._keys[source]
            # All other messages were visible as soon as they were stored.
            if (topic_id, queue) not in self._store.references:
                continue
            first, last = self._store.references[topic_id, queue]
            members = np.flatnonzero((rows["source"] == source) & (rows["offset"] >= first) & (rows["offset"] <= last))
            for number, offset in zip(members.tolist(), rows["offset"][members].tolist(), strict=True):
                lifted[number] = max(int(stored_ms[number]), self._store.queues.visible_at(topic_id, queue, offset))
        changed = np.flatnonzero(lifted != stored_ms)
        if not len(changed):
            return columns
        stamps = lifted[changed].view(np.uint8).reshape(-1, 8)
        np.frombuffer(data, np.uint8)[columns.stamp_starts[changed][:, None] + np.arange(8)] = stamps
        stored_ms[changed] = lifted[changed]
        return columns

    def _unsound(self, rows: Rows, number: int, reason: str) -> StoreError:
        row = rows[number]
        source = int(row["source"])
        return StoreError(
            f"message {row['offset']} of {self._names[source].decode()}, queue {self._keys[source][1]}, at position "
            f"{row['position']} is damaged: {reason}. RocketMQ would drop everything behind it, so nothing was exported. "
            "Export another node of the group; `ternmq store verify` lists all damage here."
        )


def _batches(found: Iterable[Rows]) -> Iterator[Rows]:
    """Merge rows into full batches: a merge of many queues yields them in small groups."""
    waiting: list[Rows] = []
    count = size_bytes = 0
    for rows in found:
        waiting.append(rows)
        count, size_bytes = count + len(rows), size_bytes + int(rows["size"].sum(dtype=np.int64))
        if count < BATCH_ROWS_MAX and size_bytes < BATCH_SIZE_MAX_BYTES:
            continue
        yield from _split(np.concatenate(waiting))
        waiting, count, size_bytes = [], 0, 0
    if waiting:
        yield from _split(np.concatenate(waiting))


def _split(rows: Rows) -> Iterator[Rows]:
    ends = np.cumsum(rows["size"].astype(np.int64))
    begin = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + BATCH_SIZE_MAX_BYTES, "right"))
        end = min(max(end, begin + 1), begin + BATCH_ROWS_MAX)
        yield rows[begin:end]
        begin = end
