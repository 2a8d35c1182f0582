"""Records of a RocketMQ store in the order of its commit log, and their membership in queues.

Law: at most one record (16 MiB) and a bounded number of blocks of queue entries are in memory, for
a store of any size. A record is a message when its queue's entry points at it. Where a queue's
files do not reach (a crashed broker had not written them yet, or the folder was left out), it is a
message when RocketMQ would make an entry for it.
"""

import contextlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tern_cli.failures import CommandFailed
from tern_wire.errors import RecordMalformed
from tern_wire.limits import KIB, ROCKETMQ_RECORD_SIZE_MAX_BYTES
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.layout import BLANK, MAGIC_BLANK, OVERHEAD_SIZE_BYTES, VERSIONS
from tern_wire.records.queue_entry import QUEUE_ENTRY_SIZE_BYTES, is_queued
from tern_wire.records.read import RocketRecord, decode_rocketmq_record

_READ_AHEAD_SIZE_BYTES = 1024 * KIB
# Entries per block, and blocks kept in memory: 20 MB at most.
_BLOCK_ENTRIES = 4096
_BLOCKS_MAX = 256


class RocketLog:
    """A store's commit log, read from front to back. Owner: the command that opened it."""

    def __init__(self, directory: Path) -> None:
        """CommandFailed (exit 2) if *directory* has no `commitlog/` with 20-digit file names."""
        folder = directory / "commitlog"
        try:
            paths = sorted(path for path in folder.iterdir() if len(path.name) == 20 and path.name.isdecimal())
        except OSError as error:
            raise CommandFailed(
                "Not a RocketMQ store",
                f"{folder}: {error.strerror}. Name the broker's storePathRootDir, which holds commitlog/ and config/.",
                exit_code=2,
            ) from error
        if not paths:
            raise CommandFailed("Not a RocketMQ store", f"{folder} holds no commit-log file.", exit_code=2)
        self.directory = directory
        self._paths = {int(path.name): path for path in paths}
        # Such a broker did not stop cleanly, so its last record may be incomplete.
        self._was_killed = (directory / "abort").exists()

    @property
    def begin(self) -> int:
        """Return the position at which the log begins."""
        return min(self._paths)

    @property
    def end(self) -> int:
        """Return the position at which its last file ends."""
        last = max(self._paths)
        return last + self._paths[last].stat().st_size

    def records(self, position: int = 0) -> Iterator[tuple[int, RocketRecord]]:
        """Yield every record from *position* (a record's, or 0) on, with its position.
        CommandFailed at the first damaged record.
        """
        bases = sorted(self._paths)
        for base in bases:
            if base == bases[-1] or bases[bases.index(base) + 1] > position:
                with self._paths[base].open("rb", buffering=_READ_AHEAD_SIZE_BYTES) as file:
                    yield from self._records_of(file, base, max(position, base), is_last=base == bases[-1])

    def _records_of(
        self, file: BinaryIO, base: int, position: int, *, is_last: bool
    ) -> Iterator[tuple[int, RocketRecord]]:
        size_bytes = self._paths[base].stat().st_size
        file.seek(position - base)
        while len(head := file.read(BLANK.size)) == BLANK.size:
            size, magic = BLANK.unpack(head)
            if magic == MAGIC_BLANK or not any(head):
                return
            left = base + size_bytes - position
            try:
                if magic not in VERSIONS or not OVERHEAD_SIZE_BYTES <= size <= min(
                    left, ROCKETMQ_RECORD_SIZE_MAX_BYTES
                ):
                    raise RecordMalformed(
                        position=0, reason=f"no record of {size} bytes (magic {magic:#010x}), {left} are left"
                    )
                record = decode_rocketmq_record(head + file.read(size - BLANK.size))
                if record.body and record.stored_body_crc != record.body_crc:
                    raise RecordMalformed(position=0, reason="its body does not have the checksum in the record")
            except RecordMalformed as error:
                if is_last and self._was_killed:
                    return
                raise CommandFailed(
                    "The store is damaged",
                    f"{self._paths[base]}, byte {position - base}: {error.fields['reason']}. Everything before it has been "
                    "imported; start and stop the broker once, which cuts its log there, or take another copy.",
                ) from error
            yield position, record
            position += size

    def queue_counts(self) -> dict[str, int]:
        """Return the number of queues of each topic.
        It comes from config/topics.json, else from the folders or records of queues.
        """
        counts: dict[str, int] = {}
        path = self.directory / "config" / "topics.json"
        try:
            table: dict[str, Any] = json.loads(path.read_bytes()).get("topicConfigTable", {})
            for name, facts in table.items():
                counts[name] = max(int(facts.get("readQueueNums", 16)), int(facts.get("writeQueueNums", 16)))
        except FileNotFoundError:
            pass
        except (ValueError, AttributeError) as error:
            raise CommandFailed("The store is damaged", f"{path} is not RocketMQ's: {error}.") from error
        folder = self.directory / "consumequeue"
        for topic in folder.iterdir() if folder.is_dir() else ():
            queues = [int(queue.name) + 1 for queue in topic.iterdir() if queue.name.isdecimal()]
            counts[topic.name] = max([counts.get(topic.name, 0), *queues])
        # Damage is reported when the records themselves are read.
        with contextlib.suppress(CommandFailed):
            for _, record in () if counts else self.records():
                counts[record.topic_name] = max(counts.get(record.topic_name, 0), record.queue + 1)
        return counts


class DispatchedRecords:
    """Records with an entry in the store's consume queues. Owner: the command."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "consumequeue"
        self._bases: dict[tuple[str, int], list[int]] = {}
        self._blocks: OrderedDict[tuple[str, int, int], Any] = OrderedDict()

    def __contains__(self, placed: tuple[int, RocketRecord]) -> bool:
        """Return whether the record at that position is a message that consumers see."""
        position, record = placed
        if not is_queued(np.array([record.sysflag]))[0]:
            return False
        found = self._entry(record.topic_name, record.queue, record.queue_offset)
        return found is None or found == position

    def _entry(self, topic: str, queue: int, offset: int) -> int | None:
        """Return the position in the entry at *offset*; None beyond the queue's files."""
        block = self._block(topic, queue, offset // _BLOCK_ENTRIES)
        at = offset % _BLOCK_ENTRIES
        if at >= len(block) or not int(block[at]["size"]):
            return None
        return int(block[at]["position"])

    def _block(self, topic: str, queue: int, number: int) -> Any:
        key = (topic, queue, number)
        block = self._blocks.get(key)
        if block is None:
            if len(self._blocks) >= _BLOCKS_MAX:
                self._blocks.popitem(last=False)
            block = self._blocks[key] = self._read(topic, queue, number * _BLOCK_ENTRIES)
        self._blocks.move_to_end(key)
        return block

    def _read(self, topic: str, queue: int, offset: int) -> Any:
        """Return up to one block of entries from *offset* on; entries in no file are zeros."""
        folder = self._folder / topic / str(queue)
        bases = self._bases.get((topic, queue))
        if bases is None:
            names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
            bases = sorted(int(name) for name in names if len(name) == 20 and name.isdecimal())
            self._bases[topic, queue] = bases
        begin, end = offset * QUEUE_ENTRY_SIZE_BYTES, (offset + _BLOCK_ENTRIES) * QUEUE_ENTRY_SIZE_BYTES
        data = bytearray(end - begin)
        for base in bases:
            if base >= end:
                break
            with (folder / f"{base:020d}").open("rb") as file:
                file.seek(max(0, begin - base))
                part = file.read(end - max(begin, base))
            data[max(begin, base) - begin : max(begin, base) - begin + len(part)] = part
        return np.frombuffer(bytes(data), QUEUE_ENTRIES)
