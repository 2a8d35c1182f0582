"""Many append-only sequences of rows of one size, in files of rows alone; checks lie beside them.

 row numbers   first              base          written       end
 on disk   ... [ whole blocks, with checks ][ not yet a block ]
 in memory                        [ tail                      )

Law: everything here is derived from the log. Tails wait in memory and are written in large pieces;
marks record how far a saved state reaches, and the log's tail yields the rest. Every read of a
whole block checks it. The last, incomplete block has no check on disk and is never read from there,
except by `restore`, whose marks have its check. Rows that a restart finds behind its marks are
overwritten before anything counts them. Blocks: see row_blocks.py; removal of files: see
row_folders.py.

Writing and syncing 10,000 files takes more than a second, one state file does not: if many
sequences wait, a flush leaves their rows to the marks. If few wait, all rows are in the files after
a flush.
"""

from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tern_store.checking import Checked
from tern_store.checksum import crc32
from tern_store.errors import DerivedDamage, StoreError
from tern_store.files import REAL_FILES, Files, is_done
from tern_store.log.sync_job import SyncJob
from tern_store.queues.row_blocks import RowBlocks
from tern_store.queues.row_folders import ROWS, Key, RowFolders

# A sequence's tail is written in pieces of this size: one system call per 3,276 rows of 20 bytes.
TAIL_SIZE_MAX_BYTES = 64 << 10
# After a full disk, write again when this much more has come.
RETRY_AFTER_BYTES = 1 << 20
# A flush writes every tail if this many or fewer wait: any disk syncs their files within a second.
FEW_SEQUENCES = 64
# Bytes read by one step of `verify`.
VERIFY_STEP_BYTES = 1 << 20
# A life is the start value of a crc32, so it has 32 bits.
LIFE_MASK = (1 << 32) - 1


class _Sequence:
    """One sequence; its tail is the rows [base, end).
    A plain class with slots: the hottest path.
    """

    __slots__ = ("base", "end", "first", "key", "life", "tail", "write_at_bytes", "written")

    def __init__(self, key: Key, life: int, first: int, end: int, base: int) -> None:
        self.key, self.life, self.first, self.end, self.base, self.written = key, life, first, end, base, base
        self.tail = bytearray()
        self.write_at_bytes = TAIL_SIZE_MAX_BYTES


class RowFiles:
    """All sequences below one directory.
    Owner: the core loop; only `SyncJob.run` may run elsewhere. Until a job has run, the owner may
    only append, trim, remove, read and verify. Memory: at most *buffer_max_bytes* of unwritten
    rows, and less than a block per sequence. More while the disk is full, and for the rows of two
    saves of sequences that were removed and began again, whose old files block the writes.
    """

    def __init__(self, blocks: RowBlocks, folders: RowFolders, row_size_bytes: int, buffer_max_bytes: int) -> None:
        """Use `open`."""
        self._blocks, self._folders = blocks, folders
        self._row_size_bytes, self._buffer_max_bytes = row_size_bytes, buffer_max_bytes
        self._sequences: dict[Key, _Sequence] = {}
        self._waiting: OrderedDict[Key, _Sequence] = (
            OrderedDict()
        )  # sequences with unwritten rows, the longest waiting first
        self._buffered_bytes = 0
        self._write_at_bytes = buffer_max_bytes
        self._lives = 0

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        row_size_bytes: int,
        rows_per_file: int,
        buffer_max_bytes: int,
        open_files_max: int,
        block_rows: int = 64,
        leaf: str = "",
        files: Files = REAL_FILES,
    ) -> "RowFiles":
        """Open the sequences below *directory*; there are none before `restore`.
        *leaf*: a last folder below each key's, such as "times".
        """
        folders = RowFolders(directory, leaf, rows_per_file * row_size_bytes, open_files_max, files)
        blocks = RowBlocks(folders, row_size_bytes, rows_per_file, block_rows)
        return cls(blocks, folders, row_size_bytes, buffer_max_bytes)

    # Rows -----------------------------------------------------------------------------------------
    def begin(self, key: Key, first: int) -> None:
        """Begin an empty sequence with first row number *first*.
        StoreError if the key is in use.
        """
        if key in self._sequences or first < 0:
            raise StoreError(f"sequence {key} ends at {self.end(key)}, it cannot begin at {first}")
        self._lives = (self._lives + 1) & LIFE_MASK
        sequence = _Sequence(key, self._lives, first, first, self._blocks.floor(first))
        self._sequences[key] = sequence
        if first > sequence.base:
            # Zeros stand for rows of the first block that never existed: its check covers them.
            sequence.tail = bytearray((first - sequence.base) * self._row_size_bytes)
            self._waiting[key] = sequence
            self._buffered_bytes += len(sequence.tail)

    def append(self, key: Key, first: int, data: bytes | bytearray | memoryview) -> None:
        """Add whole rows at the end *first*, else StoreError; a new sequence begins there.
        In memory; written in pieces. A full disk keeps them in memory.
        """
        size = len(data)
        rows, odd = divmod(size, self._row_size_bytes)
        sequence = self._sequences.get(key)
        if sequence is None and not odd:
            self.begin(key, first)
            sequence = self._sequences[key]
        if odd or sequence is None or first != sequence.end:
            raise StoreError(f"sequence {key} ends at {self.end(key)}, cannot add {size} bytes at {first}")
        if not rows:
            return
        if sequence.written == first:
            self._waiting[key] = sequence
        sequence.tail += data
        sequence.end = first + rows
        self._buffered_bytes += size
        if len(sequence.tail) > sequence.write_at_bytes:
            self._write_if_room(sequence)
        if self._buffered_bytes > self._write_at_bytes:
            self._write_longest_waiting()

    def end(self, key: Key) -> int:
        """The next row's number; 0 for unknown keys."""
        sequence = self._sequences.get(key)
        return sequence.end if sequence is not None else 0

    def first(self, key: Key) -> int:
        """The first kept row's number; 0 for unknown keys."""
        sequence = self._sequences.get(key)
        return sequence.first if sequence is not None else 0

    def keys(self) -> list[Key]:
        """The keys of all sequences, empty ones included, in order of their begin."""
        return list(self._sequences)

    def read(self, key: Key, row: int, count: int) -> bytes:
        """Up to *count* rows from *row* on, verified; none below the first row. DerivedDamage."""
        sequence = self._sequences.get(key)
        if sequence is None or count <= 0 or not sequence.first <= row < sequence.end:
            return b""
        stop, base, size = min(row + count, sequence.end), sequence.base, self._row_size_bytes
        if row >= base:
            return bytes(sequence.tail[(row - base) * size : (stop - base) * size])
        parts: list[bytes | bytearray] = []
        while row < min(stop, base):
            part = self._blocks.read(key, sequence.life, row, min(stop, base))
            if len(part) == (stop - row) * size:
                return b"".join([*parts, part]) if parts else part
            parts.append(part)
            row += len(part) // size
        return b"".join([*parts, sequence.tail[: (stop - base) * size]])

    def trim(self, key: Key, first: int) -> None:
        """Drop rows below *first* for readers. StoreError behind the end.
        Their files go when no saved state needs them.
        """
        if first > self.end(key):
            raise StoreError(f"sequence {key} ends at {self.end(key)}, it cannot begin at {first}")
        sequence = self._sequences.get(key)
        if sequence is None or first <= sequence.first:
            return
        for file in range(sequence.first // self._blocks.rows_per_file, first // self._blocks.rows_per_file):
            self._folders.retire(key, file)
        sequence.first, kept = first, self._blocks.floor(first)
        if sequence.base < kept:  # blocks that cannot be read any more need not be written
            self._buffered_bytes -= max(0, kept - sequence.written) * self._row_size_bytes
            del sequence.tail[: (kept - sequence.base) * self._row_size_bytes]
            sequence.base, sequence.written = kept, max(kept, sequence.written)
            if sequence.written == sequence.end:
                self._waiting.pop(key, None)

    def remove(self, key: Key) -> None:
        """Remove the sequence; its files go when no saved state needs them.
        The key may begin anew.
        """
        sequence = self._sequences.pop(key, None)
        if sequence is None:
            return
        if self._waiting.pop(key, None) is not None:
            self._buffered_bytes -= self._unwritten_bytes(sequence)
        rows_per_file = self._blocks.rows_per_file
        for file in range(sequence.first // rows_per_file, -(-sequence.end // rows_per_file)):
            self._folders.retire(key, file)

    # Saved states ---------------------------------------------------------------------------------
    def write_out(self) -> None:
        """Write every tail, if few wait.
        OSError (ENOSPC): unwritten rows stay in memory; call again. A taken job must be run, so the
        owner of several RowFiles writes all of them out before the first `flush`.
        """
        if len(self._waiting) <= FEW_SEQUENCES:
            for sequence in list(self._waiting.values()):
                self._write(sequence)

    def flush(self) -> SyncJob:
        """Call `write_out`.
        Durable here: written rows, when the job has run; the rest with the marks.
        """
        self.write_out()
        return self._folders.take_job()

    def marks(self) -> list[Any]:
        """[lives, [[*key, first, written, check, life, rest], ...]], valid right after `flush`.
        *check*: crc32 of the written rows of the incomplete block, 0 if there are none. *rest*:
        bytes of the rows [written, end). StoreError if rows were written since the flush.
        """
        if self._folders.is_dirty:
            raise StoreError("rows were written since the last flush: no marks")
        return [self._lives, [self._mark(sequence) for sequence in self._sequences.values()]]

    def saved(self) -> None:
        """Unlink files that neither the last flush's state nor the one before needs.
        That state is durable and has replaced only the second newest state.
        """
        self._folders.saved()

    def restore(self, marks: list[Any]) -> None:
        """Restore *marks*; later rows are never read, and unneeded files go with the next save but
        one.
        DerivedDamage if a needed file is missing, short, or damaged in the incomplete block: the
        disk is unchanged then, there are no sequences, and other marks may be tried. Whole blocks
        are verified when they are read.
        """
        self._reset()
        lives, rows = marks
        self._lives = max(self._lives, lives)  # also if this fails: no life is used twice
        sequences: dict[Key, _Sequence] = {}
        for *numbers, first, written, check, life, rest in rows:
            key = tuple(numbers)
            end = written + len(rest) // self._row_size_bytes
            sequence = sequences[key] = _Sequence(key, life, first, end, self._blocks.floor(written))
            sequence.written = written
            sequence.tail += self._blocks.load(key, first, written, check)
            sequence.tail += rest
        self._retire_not_needed(sequences)
        self._sequences = sequences
        self._waiting.update((key, sequence) for key, sequence in sequences.items() if sequence.written < sequence.end)
        self._buffered_bytes = sum(map(self._unwritten_bytes, self._waiting.values()))

    def wipe(self) -> None:
        """Remove every file; the owner derives all rows again.
        Remove earlier saved states first.
        """
        self._reset()
        self._folders.wipe()

    def verify(self) -> Iterator[Checked | DerivedDamage]:
        """Read everything on disk once, in steps of about 1 MiB. Damage is yielded, never raised.
        The owner may continue its work between steps.
        """
        step = max(1, VERIFY_STEP_BYTES // (self._row_size_bytes * self._blocks.block_rows)) * self._blocks.block_rows
        for key in self.keys():
            row, is_tail = 0, False
            while not is_tail and (sequence := self._sequences.get(key)) is not None:
                row = max(row, self._blocks.floor(sequence.first))
                is_tail = row >= sequence.base
                row = min(row, sequence.base)
                stop = sequence.written if is_tail else min(row + step, sequence.base, self._blocks.file_end(row))
                size = (stop - row) * self._row_size_bytes
                try:
                    if is_tail:
                        self._blocks.compare(key, sequence.base, bytes(sequence.tail[:size]))
                    else:
                        self._blocks.read(key, sequence.life, row, stop)
                except DerivedDamage as damage:
                    yield damage
                else:
                    yield Checked(size)
                row = stop

    def close_files(self) -> None:
        """Close all open files. The next write or read opens its own again."""
        self._folders.close_files()

    def close(self) -> None:
        """Close the files; the log has the rows that were not flushed."""
        self._reset()

    # Below ----------------------------------------------------------------------------------------
    def _reset(self) -> None:
        self._folders.close_files()
        self._sequences, self._waiting, self._buffered_bytes = {}, OrderedDict(), 0
        self._write_at_bytes = self._buffer_max_bytes

    def _mark(self, sequence: _Sequence) -> list[Any]:
        at = (sequence.written - sequence.base) * self._row_size_bytes
        check = crc32(sequence.tail[:at]) if at else 0
        return [*sequence.key, sequence.first, sequence.written, check, sequence.life, bytes(sequence.tail[at:])]

    def _unwritten_bytes(self, sequence: _Sequence) -> int:
        return (sequence.end - sequence.written) * self._row_size_bytes

    def _retire_not_needed(self, sequences: dict[Key, _Sequence]) -> None:
        """Retire files that these sequences do not need.
        The state saved before may need them, or a crash left them before anything counted them.
        """

        def is_needed(key: Key, file: int, suffix: str) -> bool:
            sequence = sequences.get(key)
            return sequence is not None and self._blocks.needs(sequence.first, sequence.written, file, suffix)

        not_needed = [slot for slot in self._folders.listing() if not is_needed(*slot)]
        retired = [(key, file) for key, file, _ in not_needed if not is_needed(key, file, ROWS)]
        self._folders.restored(retired, not_needed)

    def _write_longest_waiting(self) -> None:
        for _ in range(len(self._waiting)):
            if self._buffered_bytes <= self._buffer_max_bytes:
                break
            sequence = next(iter(self._waiting.values()))
            if not self._write_if_room(sequence):
                break
            if sequence.written < sequence.end:
                self._waiting.move_to_end(sequence.key)
        # Not at every append while the disk is full or the remaining rows must wait.
        is_over = self._buffered_bytes > self._buffer_max_bytes
        self._write_at_bytes = self._buffered_bytes + RETRY_AFTER_BYTES if is_over else self._buffer_max_bytes

    def _write_if_room(self, sequence: _Sequence) -> bool:
        """Write a tail; a full disk keeps it in memory.
        Reads and acks continue then, and the broker refuses new messages.
        """
        has_room = is_done(lambda: self._write(sequence))
        if sequence.written < sequence.end:
            sequence.write_at_bytes = len(sequence.tail) + TAIL_SIZE_MAX_BYTES
        return has_room

    def _write(self, sequence: _Sequence) -> None:
        """Write the rows [written, end) unless one of their files must not change until the next
        saves.
        """
        rows_per_file = self._blocks.rows_per_file
        files = range(sequence.written // rows_per_file, -(-sequence.end // rows_per_file))
        if self._folders.has_retired(sequence.key, files):
            return
        # A copy: the traceback of an error could keep a view of the tail alive, and the tail could
        # not grow.
        tail = bytes(sequence.tail)
        base = self._blocks.write(sequence.key, sequence.life, sequence.base, sequence.written, tail)
        self._buffered_bytes -= self._unwritten_bytes(sequence)
        sequence.tail = bytearray(tail[(base - sequence.base) * self._row_size_bytes :])
        sequence.base, sequence.written = base, sequence.end
        sequence.write_at_bytes = TAIL_SIZE_MAX_BYTES
        self._waiting.pop(sequence.key, None)
