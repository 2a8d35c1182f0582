"""The states in which a power cut may leave a disk, enumerated: every prefix of a tape of effects, each in every named way.

A tape is what `FaultyFiles.tape` recorded of one run. Cut k: the first k effects happened, and of what was not synced by then

    kept, dropped                 everything arrived, nothing did
    names-lost, names-only        all data and no name (rename, creation, removal); all names and no data
    grown, cut-short              files have their new sizes without the data; the data within their old sizes
    torn-head, torn-tail          half of the last write's sectors arrived, everything before it did
    even-sectors, odd-sectors     every other sector of every write arrived
    late-writes, early-writes     of each file's writes the later half arrived and the earlier did not; the other way round
    last-only, last-lost          the last write arrived alone; it alone did not
    files-even, files-odd         every other file's data arrived, none of the others'
    random-N                      anything, by chance: seed N

Law: states that differ in no decision are yielded once per cut, so the count of states is a count of different recoveries.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.files.faulty_disk import Arrivals, Effect, FaultyDisk, FaultyFile, RandomArrivals, Version
from tests.support.files.faulty_files import FaultyFiles


@dataclass(frozen=True, slots=True)
class CrashState:
    """The disk *files* after *cut* effects, left in the way *variant*."""

    cut: int
    variant: str
    files: FaultyFiles


class _Pending:
    """What is unsynced at one cut: its writes by file, and the last of them."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.writes: dict[int, list[int]] = {}  # ascending, by file
        last: list[tuple[int, int, int]] = []
        for number, file in disk.files.items():
            sectors = file.lost | file.versions  # a sector is in one of them
            if sectors or file.sizes:
                self.writes[number] = sorted({write for versions in sectors.values() for write, _ in versions})
                last += [(versions[-1][0], number, sector) for sector, versions in sectors.items()]
        newest = max(last)[0] if last else 0
        newly = sorted((number, sector) for write, number, sector in last if write == newest)
        self.last_write = newest
        self.last_head = set(newly[: -(-len(newly) // 2)])
        self.rank = {number: rank for rank, number in enumerate(sorted(self.writes))}

    def middle(self, number: int) -> int:
        """The first write of the file's later half."""
        writes = self.writes[number]
        return writes[len(writes) // 2] if writes else 0


Rule = Callable[[_Pending, FaultyFile, int, list[Version]], int]


def _kept(_pending: _Pending, _file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return len(versions)


def _dropped(_pending: _Pending, _file: FaultyFile, _sector: int, _versions: list[Version]) -> int:
    return 0


def _torn(pending: _Pending, file: FaultyFile, sector: int, versions: list[Version], *, head: bool) -> int:
    is_last = versions[-1][0] == pending.last_write
    arrived = not is_last or ((file.number, sector) in pending.last_head) is head
    return len(versions) if arrived else len(versions) - 1


def _torn_head(pending: _Pending, file: FaultyFile, sector: int, versions: list[Version]) -> int:
    return _torn(pending, file, sector, versions, head=True)


def _torn_tail(pending: _Pending, file: FaultyFile, sector: int, versions: list[Version]) -> int:
    return _torn(pending, file, sector, versions, head=False)


def _even(_pending: _Pending, _file: FaultyFile, sector: int, versions: list[Version]) -> int:
    return 0 if sector % 2 else len(versions)


def _odd(_pending: _Pending, _file: FaultyFile, sector: int, versions: list[Version]) -> int:
    return len(versions) if sector % 2 else 0


def _late(pending: _Pending, file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return len(versions) if versions[-1][0] >= pending.middle(file.number) else 0


def _early(pending: _Pending, file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return sum(write < pending.middle(file.number) for write, _ in versions)


def _last_only(pending: _Pending, _file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return len(versions) if versions[-1][0] == pending.last_write else 0


def _last_lost(pending: _Pending, _file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return len(versions) - (versions[-1][0] == pending.last_write)


def _files_even(pending: _Pending, file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return 0 if pending.rank.get(file.number, 0) % 2 else len(versions)


def _files_odd(pending: _Pending, file: FaultyFile, _sector: int, versions: list[Version]) -> int:
    return len(versions) if pending.rank.get(file.number, 0) % 2 else 0


# name: (which versions, whether sizes have arrived, which part of each directory's steps).
_NAMED: dict[str, tuple[Rule, bool, str]] = {
    "kept": (_kept, True, "all"),
    "dropped": (_dropped, False, "none"),
    "names-lost": (_kept, True, "none"),
    "names-only": (_dropped, False, "all"),
    "grown": (_dropped, True, "all"),
    "cut-short": (_kept, False, "all"),
    "torn-head": (_torn_head, True, "all"),
    "torn-tail": (_torn_tail, True, "all"),
    "even-sectors": (_even, True, "half"),
    "odd-sectors": (_odd, True, "all"),
    "late-writes": (_late, True, "but-last"),
    "early-writes": (_early, True, "none"),
    "last-only": (_last_only, True, "all"),
    "last-lost": (_last_lost, True, "all"),
    "files-even": (_files_even, True, "all"),
    "files-odd": (_files_odd, True, "half"),
}
VARIANTS = tuple(_NAMED)


class _Named:
    """Arrivals of a named variant."""

    def __init__(self, name: str, pending: _Pending) -> None:
        self._rule, self._is_sized, self._steps = _NAMED[name]
        self._pending = pending

    def steps(self, directory: Path, count: int) -> int:
        return {"all": count, "none": 0, "half": count // 2, "but-last": max(0, count - 1)}[self._steps]

    def size(self, file: FaultyFile) -> int:
        return len(file.live) if self._is_sized else len(file.durable)

    def version(self, file: FaultyFile, sector: int, versions: list[Version]) -> int:
        return self._rule(self._pending, file, sector, versions)


class _Noted:
    """Arrivals whose decisions are remembered."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self.decisions: list[int] = []

    def steps(self, directory: Path, count: int) -> int:
        self.decisions.append(self._arrivals.steps(directory, count))
        return self.decisions[-1]

    def size(self, file: FaultyFile) -> int:
        self.decisions.append(self._arrivals.size(file))
        return self.decisions[-1]

    def version(self, file: FaultyFile, sector: int, versions: list[Version]) -> int:
        self.decisions.append(self._arrivals.version(file, sector, versions))
        return self.decisions[-1]


def crash_states(
    start: FaultyFiles, tape: Sequence[Effect], variants: Iterable[str], cuts: Iterable[int] | None = None
) -> Iterator[CrashState]:
    """The states of a run that began on *start* (which does not change) at *cuts* (ascending; None: all)."""
    variants = tuple(variants)
    disk = start.fork()
    played = 0
    for cut in range(len(tape) + 1) if cuts is None else cuts:
        while played < cut:
            disk.play(tape[played])
            played += 1
        pending = _Pending(disk.disk())
        seen: set[tuple[int, ...]] = set()
        for variant in variants:
            arrivals = _Noted(_arrivals(variant, cut, pending))
            files = disk.after_crash(arrivals)
            if (decisions := tuple(arrivals.decisions)) not in seen:
                seen.add(decisions)
                yield CrashState(cut, variant, files)


def crashed(files: FaultyFiles, variant: str) -> FaultyFiles:
    """Another machine with what the power leaves of *files* if it goes now."""
    disk = files.disk()
    return files.after_crash(_arrivals(variant, files.operations, _Pending(disk)))


def _arrivals(variant: str, cut: int, pending: _Pending) -> Arrivals:
    if variant.startswith("random-"):
        return RandomArrivals(random.Random(f"{variant} at {cut}"))
    return _Named(variant, pending)
