"""pysyncobj's journal, made of our commit log and vote slots.

Law: nothing is reported as durable before it is. `durable_index` moves only after fdatasync; term
and vote are synced before `setCurrentTerm` returns. The names of the methods are pysyncobj's
(journal.py, class Journal, 0.3.17).
"""

from collections.abc import Callable, Sequence

from pysyncobj.journal import Journal

from tern_store import CommitLog, EntryKind, StoredEntry, VoteFile

# pysyncobj's form of an entry: (command, index, term). Our command is the stored entry itself.
LogItem = tuple[StoredEntry | None, int, int]
# The state machine's version does not concern entries without commands.
NO_VERSION = 0


class CommitLogJournal(Journal):  # type: ignore[misc]
    """The commit log as pysyncobj's journal. Owner: the core loop.
    Stock's journal: S3, S4, S8, S9, S10, L10, L12.
    """

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
        """Append one entry from *parts* as the leader, in the page cache, and notify the disk
        thread.
        """
        entry = self.log.append(kind, self.log.end_index + 1, term, parts, version, urgent=urgent)
        self._on_append()
        return entry

    def entries(self, first: int, size_max_bytes: int) -> list[StoredEntry]:
        """Entries from *first* on: at least one if there is one, then up to *size_max_bytes*."""
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

    # pysyncobj's interface ------------------------------------------------------------------------
    def add(self, command: bytes, index: int, term: int) -> None:
        """Append the leader's entry verbatim, or a new leader's one-byte no-op
        (syncobj.py:1226).
        """
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
        """Fail: a log command decides about retention, never pysyncobj's compaction (S2, S3:
        syncobj.py:1427).
        """
        raise AssertionError("pysyncobj must not compact our log")

    def clear(self) -> None:
        """Fail: there are no snapshots through Raft (S2: syncobj.py:1493)."""
        raise AssertionError("pysyncobj must not clear our log")

    def __getitem__(self, item: int) -> LogItem:
        index = self.log.first_index + item if item >= 0 else self.log.end_index + 1 + item
        return (None, index, self.log.term_at(index))

    def __len__(self) -> int:
        return self.log.end_index - self.log.first_index + 1

    def _destroy(self) -> None:
        pass

    def setRaftCommitIndex(self, index: int) -> None:
        """Keep the index in memory: after a restart the leader sends it again."""
        self._commit_index = index

    def getRaftCommitIndex(self) -> int:
        """The commit index at the start: what the saved state has applied."""
        return self._commit_index

    def setCurrentTerm(self, term: int, voted_for: str | None) -> None:
        """Durable here: a vote or a term, before any message that depends on it can leave.
        Stock: S4, S9, journal.py:152-164.
        """
        if (term, voted_for) != (self._votes.term, self._votes.voted_for):
            self._votes.save(term, voted_for)

    def getCurrentTerm(self) -> int:
        """The term of the newest good vote slot."""
        return self._votes.term

    def getVotedForNodeId(self) -> str | None:
        """The candidate that this node voted for in that term."""
        return self._votes.voted_for
