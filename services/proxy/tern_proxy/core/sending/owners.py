"""Owner of a key or a message group of a topic: the one broker group that a proxy must ask. Pure.

Law: the owner depends on the topic's placement, never on the broker groups that this proxy happens
to have in its routes. A proxy may have lost one, or not have it yet (cold routes, a forgotten
broker group, a topic being created), and two proxies have different routes. To ask another broker
group instead would store a key twice, or let a message group overtake itself. So if the owner is
not in the routes, the message is refused, which stores nothing, and the client sends it again.

The key of a transaction with several topics belongs to the first topic's owner, if that broker
group has all of them. Otherwise it belongs to one of those on which all topics are placed, and is
stored there whatever the first topic's placement (*is_pinned*). Such a broker group never answers
MOVED, so while any of the topics moves, the key is accepted only if it belongs to the same broker
group before and after. Reference: tern_wire/routing/placement.py.
"""

from collections.abc import Container, Sequence
from itertools import product

from tern_wire.errors import OwnerUnknown, PlacementChanged, TopicsApart
from tern_wire.routing.placement import Placement, owners

# Topic of a transaction: its name, its placement, and the broker groups that have it according to
# the routes.
Placed = tuple[str, Placement, Container[str]]


# Topics of one transaction that move at once: all combinations of their placements are evaluated.
_MOVING_MAX = 8


def owner_or_refuse(topic: str, placement: Placement, hosts: Container[str], slot: int, moved_from: str = "") -> str:
    """Return the owner of *slot*, one of *hosts*, which have *topic* according to the routes.

    *moved_from*: the broker group that has answered MOVED. Raise OwnerUnknown when the owner is not
    in *hosts*, PlacementChanged when *moved_from* is the last owner of this placement.
    """
    owner = owners(placement.groups)[slot]
    if placement.is_moving:
        before = owners(placement.before)[slot]
        owner = owner if before == moved_from else before
    if owner == moved_from:
        # The placement known here is older than that of the broker group.
        raise PlacementChanged(topic=topic)
    if owner not in hosts:
        missing = f"broker group '{owner}' decides about it, and this proxy does not see the topic there"
        raise OwnerUnknown(topic=topic, missing=missing)
    return owner


def is_sent_on(placement: Placement, slot: int, owner: str) -> bool:
    """Return whether the row for *owner* needs FLAG_SENT_ON: the previous owner of *slot* has
    answered MOVED.
    """
    return placement.is_moving and owners(placement.before)[slot] != owner


def owner_of_several(placed: Sequence[Placed], slot: int, moved_from: str = "") -> tuple[str, bool]:
    """Return the owner of a transaction's key in *slot* of the first of *placed*, and whether it is
    pinned there.

    Raise the errors of `owner_or_refuse`, and TopicsApart when no broker group is placed to have
    all topics.
    """
    moving = [name for name, each, _ in placed if each.is_moving]
    if len(placed) > 1 and len(moving) > _MOVING_MAX:
        raise OwnerUnknown(topic=placed[0][0], missing=f"{len(moving)} of the topics of this transaction move")
    ways = [(each.before, each.groups) if each.is_moving else (each.groups,) for _, each, _ in placed]
    # Each topic may be at its old or its new place: a repeat can follow the begin of one move and
    # precede the end of another.
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
    """Return the broker group, "" for none, and whether it differs from the first topic's owner."""
    common = set(groups[0]).intersection(*groups[1:])
    owner = owners(groups[0])[slot]
    if owner in common:
        return owner, False
    return owners(tuple(sorted(common)))[slot], True
