"""Topics of broker groups that are gone, remembered by name servers and proxies so that these
topics stay known.

Law: silence is no deletion. A broker group whose nodes have all died, left or become unreachable
still has its topics on its disks. A client that receives `topic-not-found` gives up, while one that
receives `no-leader` retries. So a group's last report of its topics holds until the group itself
reports others (`take`), or until it has been gone for GONE_GROUP_KEPT_MS. The table is bounded by
GONE_TOPICS_KEPT_MAX; beyond it the group that has been gone longest is forgotten first. Pure: time
is an argument, in milliseconds, and never decreases. Owner: the Registry or the RoutesCache that
made it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tern_wire.limits import GONE_GROUP_KEPT_MS, GONE_TOPICS_KEPT_MAX
from tern_wire.routing.route import TopicRoute


@dataclass(frozen=True, slots=True)
class GoneGroup:
    """Last report of a broker group. A proxy needs no size."""

    topics: Mapping[str, TopicRoute]
    group_size: int = 1


class GoneGroups:
    """Broker groups that are gone, by name, in the order in which they went."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[GoneGroup, int]] = {}
        self._rows = 0

    def __len__(self) -> int:
        """Return the number of remembered broker groups."""
        return len(self._groups)

    def items(self) -> Iterator[tuple[str, GoneGroup]]:
        """Iterate over names and their reports; the table must not change meanwhile."""
        for name, (group, _) in self._groups.items():
            yield name, group

    def keep(self, name: str, group: GoneGroup, now_ms: int) -> None:
        """Remember *group*, which is gone since *now_ms*; replace an earlier report of the same
        name.
        """
        self.take(name)
        self._groups[name] = (group, now_ms)
        self._rows += _rows_of(group)
        while self._rows > GONE_TOPICS_KEPT_MAX:
            self.take(next(iter(self._groups)))

    def take(self, name: str) -> GoneGroup | None:
        """Forget the group, which is back; return its report, or None."""
        found = self._groups.pop(name, None)
        if found is None:
            return None
        self._rows -= _rows_of(found[0])
        return found[0]

    def expire(self, now_ms: int) -> list[str]:
        """Forget the groups that have been gone for longer than GONE_GROUP_KEPT_MS; return their
        names.
        """
        over = [name for name, (_, since_ms) in self._groups.items() if now_ms - since_ms > GONE_GROUP_KEPT_MS]
        for name in over:
            self.take(name)
        return over


def _rows_of(group: GoneGroup) -> int:
    """Return the rows of a group. A group without topics takes room, too."""
    return len(group.topics) + 1
