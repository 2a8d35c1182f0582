"""Search one queue for messages that match a reader's filter, from an offset on, a page at a time.

Law: messages that do not match are skipped and count: `offset` moves past everything that was
examined, so nothing is examined twice. The filter decides: first by queue entries (20 bytes each),
then by the records of the remaining ones only.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.topics import Topic
from tern_broker.reading.reader import Reader
from tern_wire.filters import Filter
from tern_wire.limits import MIB
from tern_wire.records.layout import HEAD_SIZE_BYTES

# Entries of one page: 80 KiB of a queue's file by tags; records of an SQL page are evaluated one by
# one, some 3 us each.
TAG_PAGE_ENTRIES, SQL_PAGE_ENTRIES = 4_096, 256
PAGE_SIZE_MAX_BYTES = 1 * MIB
# Heads of one page, if their records are small: a page takes about a millisecond.
HEADS_PAGE_ENTRIES = 2_048


class QueueScan:
    """One reader's scan of one queue. Owner: the request that makes it."""

    def __init__(
        self,
        reader: Reader,
        topic: Topic,
        queue: int,
        offset: int,
        wanted: Filter,
        *,
        end: int | None,
        messages_max: int,
        size_max_bytes: int,
        heads_only: bool = False,
    ) -> None:
        """Scan [*offset*, *end*), or up to the current end of the queue. *heads_only*: find the
        heads of the records, which *size_max_bytes* then counts.
        """
        self._reader, self._topic, self._queue, self._wanted = reader, topic, queue, wanted
        self._end, self._messages_left, self._size_left = end, messages_max, size_max_bytes
        # The begin of the next page.
        self.offset = offset
        # Records that were found, filled in.
        self.found: list[memoryview] = []
        # Number of messages found.
        self.messages = 0
        self._heads_only = heads_only
        self._is_full = False

    @property
    def end(self) -> int:
        """The current end of the scan."""
        end = self._topic.ends[self._queue]
        return end if self._end is None else min(self._end, end)

    @property
    def is_closed(self) -> bool:
        """Whether it has reached the requested end: no new message could belong to it."""
        return self._end is not None and self.offset >= self._end

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to examine now, or nothing more fits."""
        return self._is_full or self.offset >= self.end

    def keep_to(self, page_bytes: int) -> None:
        """Limit the answer to *page_bytes*, if that is less than requested (0: no limit)."""
        if page_bytes:
            self._size_left = min(self._size_left, page_bytes)

    def step(self) -> None:
        """Examine one page. OffsetExpired when retention has passed the place; LogRot,
        DerivedDamage.
        """
        if self._heads_only and self._wanted.is_all:
            self._step_by_heads()
            return
        if self._wanted.is_all:
            page = self._reader.pull(
                self._topic, self._queue, self.offset, self.end, self._messages_left, self._size_left
            )
            self.found += [page.data] if len(page.offsets) else []
            self.messages += len(page.offsets)
            self.offset += len(page.offsets)
            self._is_full = bool(self.found)
            return
        page_entries = TAG_PAGE_ENTRIES if self._wanted.is_tag else SQL_PAGE_ENTRIES
        entries = self._reader.entries(self._topic, self._queue, self.offset, min(page_entries, self.end - self.offset))
        if not len(entries):
            # Its end is known but its entries are missing: the queue was removed.
            self._is_full = True
            return
        left = np.flatnonzero(self._wanted.preselect(entries))
        sizes = np.cumsum(entries["size"].astype(np.int64)[left])
        fitting = max(1, int(np.searchsorted(sizes, PAGE_SIZE_MAX_BYTES, side="right")))
        looked_at = int(left[fitting]) if fitting < len(left) else len(entries)
        left = left[:fitting]
        if len(left):
            looked_at = self._keep(entries, left, looked_at)
        self.offset += looked_at

    def _step_by_heads(self) -> None:
        """Find the heads of one page of records."""
        most = min(self._messages_left, max(1, self._size_left // HEAD_SIZE_BYTES))
        most = min(most, HEADS_PAGE_ENTRIES)
        page = self._reader.read_heads(self._topic, self._queue, self.offset, self.end, most, PAGE_SIZE_MAX_BYTES)
        count = len(page.offsets)
        if count:
            self.found.append(page.data)
        self.messages += count
        self.offset += count
        self._messages_left -= count
        self._size_left -= count * HEAD_SIZE_BYTES
        self._is_full = not count or not self._messages_left or self._size_left < HEAD_SIZE_BYTES

    def _keep(self, entries: npt.NDArray[Any], left: npt.NDArray[np.int64], looked_at: int) -> int:
        """Read the entries numbered *left* and keep those that match, as far as they fit; return
        how many entries were examined.
        """
        page = self._reader.read_messages(self._topic, self._queue, self.offset + left, entries[left])
        sizes = entries["size"].astype(np.int64)[left]
        starts = np.cumsum(sizes) - sizes
        for number in np.flatnonzero(self._wanted.matches(page.data, starts)).tolist():
            size = HEAD_SIZE_BYTES if self._heads_only else int(sizes[number])
            if not self._messages_left or (size > self._size_left and self.found):
                self._is_full = True
                return int(left[number])
            start = int(starts[number])
            # A copy: the page is much larger than the few that match.
            self.found.append(memoryview(bytes(page.data[start : start + size])))
            self.messages += 1
            self._messages_left -= 1
            self._size_left -= size
        self._is_full = not self._messages_left
        return looked_at
