"""Producer groups of one broker group: settings, and numbers of transactions. Ids are never reused.

A group is created by name, or by the proxy of its first half message. It is deleted only when all
its transactions have ended.

Its settings are the same in all broker groups: one of them decides (a proxy chooses it), and counts
a revision; the others get a copy, which replaces older ones. So of two concurrent changes one wins
everywhere, secrets included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.namespace_counts import NamespaceCounts
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import LimitReached, ProducerGroupBusy, ProducerGroupNotFound
from tern_wire.limits import PRODUCER_GROUPS_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.names import check_group, is_of
from tern_wire.settings.producer_settings import ProducerSettings, read_producer_change
from tern_wire.settings.topic_settings import text_of

_COUNTS = ("open", "expired", "committed", "rolled_back", "checks")


@dataclass(slots=True, kw_only=True)
class ProducerGroup:
    """One producer group. Owner: the state machine.

    *open*: transactions that are open now; *expired*: transactions that wait to be resolved; the
    other counts are totals so far.
    """

    producer_group_id: int
    name: str
    settings: ProducerSettings = field(default_factory=ProducerSettings)
    open: int = 0
    expired: int = 0
    committed: int = 0
    rolled_back: int = 0
    checks: int = 0
    # Time of the last request for its checks.
    asked_ms: int = 0
    # Counts its changes; settings that one broker group has decided are copied to the others with
    # it.
    revision: int = 0

    def describe(self) -> dict[str, Any]:
        """Return the group as the link carries it, its secret included, which proxies keep to
        themselves.
        """
        return {
            "producer_group": self.name,
            "producer_group_id": self.producer_group_id,
            **self.settings.packed(),
            "revision": self.revision,
            "stats": {name: getattr(self, name) for name in _COUNTS},
        }


class Producers:
    """Producer groups by name and by id. Owner: the state machine."""

    def __init__(self) -> None:
        self.by_name: dict[str, ProducerGroup] = {}
        self.by_id: dict[int, ProducerGroup] = {}
        self.counts = NamespaceCounts()
        # Called with a group whose settings may have changed, and the time.
        self.on_altered: list[Callable[[ProducerGroup, int], None]] = []
        self._next_id = 1

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {
            CommandKind.ALTER_PRODUCER_GROUP: self._alter,
            CommandKind.DELETE_PRODUCER_GROUP: self._delete,
        }

    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def require(self, name: Any) -> ProducerGroup:
        """Return the group of that name; raise ProducerGroupNotFound."""
        group = self.by_name.get(name) if isinstance(name, str) else None
        if group is None:
            raise ProducerGroupNotFound(producer_group=str(name)[:160])
        return group

    def describe(self, namespace: str | None, after: str, limit: int) -> dict[str, Any]:
        """Return at most *limit* groups of *namespace* ("": without one; None: all) after the name
        *after*, by name.
        """
        names = sorted(name for name in self.by_name if name > after and (namespace is None or is_of(namespace, name)))
        return {"groups": [self.by_name[name].describe() for name in names[:limit]], "more": len(names) > limit}

    # Commands -------------------------------------------------------------------------------------
    def _alter(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        change = read_producer_change(read_map(payload))
        group = self.by_name.get(change.producer_group)
        if group is None and not change.create:
            raise ProducerGroupNotFound(producer_group=change.producer_group)
        if group is None and len(self.by_name) >= PRODUCER_GROUPS_MAX:
            raise LimitReached(what="producer groups", actual=len(self.by_name), limit=PRODUCER_GROUPS_MAX)
        # From here on nothing is refused.
        created = group is None
        if group is None:
            group = self._put(ProducerGroup(producer_group_id=self._next_id, name=change.producer_group))
            self._next_id += 1
        if not change.revision:
            group.settings = change.applied_to(group.settings)
            if change.least_revision:
                group.revision = max(group.revision + 1, change.least_revision)
        elif change.revision > group.revision:
            group.settings, group.revision = change.applied_to(group.settings), change.revision
        for altered in self.on_altered:
            altered(group, applied.now_ms)
        # Another checker may now be responsible for the due checks.
        applied.checks_due = True
        return {"created": created, **group.describe()}

    def _delete(self, payload: memoryview, _position: int, _applied: Applied) -> Verdict:
        name = check_group(text_of(read_map(payload), "producer_group"))
        group = self.by_name.get(name)
        if group is None:
            return {"deleted": False}
        if group.open or group.expired:
            raise ProducerGroupBusy(producer_group=name, open=group.open, expired=group.expired)
        self.counts.add(name, -1)
        del self.by_name[name], self.by_id[group.producer_group_id]
        return {"deleted": True}

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types, without the open and expired counts, which
        follow from the transactions.
        """
        return {
            "next_id": self._next_id,
            "groups": [_pack_group(group) for group in self.by_name.values()],
        }

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self.by_name)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        return [self._next_id, [_pack_group(group) for group in rows_of(self.by_name.values(), number)]]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self._next_id = packed["next_id"]
        for group_id, name, settings, *counts in packed["groups"]:
            group = self._put(ProducerGroup(producer_group_id=group_id, name=name))
            group.settings = ProducerSettings(**settings)
            group.committed, group.rolled_back, group.checks, group.asked_ms, group.revision = counts

    def _put(self, group: ProducerGroup) -> ProducerGroup:
        self.by_name[group.name] = self.by_id[group.producer_group_id] = group
        self.counts.add(group.name)
        return group


def _pack_group(group: ProducerGroup) -> list[Any]:
    return [
        *(group.producer_group_id, group.name, group.settings.packed()),
        *(group.committed, group.rolled_back, group.checks, group.asked_ms, group.revision),
    ]
