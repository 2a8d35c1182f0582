"""What retention has dropped that a consumer group had not read, by topic and group, since this node began. Owner: the core loop."""

from typing import Any

from tern_wire.limits_retention import DROPPED_UNREAD_ROWS_MAX, DROPPED_UNREAD_SHOWN_MAX

# Whatever has no row of its own.
OTHERS = "(others)"


class DroppedUnread:
    """Counts; those of the first so many topics and groups are kept apart."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def add(self, topic: str, group: str, messages: int) -> None:
        """*group* has lost so many messages of *topic*."""
        key = (topic, group)
        if key not in self._counts and len(self._counts) >= DROPPED_UNREAD_ROWS_MAX:
            key = (OTHERS, OTHERS)
        self._counts[key] = self._counts.get(key, 0) + messages

    def by_topic(self) -> dict[str, int]:
        """Messages by topic, those of several groups added up: one that two groups had not read counts twice."""
        found: dict[str, int] = {}
        for (topic, _), messages in self._counts.items():
            found[topic] = found.get(topic, 0) + messages
        return found

    def describe(self) -> list[dict[str, Any]]:
        """The largest rows, for people."""
        largest = sorted(self._counts.items(), key=lambda item: -item[1])[:DROPPED_UNREAD_SHOWN_MAX]
        return [{"topic": topic, "group": group, "messages": messages} for (topic, group), messages in largest]
