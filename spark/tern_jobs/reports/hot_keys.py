"""The keys that most messages have, counted in bounded memory, from a sample of a backlog.

All of the backlog is read where it is small; else blocks at even distances, so that no part of it
counts more than another. A summary holds a bounded number of keys. Where there are more, it drops
rare ones and knows by how much a count may be too low (Misra and Gries).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow.compute as pc

from tern_spark.columns import record_batch
from tern_spark.options import ReadOptions
from tern_spark.pages import ProxyPages
from tern_spark.ranges import QueueRange, split_ranges
from tern_wire.errors import OffsetExpired
from tern_wire.names import parse_queue

# Blocks of a sample, one request each, and messages of a block: 16,384 messages take some 0.5 s. A
# key of a hundredth of the backlog has 160 of them.
SAMPLE_BLOCKS_MAX, BLOCK_ROWS_MAX = 128, 128
# Bytes of a block, or one message: a sample reads 64 MiB at most if bodies are large.
_BLOCK_SIZE_MAX_BYTES = 512 * 1024
# Keys that a summary holds, and twice as many for a moment. A key of more than one in 4,096 of all
# that were counted is never missed.
KEYS_HELD_MAX = 4_096

# Returns the column `keys` of a range, or of its first messages; None if they were deleted.
Read = Callable[[QueueRange], Any]


class KeyCounts:
    """The most frequent keys. *rows*: messages that were counted. *too_low*: how much lower a count
    may be than the truth; 0 while no key was dropped.
    """

    def __init__(self, held_max: int = KEYS_HELD_MAX) -> None:
        self._held_max = held_max
        self._counts: Counter[str] = Counter()
        self.rows = 0
        self.too_low = 0

    def add(self, keys: Any) -> None:
        """Count a column of keys. A message may have several, separated by blanks, or none."""
        self.rows += len(keys)
        words = pc.list_flatten(pc.split_pattern(keys.drop_null(), " "))
        for row in pc.value_counts(words).to_pylist():
            if row["values"]:
                self._counts[row["values"]] += row["counts"]
                if len(self._counts) > 2 * self._held_max:
                    self._drop()

    def top(self, most: int) -> list[tuple[str, int]]:
        """Return up to *most* keys and their counts, the most frequent first."""
        return sorted(self._counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most]

    def _drop(self) -> None:
        """Take from each key the count of the first one beyond the limit; rare ones go."""
        least = sorted(self._counts.values(), reverse=True)[self._held_max]
        self.too_low += least
        self._counts = Counter({key: count - least for key, count in self._counts.items() if count > least})


def count_keys(ranges: Sequence[QueueRange], read: Read) -> KeyCounts:
    """Return the keys of a sample of *ranges*."""
    found = KeyCounts()
    for block in sample(ranges):
        keys = read(block)
        if keys is not None:
            found.add(keys)
    return found


def read_keys(pages: ProxyPages, block: QueueRange) -> Any:
    """Return the keys of the first page of *block*; None when retention was faster."""
    try:
        page = pages.page(block.topic, block.queue, block.start, block.end, _BLOCK_SIZE_MAX_BYTES)
    except OffsetExpired:
        return None
    queue = parse_queue(block.queue, block.topic)
    return record_batch(page.records, topic=block.topic, queue=queue, names=("keys",)).column("keys")


def keys_of(ranges: Sequence[QueueRange], options: ReadOptions) -> KeyCounts:
    """Return the keys of a sample of *ranges*, read from the proxies of *options*. TernError."""
    with ProxyPages.of(options) as pages:
        return count_keys(ranges, lambda block: read_keys(pages, block))


def sample(ranges: Sequence[QueueRange]) -> list[QueueRange]:
    """Return at most SAMPLE_BLOCKS_MAX blocks of *ranges*: all rows, if so many blocks have them;
    else blocks whose begins are at even distances in the joined ranges.
    """
    waiting = [found for found in ranges if found.rows]
    if sum(-(-found.rows // BLOCK_ROWS_MAX) for found in waiting) <= SAMPLE_BLOCKS_MAX:
        return split_ranges(waiting, rows_max=BLOCK_ROWS_MAX, partitions_min=0)
    return list(_even_blocks(waiting))


def _even_blocks(ranges: Sequence[QueueRange]) -> Iterator[QueueRange]:
    """Yield the blocks; none goes on into the next range, or to the begin of the next block."""
    rows = sum(found.rows for found in ranges)
    at, before = 0, 0
    begins = [number * rows // SAMPLE_BLOCKS_MAX for number in range(SAMPLE_BLOCKS_MAX + 1)]
    for begin, following in pairwise(begins):
        while begin - before >= ranges[at].rows:
            before, at = before + ranges[at].rows, at + 1
        found = ranges[at]
        start = found.start + begin - before
        end = min(start + min(BLOCK_ROWS_MAX, following - begin), found.end)
        yield QueueRange(topic=found.topic, queue=found.queue, start=start, end=end)
