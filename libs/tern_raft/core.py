"""What transport, elections and the command to pass over ask of the consensus core: a Protocol, so that none of them imports who imports it.

`consensus.Consensus` is the one that runs. Names in camel case, and those that begin with `_SyncObj__`, are pysyncobj's own.
"""

from typing import Any, Protocol

from tern_raft.journal import CommitLogJournal
from tern_store import EntryKind, StoredEntry


class Core(Protocol):
    """As consensus.Consensus, whose docstrings say what each does."""

    journal: CommitLogJournal
    raftCurrentTerm: int
    raftCommitIndex: int
    raftLastApplied: int
    _SyncObj__raftNextIndex: dict[Any, int]
    _SyncObj__lastResponseTime: dict[Any, float]

    @property
    def is_leader(self) -> bool:
        """Whether it leads now."""
        ...

    @property
    def is_serving(self) -> bool:
        """Whether it leads, and has applied an entry of its own term."""
        ...

    @property
    def leader_name(self) -> str | None:
        """Who leads, as far as it knows."""
        ...

    def learn_term(self, term: int) -> None:
        """As Consensus.learn_term."""
        ...

    def stand_within(self, delay_s: float) -> None:
        """As Consensus.stand_within."""
        ...

    def follow_again(self) -> None:
        """As Consensus.follow_again."""
        ...

    def begin_anew(self, peer: str, end_index: int) -> int:
        """As Consensus.begin_anew."""
        ...

    def has_all(self, peer: str) -> bool:
        """As Consensus.has_all."""
        ...

    def hand_over(self, peer: str) -> None:
        """As Consensus.hand_over."""
        ...

    def append(
        self,
        parts: list[bytes | bytearray | memoryview],
        version: int,
        *,
        urgent: bool,
        kind: EntryKind = EntryKind.COMMANDS,
    ) -> StoredEntry:
        """As Consensus.append."""
        ...
