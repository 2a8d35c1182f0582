"""Appends to the commit log and recovery scans, against the fewest system calls on a file."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from loadtest.bench.figures import Figure
from loadtest.bench.store.entries import ENTRY_SIZE_BYTES, EntryMaker, Shape
from loadtest.bench.store.figures import Bar, drop_cache, in_turns, judged, scratch
from loadtest.bench.store.sizes import Sizes
from tern_store import CommitLog, EntryKind, Genesis
from tern_store.checksum import crc32
from tern_wire.link.commands import STATE_MACHINE_VERSION

_WINDOW_SIZE_BYTES = 1 << 20


def bench_group(segment_size_bytes: int) -> Genesis:
    """Return the group of every log that a bench makes."""
    return Genesis(bytes(16), ("bench",), segment_size_bytes)


def bench_append(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield entries of 512 KiB with and without fdatasync.

    Both sides write the same parts into files that are allocated in the same way.
    """
    for figure, synced, ratio in (("append_synced", True, 0.75), ("append_unsynced", False, 0.5)):
        with scratch(folder / "append") as place:
            ours, bare = _OurAppend(place, sizes, synced=synced), _BareAppend(place, sizes, synced=synced)
            mine, other = in_turns(sizes.append_rounds, ours.round, bare.round)
            ours.log.close()
            os.close(bare.fd)
        yield judged(figure, mine, "MB/s", Bar(ratio=ratio), bare=other)


class _OurAppend:
    """A log that grows."""

    def __init__(self, directory: Path, sizes: Sizes, *, synced: bool) -> None:
        self._directory, self._size_bytes, self._synced = directory, sizes.append_size_bytes, synced
        self.log = CommitLog.open(directory / "ours", group=bench_group(sizes.segment_size_bytes))
        self._maker = EntryMaker(Shape())

    def round(self) -> float:
        """Return MB/s."""
        log, spent_s, written = self.log, 0.0, 0
        drop_cache(self._directory)
        while written < self._size_bytes:
            parts = self._maker.take()
            began_s = time.perf_counter()
            entry = log.append(EntryKind.COMMANDS, log.end_index + 1, 1, parts, STATE_MACHINE_VERSION)
            if self._synced and (job := log.take_sync()) is not None:
                job.run()
                log.mark_synced(job)
            spent_s += time.perf_counter() - began_s
            written += len(entry)
            if log.end_position % log.segment_size_bytes > log.segment_size_bytes // 2:
                spare = log.preallocate_next()
                if spare is not None:
                    spare.run()
                    log.mark_preallocated(spare)
        return written / 1e6 / spent_s


class _BareAppend:
    """One pwritev for each entry, into a file of a segment's size; then the next file."""

    def __init__(self, directory: Path, sizes: Sizes, *, synced: bool) -> None:
        self._directory, self._size_bytes, self._synced = directory, sizes.append_size_bytes, synced
        self._file_size_bytes = self._at = sizes.segment_size_bytes
        self._maker = EntryMaker(Shape())
        self.fd = -1

    def round(self) -> float:
        """Return MB/s."""
        spent_s, written = 0.0, 0
        drop_cache(self._directory)
        while written < self._size_bytes:
            if self._at + ENTRY_SIZE_BYTES > self._file_size_bytes:
                self._next_file()
            parts = self._maker.take()
            began_s = time.perf_counter()
            size = os.pwritev(self.fd, parts, self._at)
            if self._synced:
                os.fdatasync(self.fd)
            spent_s += time.perf_counter() - began_s
            self._at += size
            written += size
        return written / 1e6 / spent_s

    def _next_file(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = os.open(self._directory / "bare", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.posix_fallocate(self.fd, 0, self._file_size_bytes)
        os.fdatasync(self.fd)
        self._at = 0


def bench_scan(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield the opening of a log from its first byte on, against pread and crc32 alone.

    The files are in the file cache.
    """
    group = bench_group(sizes.segment_size_bytes)
    with scratch(folder / "scan") as place:
        maker, log = EntryMaker(Shape()), CommitLog.open(place, group=group)
        while log.end_position < sizes.scan_size_bytes:
            log.append(EntryKind.COMMANDS, log.end_index + 1, 1, maker.take(), STATE_MACHINE_VERSION)
        job, size = log.take_sync(), log.end_position
        if job is not None:
            job.run()
        log.close()

        def ours() -> float:
            began_s = time.perf_counter()
            found = CommitLog.open(place, group=group)
            spent_s = time.perf_counter() - began_s
            if found.end_position != size:
                raise RuntimeError(f"the scan ended at {found.end_position}, the log at {size}")
            found.close()
            return size / 1e6 / spent_s

        def bare() -> float:
            paths, left, crc = sorted((place / "commitlog").glob("0*")), size, 0
            began_s = time.perf_counter()
            for path in paths:
                fd = os.open(path, os.O_RDONLY)
                for at in range(0, min(group.segment_size_bytes, left), _WINDOW_SIZE_BYTES):
                    crc = crc32(os.pread(fd, _WINDOW_SIZE_BYTES, at), crc)
                left -= group.segment_size_bytes
                os.close(fd)
            return size / 1e6 / (time.perf_counter() - began_s)

        mine, other = in_turns(sizes.rounds, ours, bare)
    yield judged("recovery_scan", mine, "MB/s", Bar(ratio=0.5, value=600), bare=other, note="file cache warm")
