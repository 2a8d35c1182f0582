"""What one entry did, as apply tells it to the rest of the broker; and how a part of the state machine looks to it.

Law: a part decides from its state, its commands and the entry's time alone. What it decides is in `Applied`; who must do something
about it (store queue entries, wake polls, tell name servers) reads it there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy.typing as npt

from tern_broker.core.comparing.digest import Verdict
from tern_broker.core.comparing.judgement import Judgement
from tern_broker.core.sending.idempotency import Sealed
from tern_broker.core.trimming import Moves, Trim
from tern_wire.errors import LinkBodyMalformed, MalformedBody
from tern_wire.link.codec import decode_msgpack
from tern_wire.link.commands import GENESIS_VERSION
from tern_wire.link.rows import QueueAppends


@dataclass(slots=True)
class Applied:
    """What one entry did: a verdict for each command, queue entries to store, and what others wait for."""

    # The entry's time: the only time that apply knows; its number in the log; and the version of the state machine that it was written for, as
    # which every release applies it for ever.
    now_ms: int = 0
    index: int = 0
    version: int = GENESIS_VERSION
    verdicts: list[Verdict] = field(default_factory=list)
    appends: list[QueueAppends] = field(default_factory=list)
    # Messages that wait for their delivery time from now on, those whose time has come, and those that were recalled: TIMER_ROWS,
    # of the last ones only ids and times.
    timers: list[npt.NDArray[Any]] = field(default_factory=list)
    fired: list[npt.NDArray[Any]] = field(default_factory=list)
    recalled: list[npt.NDArray[Any]] = field(default_factory=list)
    # Transactions that this entry has begun so far; the half messages of those that it has committed (`open_transactions.MESSAGES`), whose
    # keys are found from now on; and whether there may be a check to claim that could not be claimed before.
    begun: int = 0
    committed: list[npt.NDArray[Any]] = field(default_factory=list)
    checks_due: bool = False
    # Topics with new messages, or with messages that became visible again.
    woken_topics: set[int] = field(default_factory=set)
    metadata_changed: bool = False
    # Topics (id to number of queues) and groups (id) that were deleted: whoever keeps something of them outside the state drops it.
    dropped_topics: dict[int, int] = field(default_factory=dict)
    dropped_groups: list[int] = field(default_factory=list)
    # A table of idempotency keys that leaves the state for a file, and those (numbers) whose keys are all older than the window.
    sealed_table: Sealed | None = None
    dropped_tables: list[int] = field(default_factory=list)
    # Records that were copied forward, and where the log begins from now on.
    moves: list[Moves] = field(default_factory=list)
    trim: Trim | None = None
    # Whether this node noted its digest; what was judged of the nodes' digests; whether an operator's choice came.
    was_noted: bool = False
    judgement: Judgement | None = None
    has_chosen: bool = False


@dataclass(slots=True)
class Counters:
    """What happened since the process started; for metrics only, never read by apply."""

    stored: int = 0
    fired: int = 0
    recalled: int = 0
    replayed: int = 0
    leased: int = 0
    settled: int = 0
    expired: int = 0
    nacked: int = 0
    dead_lettered: int = 0
    redriven: int = 0
    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    checks: int = 0
    checks_given_up: int = 0


# Gets the payload, where it lies in the log, and what the entry has done so far; returns the verdict. A TernError is one, too.
Handler = Callable[[memoryview, int, Applied], Verdict]


class Part(Protocol):
    """One part of the state, which decides about some commands. Owner: the state machine."""

    def commands(self) -> Mapping[int, Handler]:
        """What it decides about."""

    def is_due(self, now_ms: int) -> bool:
        """Whether `expire` at *now_ms* would change anything. What is dropped here, apply would skip."""

    def expire(self, applied: Applied) -> None:
        """The entry's time has come: what ends by itself ends. Called at the begin of each entry, before its commands."""

    def pack(self) -> Any:
        """A frozen copy, of MessagePack's types, for another thread to encode."""

    def unpack(self, packed: Any) -> None:
        """Become what was packed. Called on a new part, in the order of `StateMachine.parts`."""


def read_map(payload: memoryview) -> dict[str, Any]:
    """The map of a command; the leader wrote it, so its keys are there (tests hold both sides together)."""
    try:
        value = decode_msgpack(payload)
    except MalformedBody as error:
        raise LinkBodyMalformed(reason=error.detail) from error
    if not isinstance(value, dict):
        raise LinkBodyMalformed(reason="a command that is no map")
    return value
