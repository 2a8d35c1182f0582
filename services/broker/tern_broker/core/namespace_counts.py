"""How much of what is counted each namespace has. Follows from the names, and is saved nowhere."""

from collections import Counter

from tern_wire.names import namespace_of


class NamespaceCounts:
    """Of one kind of thing, by namespace ("": names without one). Owner: whoever makes and deletes those things."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """*count* more (or less) in the namespace of the whole name *name*."""
        namespace = namespace_of(name)
        self._counts[namespace] += count
        if not self._counts[namespace]:
            del self._counts[namespace]

    def of(self, name: str) -> int:
        """How many the namespace of the whole name *name* has."""
        return self._counts[namespace_of(name)]
