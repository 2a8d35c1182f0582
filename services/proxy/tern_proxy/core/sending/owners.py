"""Whom a proxy asks about a key or a message group of a topic: one broker group, or nobody. Pure.

Law: who is asked follows from the topic's placement, never from which broker groups this proxy happens to see. It may have lost sight of
one, or not have heard of it yet (cold routes, a broker group that was forgotten, a topic that is being created), and two proxies see different ones: to
ask somebody else in its place stores a key twice, or lets a message group overtake itself. So where the one to ask is not in sight, the message
is refused, which stores nothing, and the client sends it again.

A key of a transaction with several topics is the first topic's, if the broker group that it belongs to has all of them. Otherwise it is
one of those that all topics are placed on, and stored there whatever the first topic's placement says (*is_pinned*). Such a broker group never answers
MOVED, so while any of the topics moves the key is taken only if it belongs to the same one before and after.
Reference: tern_wire/routing/placement.py.
"""

from collections.abc import Container, Sequence
from itertools import product

from tern_wire.errors import OwnerUnknown, PlacementChanged, TopicsApart
from tern_wire.routing.placement import Placement, owners

# One topic of a transaction: its name, its placement, and the broker groups that are seen to have it.
Placed = tuple[str, Placement, Container[str]]


# Of topics of one transaction that move at once: their ways to be placed are all looked at.
_MOVING_MAX = 8


def owner_or_refuse(topic: str, placement: Placement, hosts: Container[str], slot: int, moved_from: str = "") -> str:
    """The broker group to ask about what is in *slot*; it is one of *hosts*, which are seen to have *topic*.

    *moved_from*: the one that has said that it belongs to another one. OwnerUnknown: the one to ask is not in sight. PlacementChanged: *moved_from*
    is the last one that this placement names.
    """
    owner = owners(placement.groups)[slot]
    if placement.is_moving:
        before = owners(placement.before)[slot]
        owner = owner if before == moved_from else before
    if owner == moved_from:
        # What is known here is older than what that broker group knows.
        raise PlacementChanged(topic=topic)
    if owner not in hosts:
        missing = f"broker group '{owner}' decides about it, and this proxy does not see the topic there"
        raise OwnerUnknown(topic=topic, missing=missing)
    return owner


def is_sent_on(placement: Placement, slot: int, owner: str) -> bool:
    """Whether *owner*, which is asked about *slot*, is to know that the owner of before has sent it on (FLAG_SENT_ON)."""
    return placement.is_moving and owners(placement.before)[slot] != owner


def owner_of_several(placed: Sequence[Placed], slot: int, moved_from: str = "") -> tuple[str, bool]:
    """As owner_or_refuse, of a transaction whose key is in *slot* of the first of *placed*; and whether it is pinned there.

    TopicsApart: no broker group is placed to have all of them.
    """
    moving = [name for name, each, _ in placed if each.is_moving]
    if len(placed) > 1 and len(moving) > _MOVING_MAX:
        raise OwnerUnknown(topic=placed[0][0], missing=f"{len(moving)} of the topics of this transaction move")
    ways = [(each.before, each.groups) if each.is_moving else (each.groups,) for _, each, _ in placed]
    # Each topic may be where it was or where it will be: a repeat comes after one of the moves has begun, and before another one has ended.
    chosen = {_choose(groups, slot) for groups in product(*ways)}
    if any(not owner for owner, _ in chosen):
        raise TopicsApart(topics=", ".join(sorted(name for name, _, _ in placed))[:400])
    if any(is_pinned for _, is_pinned in chosen):
        if len({owner for owner, _ in chosen}) > 1:
            missing = (
                f"until '{moving[0]}' has moved, no broker group decides about a key for all topics of this transaction"
            )
            raise OwnerUnknown(topic=placed[0][0], missing=missing)
        owner, is_pinned = next(iter(chosen))[0], True
    else:
        owner, is_pinned = owner_or_refuse(*placed[0], slot, moved_from), False
    for name, _, hosts in placed:
        if owner not in hosts:
            missing = f"broker group '{owner}' decides about it, and this proxy does not see the topic there"
            raise OwnerUnknown(topic=name, missing=missing)
    return owner, is_pinned


def _choose(groups: Sequence[tuple[str, ...]], slot: int) -> tuple[str, bool]:
    """The broker group, "" for none, and whether it is another one than the first topic's."""
    common = set(groups[0]).intersection(*groups[1:])
    owner = owners(groups[0])[slot]
    if owner in common:
        return owner, False
    return owners(tuple(sorted(common)))[slot], True
