"""Writer of a RocketMQ store's index files: those that a broker would make of the same records.

Law: entries come in the order of the commit log, so a file is its header, its slots and a growing
list; only the slots (20 MB at RocketMQ's counts) are in memory. A file is made sparse at its whole
size, since a broker stretches any other. Layout: `tern_wire.records.index_layout`. Reference:
Apache RocketMQ 5, IndexFile.putKey, IndexService.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tern_store.files import Files
from tern_wire.records.index_layout import (
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_SLOT_SIZE_BYTES,
    entry_start,
)
from tern_wire.records.java_hashes import Numbers

_ENTRIES = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
assert _ENTRIES.itemsize == INDEX_ENTRY_SIZE_BYTES
_SLOTS = np.dtype(">i4")
# Slots without an entry stay a hole in the file.
_HOLE_SLOTS = 1 << 14


class RocketIndex:
    """The index of one store being written. Owner: the store's writer; call `finish` once."""

    def __init__(self, folder: Path, *, slots: int, entries: int, files: Files) -> None:
        """*slots* and *entries* are RocketMQ's maxHashSlotNum and maxIndexNum; a file has one entry
        less.
        """
        self._folder, self._files = folder, files
        files.makedirs(folder, synced=False)
        self._slot_count, self._entries_max = slots, entries
        self._slots: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self._fd = -1
        self._named_ms = 0
        self._next = self._used = 0
        self._begin = self._end = (0, 0)
        self.entries = 0

    def add(self, hashes: Numbers, positions: Numbers, stored_ms: Numbers) -> None:
        """Append entries: |hash| of each key, its record's position and stored time; shape (n,)
        each.
        """
        at = 0
        while at < len(hashes):
            if self._fd < 0:
                self._begin_file(int(positions[at]), int(stored_ms[at]))
            stop = at + min(len(hashes) - at, self._entries_max - self._next)
            self._put(hashes[at:stop], positions[at:stop], stored_ms[at:stop])
            at = stop
            if self._next == self._entries_max:
                self._end_file()

    def finish(self) -> None:
        """Durable here: every file."""
        if self._fd >= 0:
            self._end_file()

    def _begin_file(self, position: int, stored_ms: int) -> None:
        # Brokers read files in the order of their names, which are the times of their begins.
        self._named_ms = max(self._named_ms + 1, stored_ms)
        name = "".join(sign for sign in str(np.datetime64(self._named_ms, "ms")) if sign.isdecimal())
        self._fd = self._files.open(self._folder / name, create=True)
        self._files.ftruncate(self._fd, entry_start(self._slot_count, self._entries_max))
        self._slots = np.zeros(self._slot_count, np.int32)
        # Entry 0 stays unused, so that 0 can mean none.
        self._next, self._used = 1, 0
        self._begin = self._end = (position, stored_ms)

    def _put(self, hashes: Numbers, positions: Numbers, stored_ms: Numbers) -> None:
        slots = hashes % self._slot_count
        numbers = np.arange(self._next, self._next + len(hashes))
        # Within a block an entry follows the last one before it in its slot, the first one the
        # slot's own.
        order = np.argsort(slots, kind="stable")
        ordered, ordered_numbers = slots[order], numbers[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        previous = np.empty(len(order), np.int64)
        previous[1:] = ordered_numbers[:-1]
        previous[first] = self._slots[ordered[first]]
        self._used += int((previous[first] == 0).sum())
        last = np.ones(len(order), np.bool_)
        last[:-1] = first[1:]
        self._slots[ordered[last]] = ordered_numbers[last]
        rows = np.empty(len(hashes), _ENTRIES)
        rows["hash"], rows["position"] = hashes, positions
        rows["seconds"] = np.clip((stored_ms - self._begin[1]) // 1000, 0, np.iinfo(np.int32).max)
        rows["previous"][order] = previous
        self._files.pwrite(self._fd, rows.tobytes(), entry_start(self._slot_count, self._next))
        self._next += len(hashes)
        self.entries += len(hashes)
        # The latest time of all, where a broker notes the last: searches by time then skip no
        # matching file.
        self._end = (int(positions[-1]), max(self._end[1], int(stored_ms.max())))

    def _end_file(self) -> None:
        for at in range(0, self._slot_count, _HOLE_SLOTS):
            part = self._slots[at : at + _HOLE_SLOTS]
            if part.any():
                place = INDEX_HEADER_SIZE_BYTES + at * INDEX_SLOT_SIZE_BYTES
                self._files.pwrite(self._fd, part.astype(_SLOTS).tobytes(), place)
        header = INDEX_HEADER.pack(self._begin[1], self._end[1], self._begin[0], self._end[0], self._used, self._next)
        self._files.pwrite(self._fd, header, 0)
        self._files.fdatasync(self._fd)
        self._files.close(self._fd)
        self._files.fsync_dir(self._folder)
        self._fd, self._slots = -1, np.zeros(0, np.int32)
