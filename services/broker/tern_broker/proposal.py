"""Proposals, which wait for their entry, and the entry that is gathered from them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tern_broker.core.delivery.picking import Pick, ReceiveRequest
from tern_wire.limits import GROUP_COMMIT_SIZE_MAX_BYTES
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import Parts

# A COPY and a TRIM rely on the state before their entry: nothing else in it may change that. A
# topic is deleted between entries, so that none of them both adds to it and drops it.
ALONE = frozenset({CommandKind.COPY, CommandKind.TRIM, CommandKind.DELETE_TOPIC, CommandKind.DELETE_GROUP})
# These rely on the timers before their entry. Several recalls may share one; a FIRE shares it with
# none.
TIMING = frozenset({CommandKind.FIRE, CommandKind.CANCEL_TIMER})
# Called with the verdict (apply's result for the command) or an error, and for a receive with its
# picks.
Done = Callable[[Any, list[Pick]], None]
# Makes a command's payload when its entry is built; gets the entry's time.
Build = Callable[[int], Parts]


@dataclass(slots=True)
class Proposal:
    """One request that waits for its entry. Exactly one of *build* and *receive* is set."""

    kind: CommandKind
    size_bytes: int
    done: Done
    build: Build | None = None
    receive: ReceiveRequest | None = None
    # Whether this verdict can be told before the store has the entry's messages.
    is_early: Callable[[Any], bool] = field(default=lambda _verdict: False)
    # This node's own work: an error of `done` or `build` ends the node.
    is_upkeep: bool = False
    # Since when it waits (ms, monotonic); `submit` sets it.
    since_ms: int = 0


@dataclass(slots=True)
class Flight:
    """The entry being replicated, and the proposals that wait for its verdicts."""

    index: int = 0
    term: int = 0
    waiting: list[tuple[Proposal, list[Pick]]] = field(default_factory=list)
    # Numbers of those that have been answered early.
    answered: set[int] = field(default_factory=set)


@dataclass(slots=True)
class GatheredEntry:
    """The entry that is being built. Owner: the proposer."""

    now_ms: int
    commands: list[tuple[CommandKind, Parts]] = field(default_factory=list)
    waiting: list[tuple[Proposal, list[Pick]]] = field(default_factory=list)
    size: int = 0

    def has_room(self, proposal: Proposal) -> bool:
        """Return whether *proposal* may join the entry."""
        kind = proposal.kind
        if self.size and self.size + proposal.size_bytes > GROUP_COMMIT_SIZE_MAX_BYTES:
            return False
        if self.commands and ALONE & {kind, self.commands[-1][0]}:
            return False
        return kind not in TIMING or not any(
            other in TIMING and CommandKind.FIRE in {kind, other} for other, _ in self.commands
        )

    def add(self, proposal: Proposal, payload: Parts, picks: list[Pick]) -> None:
        """Add a proposal."""
        self.commands.append((proposal.kind, payload))
        self.waiting.append((proposal, picks))
        self.size += max(proposal.size_bytes, sum(map(len, payload)))
