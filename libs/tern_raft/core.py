"""The part of the consensus core that transport, elections and pass-over use.

A Protocol avoids circular imports; `consensus.Consensus` implements it. Names in camel case, and
those that begin with `_SyncObj__`, are pysyncobj's own.
"""

from typing import Any, Protocol

from tern_raft.journal import CommitLogJournal
from tern_store import EntryKind, StoredEntry

# Types of which most say nothing new.
HEARTBEATS = frozenset({"append_entries", "next_node_idx"})


class Core(Protocol):
    """Implemented by consensus.Consensus, whose docstrings describe the methods."""

    journal: CommitLogJournal
    raftCurrentTerm: int
    raftCommitIndex: int
    raftLastApplied: int
    _SyncObj__raftNextIndex: dict[Any, int]
    _SyncObj__raftMatchIndex: dict[Any, int]
    _SyncObj__lastResponseTime: dict[Any, float]

    @property
    def is_leader(self) -> bool:
        """Whether this node leads now."""
        ...

    @property
    def is_serving(self) -> bool:
        """Whether this node leads and has applied an entry of its own term."""
        ...

    @property
    def leader_name(self) -> str | None:
        """The leader as far as this node knows."""
        ...

    def learn_term(self, term: int) -> None:
        """See Consensus.learn_term."""
        ...

    def stand_within(self, delay_s: float) -> None:
        """See Consensus.stand_within."""
        ...

    def follow_again(self) -> None:
        """See Consensus.follow_again."""
        ...

    def begin_anew(self, peer: str, end_index: int) -> int:
        """See Consensus.begin_anew."""
        ...

    def has_all(self, peer: str) -> bool:
        """See Consensus.has_all."""
        ...

    def hand_over(self, peer: str) -> None:
        """See Consensus.hand_over."""
        ...

    def append(
        self,
        parts: list[bytes | bytearray | memoryview],
        version: int,
        *,
        urgent: bool,
        kind: EntryKind = EntryKind.COMMANDS,
    ) -> StoredEntry:
        """See Consensus.append."""
        ...


def progress(core: Core, node: Any) -> tuple[object, ...]:
    """What an append of *node*, or its answer to one, may change that a tick acts on.
    If neither has, an idle node need not tick: two thirds of its wake-ups are heartbeats.
    """
    sent = core._SyncObj__raftNextIndex.get(node), core._SyncObj__raftMatchIndex.get(node)
    return (*sent, core.raftCommitIndex, core.raftCurrentTerm, core.leader_name, core.journal.log.end_index)
