"""Members of producer and consumer groups, from their heartbeats: liveness, subscriptions, and
assignments of queues.

Law: a group's *generation* grows whenever a member joins, leaves, expires or changes its heartbeat,
and when one of its topics has another number of queues (seen at the next heartbeat). While the
generation stays, so do all assignments. No iteration here depends on the order in which members
joined, except over their seats, which are state: see assignment.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tern_broker.core.deadline_heap import DeadlineHeap
from tern_broker.core.members.assignment import Assignment, assign, queue_order
from tern_broker.core.namespace_counts import NamespaceCounts
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import LimitReached
from tern_wire.limits import (
    GROUP_MEMBERS_SIZE_MAX_BYTES,
    MEMBER_EXPIRY_MS,
    MEMBERS_MAX,
    MEMBERS_PER_GROUP_MAX,
    MEMBERS_SIZE_MAX_BYTES,
)
from tern_wire.routing.membership import Heartbeat, Role, Strategy, read_heartbeat

# A conflict is shown by examples, since an answer must fit into a frame: 16 topics, each with a
# filter for each of 1,000 members.
CONFLICTS_SHOWN_MAX = 16
NAMES_SHOWN_MAX = 16

# Number of groups whose members one comparison inspects; a group may have a thousand members.
_INSPECTED_CREWS = 8


@dataclass(slots=True)
class Member:
    """One member: its last heartbeat, when it joined, when that heartbeat arrived, and how long it
    may be silent (ms).

    The expiry stays as it was at the join, so the due time only ever moves back.
    """

    says: Heartbeat
    joined_ms: int
    heard_ms: int
    expiry_ms: int = MEMBER_EXPIRY_MS

    @property
    def due_ms(self) -> int:
        """Time at which the member expires."""
        return self.heard_ms + self.expiry_ms


@dataclass(slots=True)
class _Crew:
    """The members of one group, at least one. `seats[n]` is the member on seat n; `members` has the
    same members.
    """

    members: dict[str, Member] = field(default_factory=dict)
    seats: list[str] = field(default_factory=list)
    generation: int = 0
    # Topic -> number of its queues when last seen, for topics with a subscriber.
    queues: dict[str, int] = field(default_factory=dict)
    # Derived: topic -> filter -> number of members with it; total size of all heartbeats;
    # conflicts, None when they must be computed again.
    filters: dict[str, dict[str, int]] = field(default_factory=dict)
    size_bytes: int = 0
    conflicts: list[str] | None = None

    def count(self, says: Heartbeat, step: int) -> None:
        """Count one heartbeat (*step* 1), or remove it from the counts (*step* -1)."""
        self.conflicts = None
        self.size_bytes += step * says.size_bytes
        for topic, text in says.subscriptions.items():
            said = self.filters.setdefault(topic, {})
            said[text] = said.get(text, 0) + step
            if not said[text]:
                del said[text]
            if not said:
                del self.filters[topic]


class Members:
    """Members of all groups. Owner: the state machine, through Clients."""

    def __init__(self) -> None:
        self._crews: dict[tuple[Role, str], _Crew] = {}
        self._count = 0
        # Of all groups of a namespace.
        self.counts = NamespaceCounts()
        self._size_bytes = 0
        # Counts changes in all groups: a generation is never used twice, even when its group was
        # empty in between.
        self._changes = 0
        # (role, group, member) by expiry time. A member with a later heartbeat is put again when it
        # comes up.
        self._due: DeadlineHeap[tuple[Role, str, str]] = DeadlineHeap()

    # Heartbeats -----------------------------------------------------------------------------------
    def heartbeat(
        self, now_ms: int, says: Heartbeat, queues: Mapping[str, int], expiry_ms: int = MEMBER_EXPIRY_MS
    ) -> dict[str, Any]:
        """Register the heartbeat *says*.

        *queues*: number of queues of each of its topics here, 0 for an unknown one; *expiry_ms*:
        how long a new member may be silent. Raise LimitReached, with nothing changed, for one
        member too many. `subscription_conflict` names topics on which members of the group differ.
        """
        key = (says.role, says.group)
        crew = self._crews.get(key, _Crew())
        member = crew.members.get(says.member)
        self._check_limits(crew, says, member)
        has_changed = any(crew.queues.get(topic, 0) != count for topic, count in queues.items())
        if member is None:
            self._crews[key] = crew
            crew.members[says.member] = Member(says, now_ms, now_ms, expiry_ms)
            crew.seats.append(says.member)
            self._count += 1
            self.counts.add(says.group)
            self._say(crew, None, says)
            self._due.put((*key, says.member), now_ms + expiry_ms)
        else:
            member.heard_ms = now_ms
            if member.says != says:
                self._say(crew, member.says, says)
                member.says = says
            elif has_changed:
                self._move(crew)
        crew.queues.update(queues)
        return {
            "joined": member is None,
            "members": len(crew.members),
            "generation": crew.generation,
            "subscription_conflict": self._conflicts(crew),
        }

    def leave(self, role: Role, group: str, name: str) -> bool:
        """Remove *name*; return whether it was a member. The member on the last seat takes the free
        seat.
        """
        crew = self._crews.get((role, group))
        if crew is None or name not in crew.members:
            return False
        self._due.remove((role, group, name))
        self._say(crew, crew.members.pop(name).says, None)
        self._count -= 1
        self.counts.add(group, -1)
        last = crew.seats.pop()
        if last != name:
            crew.seats[crew.seats.index(name)] = last
        if not crew.members:
            del self._crews[role, group]
        return True

    def _check_limits(self, crew: _Crew, says: Heartbeat, member: Member | None) -> None:
        more_bytes = says.size_bytes - (member.says.size_bytes if member is not None else 0)
        limits = [
            ("bytes that members of one group say", crew.size_bytes + more_bytes, GROUP_MEMBERS_SIZE_MAX_BYTES),
            ("bytes that all members say", self._size_bytes + more_bytes, MEMBERS_SIZE_MAX_BYTES),
        ]
        if member is None:
            limits.append((f"members of group {says.group}", len(crew.members) + 1, MEMBERS_PER_GROUP_MAX))
            limits.append(("members of all groups", self._count + 1, MEMBERS_MAX))
        for what, wanted, limit in limits:
            if wanted > limit:
                raise LimitReached(what=what, actual=wanted, limit=limit)

    def _say(self, crew: _Crew, before: Heartbeat | None, now: Heartbeat | None) -> None:
        """Replace the heartbeat *before* of a member of *crew* by *now*; None: no heartbeat."""
        self._size_bytes -= crew.size_bytes
        if before is not None:
            crew.count(before, -1)
        if now is not None:
            crew.count(now, 1)
        self._size_bytes += crew.size_bytes
        if before is not None:
            # No member subscribes to the removed topics; old subscriptions must not pile up.
            crew.queues = {topic: count for topic, count in crew.queues.items() if topic in crew.filters}
        self._move(crew)

    def _move(self, crew: _Crew) -> None:
        self._changes += 1
        crew.generation = self._changes

    # Expiry ---------------------------------------------------------------------------------------
    def is_due(self, now_ms: int) -> bool:
        """Return whether a member has been silent for too long at *now_ms*."""
        return self._first_due(now_ms) is not None

    def expire(self, now_ms: int) -> list[tuple[Role, str, str]]:
        """Remove members that have been silent for too long; return (role, group, member) in the
        order of expiry.
        """
        gone: list[tuple[Role, str, str]] = []
        while (first := self._first_due(now_ms)) is not None:
            self.leave(*first)
            gone.append(first)
        return gone

    def _first_due(self, now_ms: int) -> tuple[Role, str, str] | None:
        """Return the member that expired first by *now_ms*; None if none has."""
        while (first := self._due.first()) is not None and first[0] <= now_ms:
            due_ms, (role, group, name) = first
            true_ms = self._crews[role, group].members[name].due_ms
            if true_ms <= due_ms:
                return first[1]
            # In the order of true times, as in a state that was just loaded.
            self._due.put(first[1], true_ms)
        return None

    # Queries --------------------------------------------------------------------------------------
    def has(self, role: Role, group: str, name: str) -> bool:
        """Return whether *name* is a member now."""
        return self._member(role, group, name) is not None

    def expiry_ms(self, says: Heartbeat) -> int:
        """Return how long the member with this heartbeat may be silent."""
        return self._crews[says.role, says.group].members[says.member].expiry_ms

    def describe(self, role: Role, group: str) -> dict[str, Any]:
        """Return all members of a group by id, with their heartbeats.

        For topics with different subscriptions: each filter and the members that have it ("": not
        subscribed).
        """
        crew = self._crews.get((role, group), _Crew())
        members = [
            {**member.says.document(), "joined_at": member.joined_ms, "heard_at": member.heard_ms}
            for _, member in sorted(crew.members.items())
        ]
        conflicts = []
        for topic in self._conflicts(crew):
            said: dict[str, list[str]] = {}
            for name, member in sorted(crew.members.items()):
                said.setdefault(member.says.subscriptions.get(topic, ""), []).append(name)
            filters = [
                {"filter": text, "count": len(names), "members": names[:NAMES_SHOWN_MAX]}
                for text, names in said.items()
            ]
            conflicts.append({"topic": topic, "filters": filters})
        return {"generation": crew.generation, "members": members, "subscription_conflict": conflicts}

    def assignments(
        self, group: str, topic: str, queues: Sequence[str], strategy: Strategy | None, *, is_broadcast: bool = False
    ) -> dict[str, Any]:
        """Return the member of *group* that reads each of *queues*, all of *topic*, in any broker
        group.

        Queues without a member are `unassigned`. The queues are divided among the members that
        subscribe to *topic*, by *strategy*, or by the strategy of the first of them (by id). In a
        group that broadcasts each member reads all queues.
        """
        crew = self._crews.get((Role.CONSUMER, group), _Crew())
        readers = [name for name in crew.seats if topic in crew.members[name].says.subscriptions]
        says = {name: crew.members[name].says for name in sorted(readers)}
        chosen = strategy or next((one.strategy for one in says.values()), Strategy.AVERAGELY)
        assigned: Assignment
        if is_broadcast:
            assigned = {name: sorted(queues, key=queue_order) for name in says}
        else:
            assigned = assign(
                chosen,
                queues,
                readers,
                seats=readers,
                rooms={name: one.room for name, one in says.items()},
                configured={name: one.queues.get(topic, []) for name, one in says.items()},
            )
        taken = {queue for share in assigned.values() for queue in share}
        return {
            "strategy": chosen.value,
            "strategies": sorted({one.strategy.value for one in says.values()}),
            "generation": crew.generation,
            "assignments": assigned,
            "unassigned": sorted(set(queues) - taken, key=queue_order),
        }

    def filters_of(self, group: str, topic: str) -> list[str]:
        """Return the filters of *group*'s consumers for *topic*, each once; [] when there is
        none.
        """
        crew = self._crews.get((Role.CONSUMER, group))
        return sorted(crew.filters.get(topic, ())) if crew is not None else []

    def _member(self, role: Role, group: str, name: str) -> Member | None:
        crew = self._crews.get((role, group))
        return crew.members.get(name) if crew is not None else None

    def _conflicts(self, crew: _Crew) -> list[str]:
        """Return topics to which some consumers subscribe and others do not, or with another
        filter.

        Such consumers take messages for which others wait.
        """
        if crew.conflicts is None:
            is_consuming = any(member.says.role is Role.CONSUMER for member in crew.members.values())
            differ = (
                topic for topic, said in crew.filters.items() if len(said) > 1 or sum(said.values()) < len(crew.members)
            )
            crew.conflicts = sorted(differ)[:CONFLICTS_SHOWN_MAX] if is_consuming else []
        return crew.conflicts

    # Saved state ----------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {"changes": self._changes, "crews": [_pack_crew(crew) for crew in self._crews.values()]}

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self._crews, size=_INSPECTED_CREWS)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        return [self._changes, [_pack_crew(crew) for crew in rows_of(self._crews.values(), number, _INSPECTED_CREWS)]]

    def unpack(self, packed: Any) -> None:
        """Restore the state from *packed*. Call it on a new instance."""
        self._changes = packed["changes"]
        for crew_facts in packed["crews"]:
            crew = _Crew(generation=crew_facts["generation"], queues=crew_facts["queues"])
            for document, joined_ms, heard_ms, *expiry_ms in crew_facts["members"]:
                says = read_heartbeat(document)
                member = crew.members[says.member] = Member(says, joined_ms, heard_ms, *expiry_ms)
                crew.seats.append(says.member)
                self._crews[says.role, says.group] = crew
                self._count += 1
                self.counts.add(says.group)
                crew.count(says, 1)
                self._size_bytes += says.size_bytes
                self._due.put((says.role, says.group, says.member), member.due_ms)


def _own_expiry(member: Member) -> list[int]:
    """Return the expiry as saved: only where it differs from the default. An old state has none."""
    return [] if member.expiry_ms == MEMBER_EXPIRY_MS else [member.expiry_ms]


def _pack_crew(crew: _Crew) -> dict[str, Any]:
    # In the order of seats. Heartbeats are immutable, so they are not copied.
    members = [crew.members[name] for name in crew.seats]
    return {
        "generation": crew.generation,
        "queues": dict(crew.queues),
        "members": [[one.says.document(), one.joined_ms, one.heard_ms, *_own_expiry(one)] for one in members],
    }
