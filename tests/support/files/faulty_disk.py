"""A disk in memory and what a power cut leaves of it: files as sectors, directories as steps.

Model. A write changes sectors; until fdatasync every touched sector may be found as it was after any of its writes, independently
of all other sectors, and the file with any size that it had. Creations (of folders too), renames and removals within a directory
arrive in order, up to some point, until fsync_dir. What an fdatasync failed on stays unsynced until it is written again (the kernel
marks the lost pages clean). Every change is one effect, by which it can be repeated on another disk.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

SECTOR = 512
# What a name stands for, beside numbers of files (1 and up).
REMOVED, FOLDER = -1, 0
# One atomic change of a directory: names, and what they stand for from now on.
Step = tuple[tuple[str, int], ...]
# The name of a method of `_Disk` and its arguments.
Effect = tuple[Any, ...]
# A sector's content after one of its writes, and that write's number.
Version = tuple[int, bytes]


@dataclass(eq=False)
class FaultyFile:
    """What a file is for who reads it (`live`), what is on the platter, and what may or may not get there."""

    number: int
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    sizes: list[int] = field(default_factory=list)  # that it had since the last sync
    versions: dict[int, list[Version]] = field(default_factory=dict)  # by sector, since the last sync
    lost: dict[int, list[Version]] = field(default_factory=dict)  # the same, of failed syncs
    allocated: int = 0  # space: a file has it from its start to here
    locked_by: int | None = None

    def remember(self, write: int, start: int, stop: int) -> None:
        """A write has changed the bytes [start, stop)."""
        for sector in range(start // SECTOR, -(-stop // SECTOR)):
            if sector not in self.versions:
                self.versions[sector] = self.lost.pop(sector, [])
            content = bytes(self.live[sector * SECTOR : (sector + 1) * SECTOR])
            self.versions[sector].append((write, content.ljust(SECTOR, b"\0")))

    def resized(self) -> None:
        """Note the size of `live`."""
        if len(self.live) != (self.sizes[-1] if self.sizes else len(self.durable)):
            self.sizes.append(len(self.live))

    def synced(self) -> None:
        """What has not been lost is on the platter."""
        size, durable, live = len(self.live), self.durable, self.live
        if durable is live:  # a test had a hand in it
            durable = self.durable = bytearray(live)
        if len(durable) > size:
            del durable[size:]
        elif len(durable) < size:
            durable.extend(bytes(size - len(durable)))
        # Only what was written differs: a segment is large, and it is synced after every entry.
        for sector in self.versions:
            at = slice(sector * SECTOR, (sector + 1) * SECTOR)
            durable[at] = live[at]
        self.sizes, self.versions = [], {}


class Arrivals(Protocol):
    """Decides what of the unsynced was on the platter when the power went."""

    def steps(self, directory: Path, count: int) -> int:
        """How many of the directory's *count* unsynced steps arrived, the earliest first."""

    def size(self, file: FaultyFile) -> int:
        """The file's size."""

    def version(self, file: FaultyFile, sector: int, versions: list[Version]) -> int:
        """The sector is as after that many of its unsynced writes; 0: as it was before."""


class Everything:
    """All of it arrived."""

    def steps(self, directory: Path, count: int) -> int:
        return count

    def size(self, file: FaultyFile) -> int:
        return len(file.live)

    def version(self, file: FaultyFile, sector: int, versions: list[Version]) -> int:
        return len(versions)


class Nothing:
    """What was not synced is gone."""

    def steps(self, directory: Path, count: int) -> int:
        return 0

    def size(self, file: FaultyFile) -> int:
        return len(file.durable)

    def version(self, file: FaultyFile, sector: int, versions: list[Version]) -> int:
        return 0


class RandomArrivals:
    """Everything, nothing, or anything between, by chance."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def steps(self, directory: Path, count: int) -> int:
        return self._rng.choice([0, count, self._rng.randint(0, count)])

    def size(self, file: FaultyFile) -> int:
        return self._rng.choice([len(file.durable), len(file.live), *file.sizes])

    def version(self, file: FaultyFile, sector: int, versions: list[Version]) -> int:
        return self._rng.choice([0, len(versions), self._rng.randint(0, len(versions))])


class FaultyDisk:
    """Files and directories without descriptors: the effects, and what a crash leaves of them."""

    def __init__(self) -> None:
        self.files: dict[int, FaultyFile] = {}
        self.names: dict[Path, dict[str, int]] = {Path("/"): {}}
        self.durable_names: dict[Path, dict[str, int]] = {Path("/"): {}}
        self.steps: dict[Path, list[Step]] = {}  # since the last fsync_dir
        self.write_count = 0
        self.file_count = 0  # that there ever were: the number of the newest

    # Effects ---------------------------------------------------------------------------------------------------
    def put(self, number: int, data: bytes, position: int) -> None:
        file, stop = self.files[number], position + len(data)
        file.live.extend(bytes(max(0, stop - len(file.live))))
        file.live[position:stop] = data
        file.allocated = max(file.allocated, stop)
        self.write_count += 1
        file.remember(self.write_count, position, stop)
        file.resized()

    def allocate(self, number: int, size: int) -> None:
        file = self.files[number]
        file.live.extend(bytes(max(0, size - len(file.live))))
        file.allocated = max(file.allocated, size)
        file.resized()

    def resize(self, number: int, size: int) -> None:
        file = self.files[number]
        old = len(file.live)
        file.live = file.live[:size].ljust(size, b"\0")
        file.allocated = min(file.allocated, size)
        self.write_count += 1
        file.remember(self.write_count, min(size, old), max(size, old))
        file.resized()

    def sync(self, number: int) -> None:
        self.files[number].synced()

    def fail_sync(self, number: int) -> None:
        file = self.files[number]
        for sector, versions in file.versions.items():
            file.lost[sector] = versions
        file.versions = {}

    def name(self, directory: Path, step: Step) -> None:
        self.set_names(self.names, directory, step)
        self.steps.setdefault(directory, []).append(step)
        for _, number in step:
            if number > FOLDER and number not in self.files:
                self.files[number] = FaultyFile(number)
                self.file_count = number

    def sync_names(self, directory: Path) -> None:
        for step in self.steps.pop(directory, []):
            self.set_names(self.durable_names, directory, step)

    def skip(self) -> None:
        """What a test took from a tape."""

    # Below -----------------------------------------------------------------------------------------------------
    def set_names(self, tree: dict[Path, dict[str, int]], directory: Path, step: Step) -> None:
        entries = tree.setdefault(directory, {})
        for name, number in step:
            if number == REMOVED:
                entries.pop(name, None)
            else:
                entries[name] = number
            if number == FOLDER:
                tree.setdefault(directory / name, {})

    def after_crash(self, arrivals: Arrivals) -> "FaultyDisk":
        disk = FaultyDisk()
        disk.write_count, disk.file_count = self.write_count, self.file_count
        tree = {path: dict(entries) for path, entries in self.durable_names.items()}
        for directory, steps in self.steps.items():
            for step in steps[: arrivals.steps(directory, len(steps))]:
                self.set_names(tree, directory, step)
        found = [Path("/")]  # a directory whose own name did not arrive takes everything below with it
        for path in found:
            entries = tree.get(path, {})
            disk.names[path], disk.durable_names[path] = dict(entries), dict(entries)
            found += [path / name for name, number in entries.items() if number == FOLDER]
            for number in entries.values():
                if number > FOLDER:
                    disk.files[number] = _file_after_crash(self.files[number], arrivals)
        return disk


def _file_after_crash(file: FaultyFile, arrivals: Arrivals) -> FaultyFile:
    content = bytearray(file.durable)
    if file.sizes or file.versions or file.lost:
        size = arrivals.size(file)
        content.extend(bytes(max(len(content), *file.sizes, size, len(file.live)) - len(content)))
        for changes in (file.versions, file.lost):
            for sector, versions in changes.items():
                kept = arrivals.version(file, sector, versions)
                if kept:
                    content[sector * SECTOR : (sector + 1) * SECTOR] = versions[kept - 1][1]
        del content[size:]
    return FaultyFile(file.number, content, bytearray(content), allocated=len(content))
