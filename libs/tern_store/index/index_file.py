"""One file of the key index: growing in memory and at its end, or sealed.

 entries of a growing file:   | blocks on disk, with checks | whole blocks | incomplete block |
                                                            |------------- tail -------------|
 mark: [base, next entry, begin ms, end ms, begin position, end position, 1 if time ever fell,
        crc of the incomplete block]
While a file grows, its slot table is in memory, and its header and slots are not written: every key
costs 20 bytes and a 64th of a check, sequentially. A full file is *sealed*: header, slots and their
checks are written, and the table is dropped.

Law: the slots follow from the entries, so a restart derives them; a flush writes the incomplete
block without a check, which the mark has instead.
"""

from collections.abc import Iterator

import numpy as np

from tern_store.checking import Checked
from tern_store.checksum import crc32
from tern_store.errors import DerivedDamage, StoreError
from tern_store.index.index_folder import BLOCK_ENTRIES, CHECK_SIZE_BYTES, IndexFolder, Region, checks_of
from tern_wire.records.index_layout import (
    INDEX_ENTRY,
    INDEX_ENTRY_SIZE_BYTES,
    INDEX_HEADER,
    INDEX_HEADER_SIZE_BYTES,
    INDEX_ROWS,
    INDEX_SLOT_SIZE_BYTES,
    IndexHeader,
    encode_index_header,
)
from tern_wire.records.java_hashes import Numbers
from tern_wire.records.key_hashes import Hashes

# Bytes of one step of a restore or a verification: whole pages, and whole blocks within them.
STEP_SIZE_BYTES = 1 << 20
_SECONDS_MAX = (1 << 31) - 1


class IndexFile:
    """One index file. Owner: the core loop."""

    __slots__ = (
        "_begin_position",
        "_folder",
        "_saved_entry",
        "_table",
        "_tail",
        "_time_fell",
        "_written_entry",
        "base",
        "begin_ms",
        "end_ms",
        "end_position",
        "next_entry",
    )

    def __init__(self, folder: IndexFolder, base: int) -> None:
        """Make a new, empty file; nothing is written yet."""
        self._folder, self.base = folder, base
        self.begin_ms = self.end_ms = self._begin_position = self.end_position = 0
        self._time_fell = False
        self.next_entry = 1
        # Untouched pages of zeros cost no memory: 20 MB at RocketMQ's size when all slots are in
        # use.
        self._table: Hashes | None = np.zeros(folder.shape.slots, np.int32)
        self._tail = bytearray(INDEX_ENTRY_SIZE_BYTES)  # entry 0
        self._written_entry = 0  # the first entry of the tail, a multiple of a block
        self._saved_entry = 0  # earlier entries are on disk, those of the incomplete block included

    @property
    def room(self) -> int:
        """Number of entries that still fit."""
        return self._folder.shape.entries_per_file - self.next_entry

    @property
    def tail_bytes(self) -> int:
        """Bytes only in memory, or in the incomplete block."""
        return len(self._tail)

    @property
    def is_sealed(self) -> bool:
        """Whether the file is full and completely written."""
        return self._table is None

    # Add and write --------------------------------------------------------------------------------
    def add(self, hashes: Hashes, positions: Numbers, stored_ms: int) -> None:
        """Add at least one entry, at most *room*, in memory."""
        if self.next_entry == 1:
            self.begin_ms = self.end_ms = stored_ms
            self._begin_position = self.end_position = int(positions[0])
        # Records of several topics come topic by topic: positions within one log entry may fall.
        self.end_position = max(self.end_position, int(positions.max()))
        self._time_fell |= stored_ms < self.end_ms
        self.end_ms = max(self.end_ms, stored_ms)
        numbers = np.arange(self.next_entry, self.next_entry + len(hashes), dtype=np.int32)
        rows = np.empty(len(hashes), INDEX_ROWS)
        rows["hash"], rows["position"], rows["previous"] = hashes, positions, self._link(hashes, numbers)
        rows["seconds"] = min(max(0, (stored_ms - self.begin_ms) // 1000), _SECONDS_MAX)
        self._tail += rows.tobytes()
        self.next_entry += len(hashes)

    def add_few(self, hashes: list[int], positions: list[int], stored_ms: int) -> None:
        """As `add`, one by one: for a few entries arrays cost more than they save."""
        number = self.next_entry
        if number == 1:
            self.begin_ms = self.end_ms = stored_ms
            self._begin_position = self.end_position = positions[0]
        self.end_position = max(self.end_position, *positions)
        self._time_fell |= stored_ms < self.end_ms
        self.end_ms = max(self.end_ms, stored_ms)
        seconds = min(max(0, (stored_ms - self.begin_ms) // 1000), _SECONDS_MAX)
        # Single slots are read and written through a view: four times as fast as indexing an array.
        slots: memoryview = self._open_table().data
        for key_hash, position in zip(hashes, positions, strict=True):
            slot = key_hash % len(slots)
            self._tail += INDEX_ENTRY.pack(key_hash, position, seconds, slots[slot])
            slots[slot] = number
            number += 1
        self.next_entry = number

    def _link(self, hashes: Hashes, numbers: Hashes) -> Hashes:
        """Make *numbers* the newest of their slots; return the entries that they follow."""
        table = self._open_table()
        slots = hashes % np.int32(len(table))
        previous: Hashes = table[slots]
        table[slots] = numbers
        if (table[slots] != numbers).any():
            # Some share a slot: each follows the one before it, and the last number stays (numpy
            # promises no order).
            order = np.argsort(slots, kind="stable")
            same = np.append(slots[order[1:]] == slots[order[:-1]], False)
            previous[order[1:][same[:-1]]] = numbers[order[:-1][same[:-1]]]
            table[slots[order[~same]]] = numbers[order[~same]]
        return previous

    def write(self) -> None:
        """Write all whole blocks and checks; seal a full file.
        OSError: the rest stays in memory.
        """
        whole = len(self._tail) if not self.room else len(self._tail) - len(self._tail) % self._blocks.piece_bytes
        if whole:
            data, path = bytes(memoryview(self._tail)[:whole]), self._folder.path(self.base)
            self._folder.write(path, data, self._blocks.start + self._written_entry * INDEX_ENTRY_SIZE_BYTES)
            first_check = self._written_entry // BLOCK_ENTRIES * CHECK_SIZE_BYTES
            checks = checks_of(data, self._blocks.piece_bytes)
            self._folder.write(self._folder.checks_path(self.base), checks, first_check)
            del self._tail[:whole]
            self._written_entry += whole // INDEX_ENTRY_SIZE_BYTES
            self._saved_entry = max(self._saved_entry, self._written_entry)
        if not self.room:
            self._write_head(with_checks=True)
            self._table = None

    def flush(self) -> None:
        """Call `write`, and write the incomplete block too."""
        if self.is_sealed:
            return
        self.write()
        if self._saved_entry < self.next_entry and self._tail:
            at = self._blocks.start + self._written_entry * INDEX_ENTRY_SIZE_BYTES
            self._folder.write(self._folder.path(self.base), bytes(self._tail), at)
            self._saved_entry = self.next_entry

    def complete(self) -> None:
        """Call `flush`, and write header and slots for RocketMQ's tools even if not full.
        OSError as there.
        """
        self.flush()
        if not self.is_sealed:
            self._write_head(with_checks=False)
            self._folder.stretch(self.base)

    def _write_head(self, *, with_checks: bool) -> None:
        table, path = self._open_table(), self._folder.path(self.base)
        pages, at = self._folder.shape.pages, 0
        header = encode_index_header(
            IndexHeader(
                begin_ms=self.begin_ms,
                end_ms=self.end_ms,
                begin_position=self._begin_position,
                end_position=self.end_position,
                used_slots=int(np.count_nonzero(table)),
                next_entry=self.next_entry,
            )
        )
        while at < pages.stop:
            end = min(at + STEP_SIZE_BYTES, pages.stop)
            first = max(0, at - INDEX_HEADER_SIZE_BYTES) // INDEX_SLOT_SIZE_BYTES
            stop = (end - INDEX_HEADER_SIZE_BYTES) // INDEX_SLOT_SIZE_BYTES
            data = (b"" if at else header) + table[first:stop].astype(">i4").tobytes()
            self._folder.write(path, data, at)
            if with_checks:
                check = (pages.first_check + at // pages.piece_bytes) * CHECK_SIZE_BYTES
                self._folder.write(self._folder.checks_path(self.base), checks_of(data, pages.piece_bytes), check)
            at = end

    # Find -----------------------------------------------------------------------------------------
    def find(self, key_hash: int, first_position: int, begin_ms: int, end_ms: int, count: int) -> list[int]:
        """At most *count* (1 or more) positions from *first_position* on with that hash, newest
        first.
        Only entries stored within [*begin_ms*, *end_ms*]. DerivedDamage if a page or block on the
        way is damaged.
        """
        found: list[int] = []
        for _, position, time_ms in self.walk(key_hash, first_position, begin_ms):
            if position >= 0 and time_ms <= end_ms:
                found.append(position)
                if len(found) == count:
                    break
        return found

    def walk(
        self, key_hash: int, first_position: int, begin_ms: int, *, before: int | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """Number, position and time (ms) of the entries in the hash's chain, newest first.
        Down to *begin_ms*. Position -1: another key's entry, or a dropped one. *before*: the number
        where an earlier walk stopped; this one continues with older entries. DerivedDamage as in
        `find`.
        """
        if before is not None and not 0 < before < self.next_entry:
            return
        block, data = -1, b""
        number, newer = self._newest(key_hash), self.next_entry
        if before is not None:
            number, newer = before, before + 1
        while number:
            if not 0 < number < newer:
                raise DerivedDamage(self._folder.path(self.base), self._entry_at(number), "a chain leads nowhere")
            if number >= self._written_entry:
                at, entries = (number - self._written_entry) * INDEX_ENTRY_SIZE_BYTES, self._tail
                this_hash, position, seconds, previous = INDEX_ENTRY.unpack_from(entries, at)
            else:
                if number // BLOCK_ENTRIES != block:
                    block = number // BLOCK_ENTRIES
                    data = self._folder.piece(self.base, self._blocks, block)
                at = number % BLOCK_ENTRIES * INDEX_ENTRY_SIZE_BYTES
                this_hash, position, seconds, previous = INDEX_ENTRY.unpack_from(data, at)
            time_ms = self.begin_ms + 1000 * seconds
            is_wanted = this_hash == key_hash and position >= first_position and time_ms >= begin_ms
            if number != before:
                yield number, position if is_wanted else -1, time_ms
            # A minute of a key of a million messages must not cost a million steps.
            if time_ms < begin_ms and not self._time_fell:
                break
            number, newer = previous, number

    def _newest(self, key_hash: int) -> int:
        slot = key_hash % self._folder.shape.slots
        if self._table is not None:
            return int(self._table[slot])
        pages = self._folder.shape.pages
        page, at = divmod(INDEX_HEADER_SIZE_BYTES + slot * INDEX_SLOT_SIZE_BYTES, pages.piece_bytes)
        data = self._folder.piece(self.base, pages, page)
        return int.from_bytes(data[at : at + INDEX_SLOT_SIZE_BYTES], "big", signed=True)

    # Marks, restore, verify -----------------------------------------------------------------------
    def mark(self) -> list[int]:
        """The data for `restored`. StoreError unless everything was flushed."""
        if self._saved_entry < self.next_entry:
            raise StoreError(f"{self._folder.path(self.base)} has entries that were not flushed")
        span = [self.begin_ms, self.end_ms, self._begin_position, self.end_position]
        return [self.base, self.next_entry, *span, int(self._time_fell), crc32(self._tail)]

    @classmethod
    def restored(cls, folder: IndexFolder, mark: list[int]) -> "IndexFile":
        """Restore the file at *mark*; later entries are ignored.
        DerivedDamage: missing, short or damaged.
        """
        file = cls(folder, mark[0])
        file.next_entry, file.begin_ms, file.end_ms, file._begin_position, file.end_position = mark[1:6]
        file._time_fell = bool(mark[6])
        if not file.room:
            file._restore_sealed()
        else:
            file._restore_growing(mark[7])
        return file

    def _restore_sealed(self) -> None:
        shape, path = self._folder.shape, self._folder.path(self.base)
        self._table, self._tail = None, bytearray()
        self._written_entry = self._saved_entry = self.next_entry
        self._folder.require_size(path, shape.size_bytes)
        self._folder.require_size(self._folder.checks_path(self.base), shape.checks_size_bytes)
        found = INDEX_HEADER.unpack_from(self._folder.piece(self.base, shape.pages, 0))
        wanted = (self.begin_ms, self.end_ms, self._begin_position, self.end_position)
        if (*found[:4], found[5]) != (*wanted, self.next_entry):
            raise DerivedDamage(path, 0, "the header is that of another file")

    def _restore_growing(self, check: int) -> None:
        """Derive the slots from the entries, in steps of bounded size."""
        table, path = self._open_table(), self._folder.path(self.base)
        whole = self.next_entry // BLOCK_ENTRIES
        step = STEP_SIZE_BYTES // self._blocks.piece_bytes
        for first in range(0, whole, step):
            data = self._folder.run(self.base, self._blocks, first, min(step, whole - first))
            _fill(table, data, first * BLOCK_ENTRIES)
        self._written_entry, self._saved_entry = whole * BLOCK_ENTRIES, self.next_entry
        begin = self._entry_at(self._written_entry)
        self._tail = bytearray(self._folder.read(path, begin, self._entry_at(self.next_entry)))
        if crc32(self._tail) != check:
            raise DerivedDamage(path, begin, "the last entries are not those of the saved state")
        _fill(table, self._tail, self._written_entry)

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything on disk once, in steps; the file may grow and be sealed meanwhile."""
        yield from self._verify_region(self._blocks)
        if self.is_sealed:
            yield from self._verify_region(self._folder.shape.pages)
        elif self._saved_entry > self._written_entry:
            yield self._verify_incomplete()

    def _verify_region(self, region: Region) -> Iterator[Checked | DerivedDamage]:
        at = 0
        while count := min(STEP_SIZE_BYTES // region.piece_bytes, self._complete_pieces(region) - at):
            try:
                yield Checked(len(self._folder.run(self.base, region, at, count)))
            except DerivedDamage as damage:
                yield damage
            at += count

    def _complete_pieces(self, region: Region) -> int:
        return region.pieces if self.is_sealed else self._written_entry // BLOCK_ENTRIES

    def _verify_incomplete(self) -> Checked | DerivedDamage:
        begin, end = self._entry_at(self._written_entry), self._entry_at(self._saved_entry)
        path = self._folder.path(self.base)
        try:
            data = self._folder.read(path, begin, end)
        except DerivedDamage as damage:
            return damage
        if data != self._tail[: end - begin]:
            return DerivedDamage(path, begin, "the last entries are not those in memory")
        return Checked(end - begin)

    # Below ----------------------------------------------------------------------------------------
    @property
    def _blocks(self) -> Region:
        return self._folder.shape.blocks

    def _entry_at(self, number: int) -> int:
        return self._blocks.start + number * INDEX_ENTRY_SIZE_BYTES

    def _open_table(self) -> Hashes:
        if self._table is None:
            raise StoreError(f"{self._folder.path(self.base)} is sealed")
        return self._table


def _fill(table: Hashes, entries: bytes | bytearray, first: int) -> None:
    """Enter *entries*, numbered from *first* on, into the slots; the newest of each slot stays."""
    hashes = np.frombuffer(entries, INDEX_ROWS)["hash"][first == 0 :].astype(np.int32)
    numbers = np.arange(first, first + len(entries) // INDEX_ENTRY_SIZE_BYTES, dtype=np.int32)[first == 0 :]
    slots = hashes % np.int32(len(table))
    while len(slots):
        table[slots] = numbers
        # numpy does not promise that the last of equal places wins; it almost always does.
        beaten = table[slots] < numbers
        slots, numbers = slots[beaten], numbers[beaten]
