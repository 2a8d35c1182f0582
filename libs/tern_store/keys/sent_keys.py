"""Idempotency keys outside the replicated state: sealed tables in files, read by the leader alone.

The youngest table is part of the state (tern_broker/core/sending/idempotency.py). When apply seals
it, every node moves it here, where it stays in memory until its file is durable. Table numbers are
never reused; the state lists the existing ones: `add` and `drop` follow apply.

Law: a saved state names only tables with durable files (`written_before` waits on the save's
thread, before the state is written). A file goes when two saved states have been written without
it. An older state, or one at a segment's begin, may name files that are gone: a committed entry
dropped them, and a node that applies the log from there meets that entry before it serves.

A missing or damaged file is therefore damage only if its table still exists when the log is applied
up to its end at the start (`require_all`), or when the leader looks up a key (`find`). Then the
keys are derived again from the log (DerivedDamage). The exception are tables in the state at the
log's begin, whose entries the log lacks: those are LogRot, to be copied from the leader.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy.typing as npt

from tern_store.checking import Checked
from tern_store.errors import DerivedDamage, LogRot
from tern_store.files import REAL_FILES, Buffer, Files, discard, is_lack
from tern_store.keys.key_filter import KeyFilters, Words, filter_words
from tern_store.keys.sent_key_file import KeyFile, write_key_file
from tern_store.state.saving import Payload
from tern_wire.link.key_rows import Halves, Receipt, split_keys

FOLDER = "sentkeys"
# Saves without a table before its file goes: two states are kept.
_SAVES_WITHOUT = 2


class SealedTable(Protocol):
    """A table that no longer changes. May be read on any thread."""

    def find_halves(self, first: Halves, second: Halves) -> dict[int, Receipt]:
        """Receipts of the keys in this table, by the key's number."""

    def rows(self) -> npt.NDArray[Any]:
        """All rows, KEY_ROWS, in any order."""


@dataclass(slots=True, eq=False)
class KeyFileJob:
    """Writes one table.
    `run` on any thread, one at a time; again after an OSError for lack of room.
    """

    path: Path
    number: int
    newest_ms: int
    words: int
    table: SealedTable
    files: Files
    # The filters from the file's head, once it is durable.
    filters: tuple[Words, Words] | None = None

    def run(self) -> None:
        """Durable here: the table's file. OSError: it is still in memory; SyncLost is final."""
        if self.filters is None:
            facts = {"number": self.number, "newest_ms": self.newest_ms, "words": self.words}
            self.filters = write_key_file(self.path, self.table.rows(), files=self.files, **facts).filters


class SentKeys:
    """All sealed tables. Owner: the core loop; only `run` of its jobs may be called elsewhere."""

    def __init__(self, directory: Path, *, table_keys_max: int, files: Files) -> None:
        """Use `open`."""
        self._folder, self._files = directory / FOLDER, files
        self._words = filter_words(table_keys_max)
        # Every table by its number: its file and its filters' place, or the job that writes it, or
        # why it cannot be read.
        self._read: dict[int, KeyFile] = {}
        self._places: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._waiting: dict[int, KeyFileJob] = {}
        self._missing: dict[int, DerivedDamage] = {}
        self._filters = KeyFilters(self._words)
        # Files of dropped tables with the number of saves without them; those of the save under
        # way.
        self._dropped: dict[int, int] = {}
        self._saving: tuple[int, ...] = ()
        # Whether the log has the entries of a table; set by the store.
        self.is_derivable: Callable[[int], bool] = lambda _number: True

    @classmethod
    def open(cls, directory: Path, *, table_keys_max: int, files: Files = REAL_FILES) -> "SentKeys":
        """Open without tables; `restore` sets them. *directory* is the node's."""
        files.makedirs(directory / FOLDER)
        return cls(directory, table_keys_max=table_keys_max, files=files)

    def __len__(self) -> int:
        return len(self.numbers())

    def numbers(self) -> list[int]:
        """Numbers of the existing tables, ascending."""
        return sorted({*self._read, *self._waiting, *self._missing})

    @property
    def waiting(self) -> int:
        """Number of tables still in memory."""
        self.settle()
        return len(self._waiting)

    # Apply ----------------------------------------------------------------------------------------
    def add(self, number: int, table: SealedTable, newest_ms: int) -> KeyFileJob:
        """Add a sealed table; run the job on the thread that writes states.
        *newest_ms*: the time of its youngest key.
        """
        path = self._folder / file_name(number)
        job = self._waiting[number] = KeyFileJob(path, number, newest_ms, self._words, table, self._files)
        return job

    def drop(self, number: int) -> None:
        """Drop a table whose keys are all older than the window."""
        self.settle()
        self._missing.pop(number, None)
        self._waiting.pop(number, None)
        if number in self._read:
            self._forget(number)
        self._dropped[number] = 0

    def settle(self) -> None:
        """Free tables with durable files from memory.
        A table whose file cannot be opened now stays in memory and serves until it can.
        """
        for number, job in list(self._waiting.items()):
            if job.filters is None:
                continue
            try:
                self._take(*KeyFile.open(job.path, self._files))
            except DerivedDamage as damage:
                self._missing[number] = damage
            except OSError as error:
                if not is_lack(error):
                    raise
                continue  # no descriptor now: the table stays in memory until a later call opens its file
            del self._waiting[number]

    # Look up --------------------------------------------------------------------------------------
    def find(self, keys: bytes) -> dict[int, Receipt]:
        """Receipts of the concatenated 16-byte *keys* in any table, by the key's number.
        DerivedDamage, LogRot: a file is missing or damaged.
        """
        self.require_all()
        found: dict[int, Receipt] = {}
        if not keys or not (self._read or self._waiting):
            return found
        first, second = split_keys(keys)
        for job in self._waiting.values():
            found |= job.table.find_halves(first, second)
        for place, row in self._filters.candidates(first, second):
            number = self._numbers[place]
            try:
                receipt = self._read[number].find(int(first[row]), int(second[row]))
            except DerivedDamage as damage:
                raise self._judge(number, damage) from damage
            if receipt is not None:
                found[row] = receipt
        return found

    def require_all(self) -> None:
        """Raise DerivedDamage or LogRot if an existing table cannot be read."""
        self.settle()
        for number, damage in self._missing.items():
            raise self._judge(number, damage) from damage

    # Save -----------------------------------------------------------------------------------------
    def marks(self) -> list[int]:
        """The tables' numbers for a state, whose payload must be `written_before`."""
        self.settle()
        return self.numbers()

    def written_before(self, payload: Payload) -> Payload:
        """*payload*, delayed until the files of all current tables are durable.
        OSError: not all are.
        """
        jobs = tuple(self._waiting.values())

        def behind() -> Sequence[Buffer]:
            for job in jobs:
                job.run()
            return payload()

        return behind

    def begin_save(self) -> list[int]:
        """Return `marks` for a saved state; call `saved` if it becomes durable."""
        self._saving = tuple(self._dropped)
        return self.marks()

    def saved(self) -> None:
        """Count the save, now durable, and unlink files that two saves did not need."""
        for number in self._saving:
            self._dropped[number] += 1
            if self._dropped[number] == _SAVES_WITHOUT:
                del self._dropped[number]
                self._unlink(file_name(number))
        self._saving = ()

    def restore(self, marks: Sequence[int]) -> None:
        """Set the tables to *marks*; other files go: apply makes them again, or dropped them."""
        self.close()
        wanted = {file_name(number): number for number in marks}
        for name in self._files.listdir(self._folder):
            if name not in wanted:
                self._unlink(name)
        for name, number in wanted.items():
            try:
                file, filters = KeyFile.open(self._folder / name, self._files)
                if file.number != number or len(filters[0]) != self._words:
                    file.close()
                    raise DerivedDamage(self._folder / name, 0, "it is of another table, or of another size")
            except DerivedDamage as damage:
                self._missing[number] = damage
            else:
                self._take(file, filters)

    def wipe(self) -> None:
        """Remove all files."""
        self.restore(())

    def close(self) -> None:
        """Close the files. The next start makes the tables in memory again."""
        for number in list(self._read):
            self._forget(number)
        self._waiting, self._missing, self._dropped, self._saving = {}, {}, {}, ()

    # Damage ---------------------------------------------------------------------------------------
    def verify(self) -> Iterator[Checked | LogRot | DerivedDamage]:
        """Read every file once, in steps of about 1 MiB. Damage is yielded, never raised.
        The owner may continue its work between steps.
        """
        self.settle()
        for number, damage in list(self._missing.items()):
            yield self._judge(number, damage)
        for number in list(self._read):
            file = self._read.get(number)
            for found in file.verify() if file is not None else ():
                yield self._judge(number, found) if isinstance(found, DerivedDamage) else found
                if self._read.get(number) is not file:
                    break

    # Below ----------------------------------------------------------------------------------------
    def _take(self, file: KeyFile, filters: tuple[Words, Words]) -> None:
        place = self._filters.put(filters)
        self._read[file.number], self._places[file.number], self._numbers[place] = file, place, file.number

    def _forget(self, number: int) -> None:
        place = self._places.pop(number)
        del self._numbers[place]
        self._filters.drop(place)
        self._read.pop(number).close()

    def _judge(self, number: int, damage: DerivedDamage) -> LogRot | DerivedDamage:
        if self.is_derivable(number):
            return damage
        return LogRot(damage.file, damage.position, f"{damage.reason}; its keys are older than the log's beginning")

    def _unlink(self, name: str) -> None:
        discard(self._folder / name, self._files)


def file_name(number: int) -> str:
    """Name of a table's file."""
    return f"keys-{number:020d}.bin"
