"""Number of items in each namespace. Derived from the names, and saved nowhere."""

from collections import Counter

from tern_wire.names import namespace_of


class NamespaceCounts:
    """Counts of one kind of item, by namespace ("": names without one). Owner: the code that
    creates and deletes the items.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Add *count* (may be negative) to the namespace of the whole name *name*."""
        namespace = namespace_of(name)
        self._counts[namespace] += count
        if not self._counts[namespace]:
            del self._counts[namespace]

    def of(self, name: str) -> int:
        """Return the count of the namespace of the whole name *name*."""
        return self._counts[namespace_of(name)]
