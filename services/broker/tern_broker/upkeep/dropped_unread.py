"""Messages that retention dropped before a consumer group had read them, by topic and group, since
this node started.

Owner: the core loop.
"""

from typing import Any

from tern_wire.limits_retention import DROPPED_UNREAD_ROWS_MAX, DROPPED_UNREAD_SHOWN_MAX

# Topics and groups without a row of their own.
OTHERS = "(others)"


class DroppedUnread:
    """Counts; a limited number of topics and groups have rows of their own."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, topic: str, group: str, messages: int) -> None:
        """Add *messages* of *topic* that *group* has lost."""
        key = (topic, group)
        if key not in self._counts and len(self._counts) >= DROPPED_UNREAD_ROWS_MAX:
            key = (OTHERS, OTHERS)
        self._counts[key] = self._counts.get(key, 0) + messages

    def by_topic(self) -> dict[str, int]:
        """Return messages by topic, summed over groups: one that two groups had not read counts
        twice.
        """
        found: dict[str, int] = {}
        for (topic, _), messages in self._counts.items():
            found[topic] = found.get(topic, 0) + messages
        return found

    def describe(self) -> list[dict[str, Any]]:
        """Return the largest rows, for operators."""
        largest = sorted(self._counts.items(), key=lambda item: -item[1])[:DROPPED_UNREAD_SHOWN_MAX]
        return [{"topic": topic, "group": group, "messages": messages} for (topic, group), messages in largest]
