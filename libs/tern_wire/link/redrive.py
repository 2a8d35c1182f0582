"""Redrive tasks, as proxies begin, cancel and look at them: dead letters that are delivered to their group again.

A task has the same name in every broker group that has a part in it; each tells of its own part.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class RedriveSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters are meant: the fields of a `Selection` (`tern_wire/dead_letters.py`).

    Those of *topic*, with *tag*, with *reason* somewhere in their reason, died from *from_ms* to before *to_ms*; "" and a *to_ms* of 0 mean all.
    *offsets*: only these; None: whatever the others choose.
    """

    topic: str
    tag: str
    reason: str
    from_ms: int
    to_ms: int
    offsets: Annotated[tuple[int, ...], msgspec.Meta(max_length=REDRIVE_OFFSETS_MAX)] | None


class RedriveFailure(msgspec.Struct, frozen=True, array_like=True):
    """The dead letter at *offset* was not redriven: it is gone, or its message is (LETTER_GONE, ORIGIN_GONE)."""

    offset: int
    status: int


class RedriveTask(LinkReply, frozen=True, kw_only=True):
    """How a task is going: *state* is `running`, `done` or `cancelled`; times are ms since 1970, *finished_ms* 0 while it runs.

    It looks at dead letters from *begin* to *end*, and at *next* now: their offsets, or with *offsets* in its selection the places in those. So many
    were *redriven*, *skipped* since they are not meant, and *failed*; *failures* are the first that did. *dry_run*: it counts, and delivers
    nothing. *rate*: messages a second, 0 for as fast as it can.
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
    """Redrive dead letters of *group* as *task*, or tell of it if it was begun before. *rate* and *dry_run*: as in RedriveTask."""

    code: ClassVar = RequestCode.REDRIVE
    reply: ClassVar = RedriveTask

    task: str
    group: str
    selection: RedriveSelection
    rate: Annotated[int, msgspec.Meta(ge=0, le=REDRIVE_RATE_MAX_PER_S)]
    dry_run: bool


class CancelRedrive(LinkRequest[RedriveTask], frozen=True, kw_only=True, tag_field="op", tag="cancel"):
    """Redrive no more for *task*; what it has redriven stays so. TaskNotFound."""

    code: ClassVar = RequestCode.REDRIVE
    reply: ClassVar = RedriveTask

    task: str


class GetRedrive(LinkRequest[RedriveTask], frozen=True, kw_only=True, tag_field="op", tag="get"):
    """How *task* is going; TaskNotFound."""

    code: ClassVar = RequestCode.REDRIVE
    reply: ClassVar = RedriveTask

    task: str


Redrive = StartRedrive | CancelRedrive | GetRedrive
