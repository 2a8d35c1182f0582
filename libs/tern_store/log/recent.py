"""The newest entries in memory, bounded in bytes: nearly all that followers and apply read."""

from tern_store.log.entry import StoredEntry


class RecentEntries:
    """A run of consecutive entries that ends with the log's last. Owner: the commit log."""

    def __init__(self, size_max_bytes: int) -> None:
        self._size_max_bytes = size_max_bytes
        self._size_bytes = 0
        self._entries: dict[int, StoredEntry] = {}
        self._first = 0

    def find(self, index: int) -> StoredEntry | None:
        """Entry *index* if it is in memory."""
        return self._entries.get(index)

    def find_position(self, position: int) -> StoredEntry | None:
        """The entry that holds *position* if it is in memory."""
        low, high = self._first, self._first + len(self._entries) - 1
        if high < low or position < self._entries[low].position:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._entries[middle].position <= position else (low, middle - 1)
        found = self._entries[low]
        return found if position < found.position + len(found.raw) else None

    def add(self, entry: StoredEntry) -> None:
        """Add the log's new last entry and drop the oldest ones."""
        if not self._entries:
            self._first = entry.index
        self._entries[entry.index] = entry
        self._size_bytes += len(entry.raw)
        while self._size_bytes > self._size_max_bytes and self._entries:
            self._size_bytes -= len(self._entries.pop(self._first).raw)
            self._first += 1

    def cut(self, index: int) -> None:
        """Drop entry *index* and all later ones."""
        last = self._first + len(self._entries) - 1
        for cut in range(max(index, self._first), last + 1):
            self._size_bytes -= len(self._entries.pop(cut).raw)
