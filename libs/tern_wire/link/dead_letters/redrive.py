"""Link requests for redrive tasks, which deliver dead letters to their group again: start, cancel
and get.

A task has the same name in every broker group that takes part; each reports its own part.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class RedriveSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of a redrive: the fields of a `Selection` (`tern_wire/dead_letters.py`).

    It selects those of *topic*, with *tag*, with *reason* as a part of their reason, died in
    [*from_ms*, *to_ms*). "" and a *to_ms* of 0 select all. *offsets*: only these; None for all.
    """

    topic: str
    tag: str
    reason: str
    from_ms: int
    to_ms: int
    offsets: Annotated[tuple[int, ...], msgspec.Meta(max_length=REDRIVE_OFFSETS_MAX)] | None


class RedriveFailure(msgspec.Struct, frozen=True, array_like=True):
    """Dead letter at *offset* that was not redriven: it is gone, or its message is (LETTER_GONE,
    ORIGIN_GONE).
    """

    offset: int
    status: int


class RedriveTask(LinkReply, frozen=True, kw_only=True):
    """Progress of a task. *state* is `running`, `done` or `cancelled`.

    Times are ms since 1970; *finished_ms* is 0 while it runs. The task processes dead letters from
    *begin* to *end*, and is at *next*: these are offsets, or with *offsets* in its selection,
    indexes of those. It counts dead letters that were *redriven*, *skipped* by the selection, and
    *failed*; *failures* are the first failed ones. *dry_run*: it counts without delivering. *rate*:
    messages a second, 0 for unlimited.
    """

    task_id: str
    group_id: int
    group: str
    rate: int
    dry_run: bool
    begin: int
    end: int
    next: int
    started_ms: int
    finished_ms: int
    state: str
    redriven: int
    skipped: int
    failed: int
    selection: RedriveSelection
    failures: list[RedriveFailure]


class StartRedrive(LinkRequest[RedriveTask], frozen=True, kw_only=True, tag_field="op", tag="start"):
    """Start the redrive *task* of dead letters of *group*, or report it if it was started before.

    *rate* and *dry_run*: as in RedriveTask.
    """

    code: ClassVar = RequestCode.REDRIVE
    reply: ClassVar = RedriveTask

    task: str
    group: str
    selection: RedriveSelection
    rate: Annotated[int, msgspec.Meta(ge=0, le=REDRIVE_RATE_MAX_PER_S)]
    dry_run: bool


class CancelRedrive(LinkRequest[RedriveTask], frozen=True, kw_only=True, tag_field="op", tag="cancel"):
    """Stop *task*; messages that it has redriven stay redriven. TaskNotFound."""

    code: ClassVar = RequestCode.REDRIVE
    reply: ClassVar = RedriveTask

    task: str


class GetRedrive(LinkRequest[RedriveTask], frozen=True, kw_only=True, tag_field="op", tag="get"):
    """Report the progress of *task*. TaskNotFound."""

    code: ClassVar = RequestCode.REDRIVE
    reply: ClassVar = RedriveTask

    task: str


Redrive = StartRedrive | CancelRedrive | GetRedrive
