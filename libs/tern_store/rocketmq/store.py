"""Writer of a store that Apache RocketMQ 5 opens and serves, in one sequential pass.

 commitlog/{20-digit start}                 records end to end; a blank fills the file's rest
 consumequeue/TOPIC/QUEUE/{20-digit byte}   20 bytes a message (`rocketmq/queues.py`)
 index/{yyyyMMddHHmmssSSS}                  keys (`rocketmq/index.py`)
 config/topics.json, subscriptionGroup.json, consumerOffset.json
 checkpoint                                 4,096 bytes, big-endian:
 | log's | queues' | index's | flushed    | confirmed  | queues'    | zeros |
 | time 8| time 8  | time 8  | position 8 | position 8 | position 8 |       |

Law: queues and index are complete, so the store has no `abort`: a broker then uses the files as
after its own orderly stop. A record ends at least 8 bytes before its file's end, since a broker
needs the blank to find the next file. If a queue begins behind offset 0, the log must not begin at
0: the earlier places in the queue point at position 0, and only positions below the log count as
dropped. Reference: Apache RocketMQ 5, CommitLog, DefaultMessageStore, StoreCheckpoint.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tern_store.errors import StoreError
from tern_store.files import REAL_FILES, Files
from tern_store.rocketmq.index import RocketIndex
from tern_store.rocketmq.queues import RocketQueue, RocketQueues
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import RecordColumns
from tern_wire.records.java_hashes import Numbers
from tern_wire.records.key_hashes import hash_columns, tag_codes
from tern_wire.records.layout import BLANK
from tern_wire.records.write import encode_blank, fill_in

_CHECKPOINT = struct.Struct(">qqqqqq")
_CHECKPOINT_SIZE_BYTES = 4096
READ_AND_WRITE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketSettings:
    """Sizes of the files, by default RocketMQ's. A broker's configuration must name all others."""

    segment_size_bytes: int = 1 << 30
    queue_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000

    def unusual(self) -> dict[str, int]:
        """Configuration lines that a broker needs: the values that are not the default."""
        usual = RocketSettings()
        return {
            name: value
            for name, value, default in (
                ("mappedFileSizeCommitLog", self.segment_size_bytes, usual.segment_size_bytes),
                (
                    "mappedFileSizeConsumeQueue",
                    self.queue_entries * QUEUE_ENTRIES.itemsize,
                    usual.queue_entries * QUEUE_ENTRIES.itemsize,
                ),
                ("maxHashSlotNum", self.index_slots, usual.index_slots),
                ("maxIndexNum", self.index_entries, usual.index_entries),
            )
            if value != default
        }


@dataclass(frozen=True, slots=True)
class RocketTopic:
    """A topic in a broker's configuration."""

    name: str
    queues: int


class RocketStoreWriter:
    """One store being written into an empty directory. Owner: one thread.
    Call `add` in order, `finish` once, `close` in any case.
    """

    def __init__(
        self,
        directory: Path,
        queues: Sequence[RocketQueue],
        settings: RocketSettings,
        *,
        files: Files = REAL_FILES,
    ) -> None:
        """*queues*: every queue with messages; `add` names them by their place in this list."""
        self._directory, self._settings, self._files = directory, settings, files
        self._log = directory / "commitlog"
        files.makedirs(self._log, synced=False)
        # A multiple of the file size, as the name of a first file must be.
        self.first_position = settings.segment_size_bytes if any(queue.first for queue in queues) else 0
        self._at = self._file_end = self.first_position
        self._fd = -1
        self._queues = RocketQueues(
            directory / "consumequeue", queues, entries_per_file=settings.queue_entries, files=files
        )
        self._index = RocketIndex(
            directory / "index", slots=settings.index_slots, entries=settings.index_entries, files=files
        )
        self._last_position = self._last_ms = 0
        self.segments = self.messages = 0

    @property
    def index_entries(self) -> int:
        """Keys in the index so far."""
        return self._index.entries

    def add(self, data: bytearray | memoryview, columns: RecordColumns, sources: Numbers, offsets: Numbers) -> None:
        """Append records (columns of *data*), with the queue and offset of each; shape (n,).
        *data* is changed: places are filled in. StoreError if a record cannot fit a file or an
        offset is not the next.
        """
        starts, sizes = columns.starts, columns.heads["size"].astype(np.int64)
        stored_ms = columns.heads["stored_ms"].astype(np.int64)
        runs = self._place(sizes)
        positions = np.concatenate([at + starts[begin:end] - starts[begin] for begin, end, at in runs])
        fill_in(data, starts, offsets, positions)
        view = memoryview(data)
        for begin, end, at in runs:
            self._write(view[int(starts[begin]) : int(starts[end - 1] + sizes[end - 1])], at)
        view.release()
        entries = np.empty(len(columns), QUEUE_ENTRIES)
        entries["position"], entries["size"], entries["tag"] = positions, sizes, tag_codes(columns)
        self._queues.add(sources, offsets, entries)
        owners, hashes = hash_columns(columns)
        if len(hashes):
            self._index.add(hashes.astype(np.int64), positions[owners], stored_ms[owners])
        self._last_position = int(positions[-1])
        self._last_ms = max(self._last_ms, int(stored_ms.max()))
        self.messages += len(columns)

    def finish(
        self,
        topics: Sequence[RocketTopic],
        *,
        groups: Mapping[str, Any] | None = None,
        offsets: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """Durable here: the whole store.
        *groups*: subscriptionGroupTable; *offsets*: `TOPIC@GROUP` to queue to next offset.
        """
        if self._fd >= 0:
            self._files.fdatasync(self._fd)
        self.close()
        self._files.fsync_dir(self._log)
        self._queues.finish()
        self._index.finish()
        times = (self._last_ms, self._last_ms, self._last_ms, 0, 0, self._last_position)
        self._write_file("checkpoint", _CHECKPOINT.pack(*times).ljust(_CHECKPOINT_SIZE_BYTES, b"\0"))
        self._files.makedirs(self._directory / "config")
        version = {"counter": 1, "stateVersion": 0, "timestamp": self._last_ms}
        table = {topic.name: _topic_config(topic) for topic in topics}
        self._write_json("topics.json", {"dataVersion": version, "topicConfigTable": table})
        self._write_json("subscriptionGroup.json", {"dataVersion": version, "subscriptionGroupTable": groups or {}})
        self._write_json("consumerOffset.json", {"dataVersion": version, "offsetTable": offsets or {}})
        self._files.fsync_dir(self._directory / "config")
        self._files.fsync_dir(self._directory)

    def close(self) -> None:
        """Close the file being written."""
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    # The log --------------------------------------------------------------------------------------
    def _place(self, sizes: Numbers) -> list[tuple[int, int, int]]:
        """Runs of records (begin, end) adjacent in one file, with the begin of each run."""
        ends = np.cumsum(sizes)
        size_bytes = self._settings.segment_size_bytes
        at, file_end = self._at, self._file_end
        runs: list[tuple[int, int, int]] = []
        begin = 0
        while begin < len(sizes):
            before = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, before + file_end - BLANK.size - at, "right")) if at < file_end else begin
            if end == begin:
                if int(sizes[begin]) + BLANK.size > size_bytes:
                    raise StoreError(
                        f"a record of {sizes[begin]} bytes does not fit a commit-log file of {size_bytes}: use larger files"
                    )
                at, file_end = file_end, file_end + size_bytes
                continue
            runs.append((begin, end, at))
            at += int(ends[end - 1]) - before
            begin = end
        return runs

    def _write(self, data: memoryview, position: int) -> None:
        size_bytes = self._settings.segment_size_bytes
        if position >= self._file_end:
            if self._fd >= 0:
                blank = encode_blank(self._file_end - self._at)
                self._files.pwrite(self._fd, blank, self._at - self._file_end + size_bytes)
                self._files.fdatasync(self._fd)
                self.close()
            self._fd = self._files.open(self._log / f"{position:020d}", create=True)
            self._files.ftruncate(self._fd, size_bytes)
            self._file_end = position + size_bytes
            self.segments += 1
        self._files.pwrite(self._fd, data, position - self._file_end + size_bytes)
        self._at = position + len(data)

    # The small files ------------------------------------------------------------------------------
    def _write_json(self, name: str, document: Mapping[str, Any]) -> None:
        self._write_file(f"config/{name}", json.dumps(document, indent=1, ensure_ascii=False).encode())

    def _write_file(self, name: str, data: bytes) -> None:
        fd = self._files.open(self._directory / name, create=True)
        try:
            self._files.pwrite(fd, data, 0)
            self._files.fdatasync(fd)
        finally:
            self._files.close(fd)


def _topic_config(topic: RocketTopic) -> dict[str, Any]:
    return {
        "topicName": topic.name,
        "readQueueNums": topic.queues,
        "writeQueueNums": topic.queues,
        "perm": READ_AND_WRITE,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
