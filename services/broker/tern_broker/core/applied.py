"""The result of one entry, as apply passes it to the rest of the broker, and the interface of a
part of the state machine.

Law: a part decides from its state, its commands and the entry's time alone. Its decisions are in
`Applied`. The code that acts on them (stores queue entries, wakes polls, notifies name servers)
reads them there.
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
    """The result of one entry: a verdict for each command, queue entries to store, and events for
    other parts of the broker.
    """

    # The entry's time, which is the only time that apply sees; the entry's index in the log; and
    # the version of the state machine that the entry was written for, by which every release
    # applies it for ever.
    now_ms: int = 0
    index: int = 0
    version: int = GENESIS_VERSION
    verdicts: list[Verdict] = field(default_factory=list)
    appends: list[QueueAppends] = field(default_factory=list)
    # Messages that wait for their delivery time from now on, messages whose time has come, and
    # recalled messages: TIMER_ROWS, of recalled messages only ids and times.
    timers: list[npt.NDArray[Any]] = field(default_factory=list)
    fired: list[npt.NDArray[Any]] = field(default_factory=list)
    recalled: list[npt.NDArray[Any]] = field(default_factory=list)
    # Transactions that this entry has begun so far; the messages of transactions that it committed,
    # or of publications (`open_transactions.MESSAGES`), whose keys are found from now on; and
    # whether a check may have become claimable.
    begun: int = 0
    # Chunks that this entry has staged so far.
    staged: int = 0
    committed: list[npt.NDArray[Any]] = field(default_factory=list)
    checks_due: bool = False
    # Topics with new messages, or with messages that became visible again.
    woken_topics: set[int] = field(default_factory=set)
    metadata_changed: bool = False
    # Deleted topics (id to number of queues) and groups (ids). Code that keeps data about them
    # outside the state drops it.
    dropped_topics: dict[int, int] = field(default_factory=dict)
    dropped_groups: list[int] = field(default_factory=list)
    # A table of idempotency keys that moves from the state to a file, and the numbers of the tables
    # whose keys are all older than the window.
    sealed_table: Sealed | None = None
    dropped_tables: list[int] = field(default_factory=list)
    # Records that were copied forward, and the new begin of the log.
    moves: list[Moves] = field(default_factory=list)
    trim: Trim | None = None
    # Whether this node noted its digest; the judgement of the nodes' digests; whether an operator's
    # choice arrived.
    was_noted: bool = False
    judgement: Judgement | None = None
    has_chosen: bool = False


@dataclass(slots=True)
class Counters:
    """Event counts since the process started. For metrics only; apply never reads them."""

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
    staged: int = 0
    published: int = 0
    rolled_back: int = 0
    checks: int = 0
    checks_given_up: int = 0


# Takes the payload, its position in the log, and the entry's result so far; returns the verdict. A
# TernError is a verdict.
Handler = Callable[[memoryview, int, Applied], Verdict]


class Part(Protocol):
    """One part of the state, which decides some commands. Owner: the state machine."""

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of the part's commands, by kind."""

    def is_due(self, now_ms: int) -> bool:
        """Return whether `expire` at *now_ms* would change anything. Anything that is dropped here,
        apply would skip.
        """

    def expire(self, applied: Applied) -> None:
        """End what ends by the entry's time. Called at the begin of each entry, before its
        commands.
        """

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types, for another thread to encode."""

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*. Called on a new part, in the order of
        `StateMachine.parts`.
        """


def read_map(payload: memoryview) -> dict[str, Any]:
    """Decode the map of a command. The leader wrote it, so its keys are present (tests hold both
    sides together).
    """
    try:
        value = decode_msgpack(payload)
    except MalformedBody as error:
        raise LinkBodyMalformed(reason=error.detail) from error
    if not isinstance(value, dict):
        raise LinkBodyMalformed(reason="a command that is not a map")
    return value
