"""Appends to very many queues, gathered as arrays and handed out queue by queue.

An entry with a message for each of 500 queues would cost 500 small appends. Gathered over some
hundred entries it costs one append per queue for all of them. A read of a queue hands out its
appends first. Each clock tick hands out some too: a saved state needs all appends in their queues
and must not meet those of 10,000 queues at once.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppends

# An entry with fewer queues is cheaper to append directly.
GATHER_QUEUES_MIN = 32
# 5 MiB of entries; handing out takes about 10 ms for 10,000 queues.
GATHER_ROWS_MAX = 262_144
# Rows handed out per clock tick, about 8 us each if every row belongs to another queue. This keeps
# up with 5,000 messages a second; at higher rates a queue has several rows, which cost less
# together.
HANDED_OUT_ROWS = 256


@dataclass(frozen=True, slots=True)
class QueueShare:
    """One queue's share of the gathered appends.
    *entries*: bytes of the entries from offset *first* on. *times*: rows (visible_ms, offset) that
    begin with *first_ms*.
    """

    key: tuple[int, int]
    first: int
    entries: memoryview
    times: memoryview
    first_ms: int
    last_ms: int


class GatheredAppends:
    """Gathered appends, oldest first. Owner: the consume queues."""

    def __init__(self) -> None:
        self._batches: deque[tuple[QueueAppends, int]] = deque()
        self.rows = 0

    def add(self, appends: QueueAppends, visible_ms: int) -> None:
        """Gather *appends*; each of their queues continues at its previous end."""
        self._batches.append((appends, visible_ms))
        self.rows += len(appends.entries)

    def clear(self) -> None:
        """Drop everything gathered."""
        self._batches.clear()
        self.rows = 0

    def take(self, rows: int) -> Iterator[QueueShare]:
        """Hand out the oldest batches, at least *rows* entries, one share per queue."""
        batches = []
        while self._batches and rows > 0:
            batches.append(self._batches.popleft())
            rows -= len(batches[-1][0].entries)
            self.rows -= len(batches[-1][0].entries)
        codes = np.concatenate([appends.codes for appends, _ in batches])
        firsts = np.concatenate([appends.firsts for appends, _ in batches])
        counts = np.concatenate([np.diff(appends.bounds) for appends, _ in batches])
        times_ms = np.repeat([ms for _, ms in batches], [len(appends) for appends, _ in batches])
        entries = np.concatenate([appends.entries.view("V20") for appends, _ in batches])
        order = np.argsort(codes, kind="stable")  # the groups of a queue stay in order
        codes, firsts, times_ms = codes[order], firsts[order], times_ms[order]
        starts, counts = (np.cumsum(counts) - counts)[order], counts[order]
        ends = np.cumsum(counts)
        entry_rows = memoryview(entries[np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1])].tobytes())
        is_first = np.concatenate(([True], codes[1:] != codes[:-1]))
        is_new_time = is_first | np.concatenate(([True], times_ms[1:] > times_ms[:-1]))
        pairs = np.empty((int(is_new_time.sum()), 2), ">i8")
        pairs[:, 0], pairs[:, 1] = times_ms[is_new_time], firsts[is_new_time]
        time_rows = memoryview(pairs.tobytes())
        time_ends = np.cumsum(is_new_time)
        groups = np.flatnonzero(is_first)
        lasts = np.append(groups[1:], len(codes)) - 1
        size = QUEUE_ENTRIES.itemsize
        columns = (
            codes[groups].tolist(),
            firsts[groups].tolist(),
            ((ends - counts)[groups] * size).tolist(),
            (ends[lasts] * size).tolist(),
            ((time_ends[groups] - 1) * 16).tolist(),
            (time_ends[lasts] * 16).tolist(),
            times_ms[groups].tolist(),
            times_ms[lasts].tolist(),
        )
        for code, first, begin, end, time_begin, time_end, first_ms, last_ms in zip(*columns, strict=True):
            yield QueueShare(
                (code >> 32, code & 0xFFFFFFFF),
                first,
                entry_rows[begin:end],
                time_rows[time_begin:time_end],
                first_ms,
                last_ms,
            )
