"""Settings of a topic: its type, permission, number of queues, and attributes; for proxies and
brokers.

A change is a map, in the form of the link and the log. Fields that are absent stay as they are, or
get their defaults in a new topic:

    {topic, mode: declare | create | alter, queues, type, perm,
     attributes: {name: text, or nil to remove it},
     placement: as text, own: the name of the receiving broker group, ending: true}

declare: create or change; create: only if it does not exist; alter: only if it exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from tern_wire.errors import InvalidField
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.names import check_topic, is_broker_group
from tern_wire.routing.placement import Placement, read_placement
from tern_wire.routing.route import PERM_READ, PERM_WRITE
from tern_wire.settings.attributes import check_attributes

NORMAL, FIFO, DELAY, TRANSACTION, MIXED = "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"
TOPIC_KINDS = (NORMAL, FIFO, DELAY, TRANSACTION, MIXED)
# RocketMQ's bits, and their written forms.
PERMISSIONS: Mapping[str, int] = {"rw": PERM_READ | PERM_WRITE, "r": PERM_READ, "w": PERM_WRITE, "none": 0}
DECLARE, CREATE, ALTER = "declare", "create", "alter"
MODES = (DECLARE, CREATE, ALTER)
NOWHERE = Placement()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """Change of one topic; None marks absent fields."""

    topic: str
    mode: str
    queues: int | None
    kind: str | None
    perm: int | None
    attributes: dict[str, str | None]
    placement: Placement = NOWHERE
    own: str = ""
    # Release everything that is still moving away under this placement.
    is_ending: bool = False

    def packed(self) -> dict[str, Any]:
        """Return the change as a map of its present fields."""
        named = {"queues": self.queues, "type": self.kind, "perm": self.perm, "attributes": self.attributes or None}
        if self.placement.epoch:
            named |= {"placement": str(self.placement), "own": self.own, "ending": self.is_ending or None}
        return {"topic": self.topic, "mode": self.mode, **named_only(named)}


def read_topic_change(request: Mapping[str, Any]) -> TopicChange:
    """Parse the change in the map *request*.

    Raise IllegalTopic, or InvalidField with a pointer to the illegal field.
    """
    queues, kind, perm = request.get("queues"), request.get("type"), request.get("perm")
    if queues is not None and not is_whole(queues, 1, QUEUES_PER_TOPIC_MAX):
        raise InvalidField(reason=f"A topic has 1 to {QUEUES_PER_TOPIC_MAX} queues", pointer="/queues")
    if kind is not None and kind not in TOPIC_KINDS:
        raise InvalidField(reason=f"A topic's type is one of {', '.join(TOPIC_KINDS)}", pointer="/type")
    if perm is not None and (not is_whole(perm, 0, 6) or perm not in PERMISSIONS.values()):
        raise InvalidField(reason=f"A permission is one of {', '.join(PERMISSIONS)}", pointer="/permission")
    placement = read_placement(text_of(request, "placement")) if "placement" in request else NOWHERE
    own = text_of(request, "own") if placement.epoch else ""
    if placement.epoch and not is_broker_group(own):
        raise InvalidField(reason="A placement needs the name of the broker group that is told of it", pointer="/own")
    return TopicChange(
        topic=check_topic(text_of(request, "topic")),
        mode=mode_of(request),
        queues=queues,
        kind=kind,
        perm=perm,
        attributes=check_attributes(request.get("attributes") or {}),
        placement=placement,
        own=own,
        is_ending=bool(placement.epoch) and request.get("ending") is True,
    )


def perm_of(permission: str) -> int:
    """Return RocketMQ's bits of `rw`, `r`, `w` or `none`; raise InvalidField for other texts."""
    perm = PERMISSIONS.get(permission)
    if perm is None:
        shown = ", ".join(PERMISSIONS)
        raise InvalidField(reason=f"'{permission[:20]}' is no permission; use {shown}", pointer="/permission")
    return perm


def permission_of(perm: int) -> str:
    """Return the written form of the bits *perm*; bits other than read and write are not shown."""
    return next(text for text, bits in PERMISSIONS.items() if bits == perm & (PERM_READ | PERM_WRITE))


# Shared by topics and groups ----------------------------------------------------------------------
def is_whole(value: Any, least: int, most: int) -> TypeGuard[int]:
    """Return whether *value* is a whole number in *least*..*most*; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def text_of(request: Mapping[str, Any], name: str) -> str:
    """Return the text *name* of a map; raise InvalidField for other types."""
    value = request.get(name)
    if not isinstance(value, str):
        raise InvalidField(reason=f"'{name}' is a text", pointer=f"/{name}")
    return value


def mode_of(request: Mapping[str, Any]) -> str:
    """Return the mode, which decides between creation and change; the default is `declare`."""
    mode = request.get("mode", DECLARE)
    if mode not in MODES:
        raise InvalidField(reason=f"A mode is one of {', '.join(MODES)}", pointer="/mode")
    return str(mode)


def named_only(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return *fields* without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}
