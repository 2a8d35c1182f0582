"""Seeks, split into the requests for each broker group of the topic."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import UNSET

from tern_proxy.core.documents.offsets import SeekRequest
from tern_proxy.core.documents.values import OFFSET_MAX
from tern_proxy.core.sending.parameters import number_of
from tern_proxy.core.sending.topic import Topic
from tern_wire.errors import InvalidField, TernError
from tern_wire.link.consumer_offsets import SeekTo

SHIFT_MAX = (1 << 53) - 1
WORDS = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPart:
    """Request to one broker group: *to* and *queues* of its SEEK."""

    to: str | SeekTo
    queues: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPlan:
    """Requests by broker group. Not *is_repeatable*: a repeat would move the group twice."""

    parts: dict[str, SeekPart]
    is_repeatable: bool

    def pointer(self, broker_group: str, error: TernError) -> str:
        """Convert the pointer of a broker's error to a pointer into the client's request."""
        pointer = str(error.fields.get("pointer", "/to"))
        head, _, queue = pointer.rpartition("/")
        return f"{head}/{broker_group}:{queue}" if head == "/to/offsets" else pointer


def plan_seek(seek: SeekRequest, topic: Topic, time_of: Callable[[str | int, str], int]) -> SeekPlan:
    """Return the requests of *seek*.

    Raise InvalidField, QueueNotFound. *time_of* parses a time at a pointer.
    """
    to = _read_place(seek, time_of)
    if isinstance(to, dict):
        if seek.queues is not None:
            raise InvalidField(reason="'offsets' names the queues; leave 'queues' out", pointer="/queues")
        offsets: dict[str, dict[str, int]] = {}
        for name, offset in to.items():
            number_of(offset, name, 0, OFFSET_MAX, "/to/offsets/")
            queue = topic.pinned(name)
            offsets.setdefault(queue.broker_group, {})[str(queue.number)] = offset
        parts = {name: SeekPart(to=SeekTo(offsets=some)) for name, some in offsets.items()}
        return SeekPlan(parts=parts, is_repeatable=True)
    is_repeatable = isinstance(to, str) or to.shift is None
    if seek.queues is None:
        return SeekPlan(parts={name: SeekPart(to=to) for name in topic.broker_groups}, is_repeatable=is_repeatable)
    if not seek.queues:
        raise InvalidField(reason="Name at least one queue, or leave 'queues' out for all", pointer="/queues")
    numbers: dict[str, dict[int, None]] = {}
    for name in seek.queues:
        queue = topic.pinned(name)
        numbers.setdefault(queue.broker_group, {})[queue.number] = None
    parts = {name: SeekPart(to=to, queues=list(some)) for name, some in numbers.items()}
    return SeekPlan(parts=parts, is_repeatable=is_repeatable)


def _read_place(seek: SeekRequest, time_of: Callable[[str | int, str], int]) -> str | SeekTo | dict[str, int]:
    """Return `to` in the form of the brokers, or offsets by the names of queues."""
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
        return SeekTo(time_ms=time_of(given["time"], "/to/time"))
    if "shift" in given:
        return SeekTo(shift=number_of(given["shift"], "shift", -SHIFT_MAX, SHIFT_MAX, "/to/"))
    offsets: dict[str, int] = given["offsets"]
    if not offsets:
        raise InvalidField(reason="At least one offset is needed", pointer="/to/offsets")
    return offsets
