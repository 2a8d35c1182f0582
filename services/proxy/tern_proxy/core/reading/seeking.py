"""A seek as each broker group of the topic gets it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from tern_proxy.core.sending.parameters import number_of
from tern_proxy.core.sending.topic import Topic
from tern_wire.errors import InvalidField, TernError
from tern_wire.messages import SeekRequest

OFFSET_MAX = (1 << 63) - 1
SHIFT_MAX = (1 << 53) - 1
WORDS = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPlan:
    """*parts*: broker group to `to` and `queues` of its SEEK. Not *is_repeatable*: a repeat would move the group twice."""

    parts: dict[str, dict[str, Any]]
    is_repeatable: bool

    def pointer(self, broker_group: str, error: TernError) -> str:
        """The broker's word for a place in the request, in the client's words."""
        pointer = str(error.fields.get("pointer", "/to"))
        head, _, queue = pointer.rpartition("/")
        return f"{head}/{broker_group}:{queue}" if head == "/to/offsets" else pointer


def plan_seek(seek: SeekRequest, topic: Topic, time_of: Callable[[str | int, str], int]) -> SeekPlan:
    """The parts of *seek*; InvalidField, QueueNotFound. *time_of* reads a time at a pointer."""
    to, is_repeatable = _read_place(seek, time_of), True
    if isinstance(to, dict) and "offsets" in to:
        if seek.queues is not None:
            raise InvalidField(reason="'offsets' names the queues; leave 'queues' out", pointer="/queues")
        offsets: dict[str, dict[str, int]] = {}
        for name, offset in to["offsets"].items():
            number_of(offset, name, 0, OFFSET_MAX, "/to/offsets/")
            queue = topic.pinned(name)
            offsets.setdefault(queue.broker_group, {})[str(queue.number)] = offset
        parts: dict[str, dict[str, Any]] = {
            name: {"to": {"offsets": some}, "queues": None} for name, some in offsets.items()
        }
        return SeekPlan(parts=parts, is_repeatable=True)
    if isinstance(to, dict) and "shift" in to:
        is_repeatable = False
    if seek.queues is None:
        return SeekPlan(
            parts={name: {"to": to, "queues": None} for name in topic.broker_groups}, is_repeatable=is_repeatable
        )
    if not seek.queues:
        raise InvalidField(reason="Name at least one queue, or leave 'queues' out for all", pointer="/queues")
    numbers: dict[str, dict[int, None]] = {}
    for name in seek.queues:
        queue = topic.pinned(name)
        numbers.setdefault(queue.broker_group, {})[queue.number] = None
    return SeekPlan(
        parts={name: {"to": to, "queues": list(some)} for name, some in numbers.items()}, is_repeatable=is_repeatable
    )


def _read_place(seek: SeekRequest, time_of: Callable[[str | int, str], int]) -> str | dict[str, Any]:
    """`to` as the broker takes it."""
    to = seek.to
    if isinstance(to, str):
        if to not in WORDS:
            raise InvalidField(
                reason=f"'to' is '{to[:40]}'; use earliest, latest, or an object with time, shift or offsets",
                pointer="/to",
            )
        return to
    given = {name: value for name in ("time", "shift", "offsets") if (value := getattr(to, name)) is not UNSET}
    if len(given) != 1:
        raise InvalidField(reason="'to' has exactly one of time, shift and offsets", pointer="/to")
    if "time" in given:
        return {"time_ms": time_of(given["time"], "/to/time")}
    if "shift" in given:
        return {"shift": number_of(given["shift"], "shift", -SHIFT_MAX, SHIFT_MAX, "/to/")}
    if not given["offsets"]:
        raise InvalidField(reason="At least one offset is needed", pointer="/to/offsets")
    return given
