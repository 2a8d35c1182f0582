"""Pulls: 4 MiB of one queue's messages, verified and filled in, against pread of as many bytes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from loadtest.bench.figures import Figure
from loadtest.bench.store.entries import EntryMaker, Shape
from loadtest.bench.store.figures import Bar, in_turns, judged, scratch
from loadtest.bench.store.node import BenchNode
from loadtest.bench.store.queues import fill
from loadtest.bench.store.sizes import Sizes

RANGE_SIZE_BYTES = 4 << 20


def bench_pull(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield pulls of one queue's contiguous records, and of eight queues' interleaved records.

    Everything is in the file cache. `first`: by a process that has not read the entries yet and
    checks each of them as a whole.
    """
    shapes = (
        ("pull_contiguous", Shape(), Bar(ratio=0.4), "one queue"),
        ("pull_8_interleaved", Shape(queues=8, run=1), Bar(value=300), "every eighth record is of the queue"),
    )
    for figure, shape, bar, note in shapes:
        with scratch(folder / "pull") as place:
            maker = EntryMaker(shape)
            with BenchNode(place, sizes.segment_size_bytes, shape) as node:
                fill(node, maker, min(sizes.pull_size_bytes, sizes.segment_size_bytes // 2) // maker.record_size_bytes)
                node.save()
                end = node.log.end_position
            ours, bare = _Pull(place, sizes, maker), _BarePull(place / "commitlog" / f"{0:020d}", end)
            mine, other = in_turns(sizes.rounds, ours.first_round, bare.round)
            yield judged(f"{figure}_first", mine, "MB/s", bare=other, note=f"{note}; entries not yet verified")
            with ours.open() as ours.node:
                mine, other = in_turns(sizes.rounds, ours.round, bare.round)
            yield judged(figure, mine, "MB/s", bar, bare=other, note=note)


class _Pull:
    """Reads every queue from its first message to its last, as consumers that are far behind do."""

    def __init__(self, place: Path, sizes: Sizes, maker: EntryMaker) -> None:
        self._place, self._sizes = place, sizes
        self._record_size_bytes = maker.record_size_bytes
        self._count = RANGE_SIZE_BYTES // maker.record_size_bytes
        self.node: BenchNode

    def open(self) -> BenchNode:
        """Open the store again."""
        return BenchNode(self._place, self._sizes.segment_size_bytes)

    def first_round(self) -> float:
        """Return MB/s of a node that has just started."""
        with self.open() as self.node:
            return self.round()

    def round(self) -> float:
        """Return MB/s."""
        node, read, began_s = self.node, 0, time.perf_counter()
        ends = node.state.names.topics_by_id[1].ends
        for queue, end in enumerate(ends):
            for offset in range(0, end, self._count):
                read += len(node.pull(1, queue, offset, min(self._count, end - offset)))
        spent_s = time.perf_counter() - began_s
        if read != sum(ends) * self._record_size_bytes:
            raise RuntimeError(f"{read} bytes were read of {sum(ends)} messages")
        return read / 1e6 / spent_s


class _BarePull:
    """Reads the same file in pieces as large."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path, self._size_bytes = path, size_bytes

    def round(self) -> float:
        """Return MB/s."""
        fd, began_s = os.open(self._path, os.O_RDONLY), time.perf_counter()
        read = sum(len(os.pread(fd, RANGE_SIZE_BYTES, at)) for at in range(0, self._size_bytes, RANGE_SIZE_BYTES))
        spent_s = time.perf_counter() - began_s
        os.close(fd)
        return read / 1e6 / spent_s
