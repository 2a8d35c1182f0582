"""Dead letters in the HTTP API: selections, cursors of pages, and the progress of redrive tasks.

Pure. A dead letter is written `broker-a:17`: its broker group, and its offset there. A cursor has
the same form and names the next dead letter to read; the following broker groups, in the order of
their names, come after it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import UNSET

from tern_proxy.core.documents.dead_letters import (
    DeadLetter,
    Death,
    Origin,
    RedriveFailure,
    RedriveRequest,
    RedriveTask,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.core.reading.delivery import PutBody, read_records
from tern_proxy.core.sending.parameters import number_of
from tern_wire.dead_letters import CANCELLED, DONE, ORIGIN_GONE, RUNNING, Selection
from tern_wire.errors import DeadLetterGone, InvalidField, LinkReplyMalformed, MessageExpired, TernError
from tern_wire.limits import REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S
from tern_wire.link.dead_letters import redrive
from tern_wire.link.dead_letters.letters import DeadLetter as ListedLetter
from tern_wire.paths import TO_ORIGIN

_PLACE = re.compile(r"([a-z0-9][a-z0-9-]{0,30}):(0|[1-9][0-9]{0,17})")
# Function of a time and its position in the request; returns milliseconds since 1970.
TimeOf = Callable[[str | int, str], int]


def read_place(text: str, pointer: str) -> tuple[str, int]:
    """Return broker group and offset of `broker-a:17`. Raise InvalidField at *pointer*."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise InvalidField(reason=f"'{text[:80]}' is not written like 'broker-a:17'", pointer=pointer)
    return match[1], int(match[2])


def selection_of(query: Mapping[str, str], time_of: TimeOf) -> Selection:
    """Return the selection in *query*: topic, tag, reason, from, to.

    Raise InvalidField for an illegal time.
    """
    return Selection(
        topic=query.get("topic", ""),
        tag=query.get("tag", ""),
        reason=query.get("reason", ""),
        from_ms=time_of(query["from"], "query/from") if "from" in query else 0,
        to_ms=time_of(query["to"], "query/to") if "to" in query else 0,
    )


def redrive_selections(
    request: RedriveRequest, broker_groups: Sequence[str], time_of: TimeOf
) -> dict[str, tuple[Selection, int]]:
    """Return the selection and the rate (messages a second, 0: unlimited) for each broker group.

    Raise InvalidField. A selection is required: offsets, `all`, or at least one condition. `"to":
    "origin"` names the default target; by itself it selects all. A field that is present but empty
    selects nothing, because a script's empty variable must not mean `all`.
    """
    rate = number_of(request.rate, "rate", 0, REDRIVE_RATE_MAX_PER_S, "/")
    until = UNSET if request.to == TO_ORIGIN else request.to
    times = [
        0 if value is UNSET else time_of(value, f"/{name}") for name, value in (("from", request.from_), ("to", until))
    ]
    chosen = Selection(
        topic=request.topic or "",
        tag=request.tag or "",
        reason=request.reason or "",
        from_ms=times[0],
        to_ms=times[1],
    )
    choosers = (request.all, request.topic, request.tag, request.reason, request.from_)
    is_all = request.all is True or (request.to == TO_ORIGIN and all(value is UNSET for value in choosers))
    if request.offsets is not UNSET:
        if request.all or chosen != Selection():
            raise InvalidField(
                reason="'offsets' name dead letters one by one: nothing else chooses any", pointer="/offsets"
            )
        return _by_offsets(list(request.offsets), broker_groups, rate)
    if not is_all and chosen == Selection():
        reason = 'Say which: "offsets", "topic", "tag", "reason", "from", "to" (a time), or "all": true'
        raise InvalidField(reason=reason, pointer="/")
    share = -(-rate // max(1, len(broker_groups)))
    return dict.fromkeys(broker_groups, (chosen, share))


def _by_offsets(offsets: list[str], broker_groups: Sequence[str], rate: int) -> dict[str, tuple[Selection, int]]:
    if not 1 <= len(offsets) <= REDRIVE_OFFSETS_MAX:
        reason = f"{len(offsets)} offsets; use 1 to {REDRIVE_OFFSETS_MAX}, or a condition"
        raise InvalidField(reason=reason, pointer="/offsets")
    chosen: dict[str, list[int]] = {}
    for number, text in enumerate(offsets):
        broker_group, offset = read_place(text, f"/offsets/{number}")
        if broker_group not in broker_groups:
            reason = f"There is no broker group '{broker_group}'; there are {', '.join(broker_groups)}"
            raise InvalidField(reason=reason, pointer=f"/offsets/{number}")
        chosen.setdefault(broker_group, []).append(offset)
    share = -(-rate // len(chosen))
    return {name: (Selection(offsets=tuple(own)), share) for name, own in chosen.items()}


def read_letters(
    letters: Sequence[ListedLetter], raw: bytes, broker_group: str, put_body: PutBody
) -> Iterator[DeadLetter]:
    """Yield the messages of *letters*, each with its death. *raw*: their records.

    Raise LinkReplyMalformed when letters and records do not match.
    """
    at = 0
    for letter in letters:
        messages = list(read_records(raw[at : at + letter.size_bytes], letter.topic, broker_group, put_body))
        at += letter.size_bytes
        if len(messages) != 1:
            raise LinkReplyMalformed(reason=f"{len(messages)} records for one dead letter")
        death = Death(
            offset=f"{broker_group}:{letter.offset}",
            origin=Origin(topic=letter.topic, queue=f"{broker_group}:{letter.queue}", offset=letter.origin_offset),
            attempts=letter.attempts,
            cause=letter.cause,
            reason=letter.reason,
            dead_at=letter.died_ms,
        )
        yield extended(messages[0], DeadLetter, dlq=death)


def redrive_task(parts: Sequence[tuple[str, redrive.RedriveTask]]) -> RedriveTask:
    """Return one task, combined from its *parts* in the broker groups."""
    first = parts[0][1]
    states = {part.state for _, part in parts}
    state = next(state for state in (RUNNING, CANCELLED, DONE) if state in states)
    failures = [
        RedriveFailure(
            offset=f"{name}:{failure.offset}",
            error=_failure(name, failure.offset, failure.status, first.group).problem(),
        )
        for name, part in parts
        for failure in part.failures
    ]
    return RedriveTask(
        task=first.task_id,
        type="redrive",
        group=first.group,
        state=state,
        dry_run=first.dry_run,
        total=sum(part.end - part.begin for _, part in parts),
        examined=sum(part.next - part.begin for _, part in parts),
        redriven=sum(part.redriven for _, part in parts),
        skipped=sum(part.skipped for _, part in parts),
        failed=sum(part.failed for _, part in parts),
        failures=failures,
        started_at=min(part.started_ms for _, part in parts),
        finished_at=None if state == RUNNING else max(part.finished_ms for _, part in parts),
    )


def _failure(broker_group: str, offset: int, status: int, group: str) -> TernError:
    dead = f"{broker_group}:{offset}"
    if status == ORIGIN_GONE:
        return MessageExpired(message=f"The message of dead letter {dead}", group=group)
    return DeadLetterGone(offset=dead, group=group)
