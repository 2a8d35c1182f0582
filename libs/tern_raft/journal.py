"""pysyncobj's journal, made of our commit log and vote slots.

Law: nothing here says "durable" before it is. `durable_index` moves only after fdatasync; term and vote are synced before
`setCurrentTerm` returns. The names of the methods are pysyncobj's (journal.py, class Journal, 0.3.17).
"""

from collections.abc import Callable, Sequence

from pysyncobj.journal import Journal

from tern_store import CommitLog, EntryKind, StoredEntry, VoteFile

# What pysyncobj knows as an entry: (command, index, term). Ours is the stored entry itself.
LogItem = tuple[StoredEntry | None, int, int]
# The state machine's version does not concern entries without commands.
NO_VERSION = 0


class CommitLogJournal(Journal):  # type: ignore[misc]
    """The commit log as pysyncobj's journal (stock's: S3, S4, S8, S9, S10, L10, L12). Owner: the core loop."""

    def __init__(self, log: CommitLog, votes: VoteFile, *, on_append: Callable[[], None]) -> None:
        self.log = log
        self._votes = votes
        self._on_append = on_append
        self._commit_index = 1

    @property
    def durable_index(self) -> int:
        """The last entry that fdatasync has covered on this node."""
        return self.log.synced_index

    def append_parts(
        self,
        parts: Sequence[bytes | bytearray | memoryview],
        term: int,
        version: int,
        *,
        urgent: bool = False,
        kind: EntryKind = EntryKind.COMMANDS,
    ) -> StoredEntry:
        """The leader's append: one entry from *parts*, in the page cache; the disk thread is told."""
        entry = self.log.append(kind, self.log.end_index + 1, term, parts, version, urgent=urgent)
        self._on_append()
        return entry

    def entries(self, first: int, size_max_bytes: int) -> list[StoredEntry]:
        """Entries from *first* on, at least one if there is one, then as many as fit into *size_max_bytes*."""
        found: list[StoredEntry] = []
        size = 0
        index = first
        while index <= self.log.end_index:
            entry = self.log.entry(index)
            size += len(entry.raw)
            if found and size > size_max_bytes:
                break
            found.append(entry)
            index += 1
        return found

    # pysyncobj's interface ------------------------------------------------------------------------------------
    def add(self, command: bytes, index: int, term: int) -> None:
        """A follower appends the leader's entry verbatim; a new leader appends pysyncobj's one-byte no-op (syncobj.py:1226)."""
        if len(command) <= 1:
            self.log.append(EntryKind.NOOP, index, term, (), NO_VERSION, urgent=True)
        else:
            entry = self.log.append_stored(command)
            assert (entry.index, entry.term) == (index, term), "an entry's header and its frame must agree"
        self._on_append()

    def deleteEntriesFrom(self, entry_from: int) -> None:
        """Cut durably from the *entry_from*-th entry (0 is index 1)."""
        self.log.truncate_from(self.log.first_index + entry_from)

    def deleteEntriesTo(self, entry_to: int) -> None:
        """Retention is decided by a command of the log, never by pysyncobj's compaction (S2, S3: syncobj.py:1427)."""
        raise AssertionError("pysyncobj must not compact our log")

    def clear(self) -> None:
        """Never: a snapshot through Raft does not exist here (S2: syncobj.py:1493)."""
        raise AssertionError("pysyncobj must not clear our log")

    def __getitem__(self, item: int) -> LogItem:
        index = self.log.first_index + item if item >= 0 else self.log.end_index + 1 + item
        return (None, index, self.log.term_at(index))

    def __len__(self) -> int:
        return self.log.end_index - self.log.first_index + 1

    def _destroy(self) -> None:
        pass

    def setRaftCommitIndex(self, index: int) -> None:
        """Kept in memory: what is committed is learnt again from the leader after a restart."""
        self._commit_index = index

    def getRaftCommitIndex(self) -> int:
        """The commit index that this node may believe at start: what its saved state has applied."""
        return self._commit_index

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:
        """Durable here: a vote or a term is on disk before any message that depends on it can leave (stock: S4, S9, journal.py:152-164)."""
        if (term, voted_for) != (self._votes.term, self._votes.voted_for):
            self._votes.save(term, voted_for)

    def getCurrentTerm(self) -> int:
        """The term of the newest good vote slot."""
        return self._votes.term

    def getVotedForNodeId(self) -> str | None:
        """Whom this node voted for in that term."""
        return self._votes.voted_for
