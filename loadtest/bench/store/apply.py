"""Applying entries on one core: positions, offsets, consume queues, key index.

Also the bytes written for each message.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtest.bench.figures import Figure
from loadtest.bench.store.entries import EntryMaker, Shape
from loadtest.bench.store.figures import Bar, drop_cache, in_turns, judged, scratch
from loadtest.bench.store.node import BenchNode
from loadtest.bench.store.sizes import Sizes
from tern_store.files import Buffer, RealFiles

_FULL = Shape(queues=8, run=1, has_key=True, has_tag=True, properties=2)


class CountingFiles(RealFiles):
    """The kernel's files, with a count of the bytes passed to them."""

    def __init__(self) -> None:
        self.written_bytes = 0

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        self.written_bytes += memoryview(data).nbytes
        super().pwrite(fd, data, position)

    def pwritev(self, fd: int, parts: Sequence[Buffer], position: int) -> None:
        self.written_bytes += sum(memoryview(part).nbytes for part in parts)
        super().pwritev(fd, parts, position)


class Applying:
    """Rounds of one shape in one store that goes on growing.

    *with_append*: the log's own append is timed too.
    """

    def __init__(self, node: BenchNode, shape: Shape, messages: int, *, with_append: bool) -> None:
        self._node, self._maker = node, EntryMaker(shape)
        self._messages, self._with_append = messages, with_append

    def round(self) -> float:
        """Return messages per second."""
        node, maker, spent_s, done = self._node, self._maker, 0.0, 0
        drop_cache(node.store.directory)
        while done < self._messages:
            parts = maker.take()
            began_s = time.perf_counter()
            entry = node.append(parts)
            if not self._with_append:
                began_s = time.perf_counter()
            node.apply(entry)
            spent_s += time.perf_counter() - began_s
            done += maker.count
            node.allocate_ahead()
        return done / spent_s


def bench_apply(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield records of 1 KiB in entries of 512 KiB. RocketMQ's message ids are always indexed."""
    shapes = (
        ("apply", Shape(queues=8), Bar(value=400_000), "one queue in an entry"),
        ("apply_8_queues", Shape(queues=8, run=1), Bar(value=400_000), "8 queues in every entry"),
        ("apply_keyed", Shape(queues=8, has_key=True), Bar(value=250_000), "one queue in an entry, a key each"),
        ("apply_full", _FULL, Bar(value=250_000), "8 queues in every entry, key, tag, 2 properties each"),
    )
    for figure, shape, bar, note in shapes:
        with scratch(folder / "apply") as place, BenchNode(place, sizes.segment_size_bytes, shape) as node:
            (found,) = in_turns(sizes.rounds, Applying(node, shape, sizes.apply_messages, with_append=False).round)
        yield judged(figure, found, "messages/s", bar, note=note)


def bench_written(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Yield the bytes passed to pwrite for each message of 1 KiB.

    Log, queues, index, and a save every 64 MiB.
    """
    for figure, shape, bar_kib in (("written_per_message", Shape(queues=8), 1.25), ("written_full", _FULL, 1.40)):
        files = CountingFiles()
        with (
            scratch(folder / "written") as place,
            BenchNode(place, sizes.segment_size_bytes, shape, files=files) as node,
        ):
            maker, before = EntryMaker(shape), files.written_bytes
            while maker.made < sizes.written_messages:
                node.apply(node.append(maker.take()))
                node.save_if_due()
            node.save()
        kib = (files.written_bytes - before) / maker.made / 1024
        note = f"records of {maker.record_size_bytes} bytes" + (
            " with key, tag, 2 properties" if shape is _FULL else ""
        )
        yield judged(figure, [kib], "KiB", Bar(value=bar_kib, more_is_better=False), note=note)
