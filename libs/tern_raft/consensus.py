"""pysyncobj's SyncObj with everything around its consensus core replaced through its own seams.

Names that begin with `_SyncObj__` are pysyncobj's private methods: Python resolves them through the
instance, so a method of that name in a subclass wins. Line numbers are those of syncobj.py in the
0.3.17 sdist. Refuses any other version.
"""

import random
from collections.abc import Callable
from typing import Any

import pysyncobj.syncobj as stock
from pysyncobj import SyncObj, SyncObjConf
from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node
from pysyncobj.version import VERSION

from tern_raft.journal import CommitLogJournal, LogItem
from tern_raft.transport import PeerTransport
from tern_store import EntryKind, StoredEntry
from tern_wire.link.requests import Parts

PINNED_VERSION = "0.3.17"
# Entries sent to a peer and not acknowledged. A slow follower receives entries at the pace of its
# acks.
IN_FLIGHT_ENTRIES_MAX = 64
IN_FLIGHT_SIZE_MAX_BYTES = 8 << 20
APPEND_SIZE_MAX_BYTES = 4 << 20
# Apply yields to the loop after this long, so that a replay never delays heartbeats.
APPLY_SLICE_S = 0.02
# A follower lets committed entries gather: its acks are waited for, its state is not.
APPLY_RUN_ENTRIES = 64
APPLY_RUN_SIZE_BYTES = 256 << 10
APPLY_RUN_S = 0.03
# Four in the shortest election time.
HEARTBEAT_PERIOD_S = 0.125


class _NoPoller:
    """The transport owns the sockets; pysyncobj's poller would only cost a system call a tick
    (syncobj.py:205, 706).
    """

    def subscribe(self, *_: Any) -> None: ...
    def unsubscribe(self, *_: Any) -> None: ...
    def poll(self, _timeout: float) -> None: ...


class Consensus(SyncObj):  # type: ignore[misc]
    """One node's consensus.
    Owner: the core loop, which calls doTick(0) on every event and every few ms.
    """

    def __init__(
        self,
        node: str,
        others: list[str],
        *,
        journal: CommitLogJournal,
        transport: PeerTransport,
        applied: int,
        apply: Callable[[StoredEntry], None],
        on_role: Callable[[], None],
        kick: Callable[[], None],
        call_later: Callable[[float, Callable[[], None]], object],
        election_min_s: float,
        election_max_s: float,
    ) -> None:
        """*kick*: tick soon."""
        if VERSION != PINNED_VERSION:
            raise RuntimeError(f"pysyncobj {VERSION} is installed, but only {PINNED_VERSION} was hardened and tested")
        self.journal = journal
        self.peers = transport
        self._apply, self._kick, self._call_later = apply, kick, call_later
        # Whether entries gather for the next run of a follower, and whether their time is over.
        self._is_gathering = self._is_run_due = False
        self.needs_apply = False
        # Set by the node: whether the entry of this index is applied now; if not, it and all later
        # ones wait.
        self.may_apply: Callable[[int], bool] = lambda _index: True
        self._heartbeat_at: dict[Node, float] = {}
        # The seams: createJournal (syncobj.py:41, used in 166) and createPoller (30, 205) are
        # module globals. Stock's journal never syncs, has no checksum, grows by mmap (a full disk
        # is SIGBUS), forgets the vote with a bad file: S3, S4, S8 to S10, L10, L12
        # (journal.py:99-300).
        stock.createJournal = lambda _file: journal
        stock.createPoller = lambda _kind: _NoPoller()
        # R7: stock applies from 1 what its journal reports as committed, again after a save
        # (syncobj.py:176-177).
        journal.setRaftCommitIndex(max(1, applied))
        conf = SyncObjConf(
            # L8: stock's thread ends silently with the thread that made it (syncobj.py:587), and
            # swallows exceptions (594-597).
            autoTick=False,
            # Otherwise it opens a pipe (syncobj.py:263-264) and sends after every applied entry
            # (731-732).
            appendEntriesUseBatch=True,
            appendEntriesPeriod=HEARTBEAT_PERIOD_S,
            raftMinTimeout=election_min_s,
            raftMaxTimeout=election_max_s,
            # L5: a stock leader stays one for 30 s without a majority (config.py:57,
            # syncobj.py:679-686).
            leaderFallbackTimeout=election_min_s,
            # For its own sockets, which do not exist here; but it must not be shorter than the
            # election time.
            connectionTimeout=2 * election_max_s,
            # S12 (syncobj.py:885-890); L11: a fork inherits sockets and outlives its parent
            # (serializer.py:78-100).
            dynamicMembershipChange=False,
            useFork=False,
            onStateChanged=lambda _old, _new: on_role(),
        )
        super().__init__(Node(node), [Node(other) for other in others], conf, transport=transport)
        self._SyncObj__raftLastApplied = max(1, applied)
        # A node without history stands soon; pre-vote (R6) keeps it from disturbing a group with a
        # leader. In a group of one nobody else could stand.
        wait_s = random.uniform(0.05, 0.3)  # noqa: S311 (timing, no secret)
        self._SyncObj__raftElectionDeadline = monotonic() + (wait_s if others else 0.0)

    # Queries and commands -------------------------------------------------------------------------
    @property
    def is_leader(self) -> bool:
        """Whether this node considers itself the leader."""
        # Same as `_isLeader` (syncobj.py:1164) with one call less: it runs after every event.
        return bool(self._SyncObj__raftState == stock._RAFT_STATE.LEADER)

    @property
    def is_serving(self) -> bool:
        """Whether this node leads and has applied the no-op of its own term.
        Every entry committed before it is then in the state (L5: syncobj.py:1164-1190 promise
        less).
        """
        return self.is_leader and self.raftLastApplied >= (self._SyncObj__noopIDx or 0)

    @property
    def leader_name(self) -> str | None:
        """The leader as far as this node knows."""
        leader = self._getLeader()
        return None if leader is None else str(leader.id)

    def match_index(self, peer: str) -> int:
        """The last entry that *peer* is known to have, even if it does not count; 0 on
        followers.
        """
        return max(int(self._SyncObj__raftMatchIndex.get(Node(peer), 0)), self.peers.learned.get(peer, 0))

    def append(
        self,
        parts: list[bytes | bytearray | memoryview],
        version: int,
        *,
        urgent: bool,
        kind: EntryKind = EntryKind.COMMANDS,
    ) -> StoredEntry:
        """Append one entry as the leader and send it; the caller has checked is_leader in this loop
        turn.
        """
        entry = self.journal.append_parts(parts, self.raftCurrentTerm, version, urgent=urgent, kind=kind)
        self._SyncObj__sendAppendEntries()
        return entry

    def ask_all(self) -> dict[str, int]:
        """Send every connected peer an empty append now; return the number of each."""
        asked: dict[str, int] = {}
        for node in self._SyncObj__otherNodes:
            has_log = self.isNodeConnected(node) and self.peers.membership.has_log(str(node.id))
            if has_log and self._is_reachable(node):
                previous = min(self._SyncObj__raftNextIndex[node] - 1, self.journal.log.end_index)
                self.peers.post(node, self._append(previous, []))
                asked[str(node.id)] = self.peers.last_number
        return asked

    def begin_anew(self, peer: str, end_index: int) -> int:
        """Forget what *peer* has acknowledged (the commit index stays): its log ends with
        *end_index*.
        Returns the entry behind which the next entries are sent.
        """
        known = min(end_index, self.journal.log.end_index)
        self._SyncObj__raftMatchIndex[Node(peer)] = 0
        self._SyncObj__raftNextIndex[Node(peer)] = known + 1
        return known

    def learn_term(self, term: int) -> None:
        """Enter *term*, seen from a peer, if it is newer."""
        if term > self.raftCurrentTerm:
            self._SyncObj__setCurrentTerm(term, None)
            self._SyncObj__raftLeader = None
            self._SyncObj__setState(stock._RAFT_STATE.FOLLOWER)

    def stand_within(self, delay_s: float) -> None:
        """Stand soon: the leader's connection broke, and a dead process does not come back."""
        if not self.is_leader:
            soon = monotonic() + delay_s
            self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, soon)

    def follow_again(self) -> None:
        """Allow heartbeats to postpone the election again, after a request to stand that cannot be
        met.
        Stock allows that only after a campaign (syncobj.py:914-916, 949-952).
        """
        self._SyncObj__transferInProgress = False

    def has_all(self, peer: str) -> bool:
        """Whether *peer* has acknowledged the whole log."""
        return self.match_index(peer) == self.journal.log.end_index

    @property
    def is_settled(self) -> bool:
        """Whether the whole log is committed and applied here: no caller waits for an outcome."""
        return bool(self.raftLastApplied == self.journal.log.end_index)

    def hand_over(self, peer: str) -> None:
        """Ask *peer*, which has the whole log, to stand now."""
        self.peers.send(Node(peer), {"type": "timeout_now", "term": self.raftCurrentTerm})

    def _SyncObj__onBecomeLeader(self) -> None:
        """Begin with nothing in flight and new match indexes (syncobj.py:1215-1232)."""
        self.peers.flight_base.clear()
        self.peers.learned.clear()
        super()._SyncObj__onBecomeLeader()

    def _SyncObj__setCurrentTerm(self, term: int, voted_for: str | None) -> None:
        """Durable here, before this node acts on it. A refused write leaves the old term and vote.
        The message that led to it then has no effect. Stock changes memory first
        (syncobj.py:1234-1237), so a leader that cannot write would lead in the newer term, which is
        another node's.
        """
        try:
            self.journal.setCurrentTerm(term, voted_for)
        except OSError:
            if self._SyncObj__raftState == stock._RAFT_STATE.CANDIDATE:
                # It stood already (653-654), and late votes of its last campaign would count for
                # this one.
                self._SyncObj__setState(stock._RAFT_STATE.FOLLOWER)
            raise
        self._SyncObj__raftCurrentTerm, self._SyncObj__votedForNodeId = term, voted_for

    # Seams ----------------------------------------------------------------------------------------
    def _SyncObj__getEntries(
        self, first: int | None, count: int | None = None, _size: int | None = None
    ) -> list[LogItem]:
        """Bounded (stock loads the whole tail: L12, syncobj.py:1145-1162).
        The commit loop (658-672) reads one entry at a time. Entries that are not synced here yet
        are hidden from it, so the leader never counts itself early (stock does: S4, 660). Followers
        read "all from prevLogIdx": only whether there is more than one entry decides about
        truncation (991), so two suffice.
        """
        end = self.journal.log.end_index
        if first is None or first < self.journal.log.first_index or first > end:
            return []
        if count == 1 and self.is_leader and first > self.journal.durable_index:
            return []
        last = min(end, first + (count or 2) - 1)
        return [(None, index, self.journal.log.term_at(index)) for index in range(first, last + 1)]

    def _SyncObj__sendAppendEntries(self) -> None:
        """Pipelined, windowed, without re-sending entries in flight (stock: syncobj.py:1251-1337).
        No snapshots (1309-1331: S1, L3), no chunks (1275-1296: L9), at most one `behind` a
        heartbeat.
        """
        now = monotonic()
        self._SyncObj__newAppendEntriesTime = now + HEARTBEAT_PERIOD_S
        log = self.journal.log
        # By the first entry in them, heartbeats by the one before: usually equal for both peers.
        encoded: dict[int, tuple[Parts, int]] = {}
        heartbeats: dict[int, Parts] = {}
        for node in self._SyncObj__otherNodes:
            if not self.isNodeConnected(node) or not self.peers.membership.has_log(str(node.id)):
                continue
            following = self._SyncObj__raftNextIndex[node]
            sent = False
            if not self._is_reachable(node):
                if now >= self._heartbeat_at.get(node, 0.0):
                    self._heartbeat_at[node] = now + HEARTBEAT_PERIOD_S
                    self.peers.send(
                        node, {"type": "behind", "term": self.raftCurrentTerm, "first": self.journal.log.first_index}
                    )
                continue
            while following <= log.end_index and self._has_window(node, following):
                if following not in encoded:
                    encoded[following] = self._append_from(following)
                parts, behind = encoded[following]
                self.peers.post(node, parts)
                following = self._SyncObj__raftNextIndex[node] = behind
                sent = True
            if sent:
                self._heartbeat_at[node] = now + HEARTBEAT_PERIOD_S
            elif now >= self._heartbeat_at.get(node, 0.0):
                self._heartbeat_at[node] = now + HEARTBEAT_PERIOD_S
                previous = min(following - 1, log.end_index)
                if previous not in heartbeats:
                    heartbeats[previous] = self._append(previous, [])
                self.peers.post(node, heartbeats[previous])

    def _is_reachable(self, node: Node) -> bool:
        """Whether our log still holds the entries that *node* lacks; otherwise it needs a copy."""
        # Every log has entry 1, the genesis, and it is never sent.
        return bool(self._SyncObj__raftNextIndex[node] >= max(self.journal.log.first_index, 2))

    def _has_window(self, node: Node, following: int) -> bool:
        # After an election or a restart nothing is in flight, whatever the (still unknown) match
        # index is.
        base = self.peers.flight_base.setdefault(str(node.id), following - 1)
        in_flight = (
            following - 1 - max(base, self._SyncObj__raftMatchIndex[node], self.peers.learned.get(str(node.id), 0))
        )
        return in_flight < IN_FLIGHT_ENTRIES_MAX and self.peers.buffered_bytes(node) < IN_FLIGHT_SIZE_MAX_BYTES

    def _append_from(self, following: int) -> tuple[Parts, int]:
        """The append with the entries from *following* on, and the index behind them."""
        entries = self.journal.entries(following, APPEND_SIZE_MAX_BYTES)
        message = self._append(following - 1, [(entry, entry.index, entry.term) for entry in entries])
        return message, entries[-1].index + 1

    def _append(self, previous: int, entries: list[tuple[StoredEntry, int, int]]) -> Parts:
        return self.peers.encode_append(
            {
                "type": "append_entries",
                "term": self.raftCurrentTerm,
                "commit_index": self.raftCommitIndex,
                "entries": entries,
                "prevLogIdx": previous,
                "prevLogTerm": self.journal.log.term_at(previous),
            }
        )

    def _SyncObj__applyLogEntries(self) -> bool:
        """Our bounded apply (R7).
        The state machine must never raise; if it does, the process must end. Stock repeats an apply
        that raises at every tick, for ever (L1, S11, syncobj.py:708-734).
        """
        deadline = monotonic() + APPLY_SLICE_S
        applied = self.raftLastApplied
        self.needs_apply = False
        if not self._begins_run(self.raftCommitIndex - applied):
            return False
        while applied < self.raftCommitIndex:
            if not self.may_apply(applied + 1):
                return False
            applied += 1
            self._apply(self.journal.log.entry(applied))
            self._SyncObj__raftLastApplied = applied
            if monotonic() > deadline:
                break
        self.needs_apply = applied < self.raftCommitIndex
        return False

    def _begins_run(self, entries: int) -> bool:
        """Whether the *entries* that are committed and not applied are applied now.
        On a follower when they are many, or the first of them has waited for APPLY_RUN_S: an apply
        at every commit would delay the ack that the leader waits for.
        """
        is_due = self.is_leader or self._is_run_due or entries >= APPLY_RUN_ENTRIES
        if is_due or (entries and (self._is_new_term() or self._is_much())):
            self._is_run_due = False
            return True
        if entries and not self._is_gathering:
            self._is_gathering = True
            self._call_later(APPLY_RUN_S, self._end_gathering)
        return False

    def _is_much(self) -> bool:
        """Whether the committed entries that are not applied are large."""
        log, applied = self.journal.log, self.raftLastApplied
        begin = log.start if applied == log.start.index else log.mark(applied)
        return bool(log.mark(self.raftCommitIndex).position - begin.position >= APPLY_RUN_SIZE_BYTES)

    def _is_new_term(self) -> bool:
        """Whether no entry of this term is applied yet: votes and greetings depend on the first."""
        return bool(self.journal.log.term_at(self.raftLastApplied) != self.raftCurrentTerm)

    def _end_gathering(self) -> None:
        self._is_gathering, self._is_run_due = False, True
        self._kick()

    def _SyncObj__connectedToAnyone(self) -> bool:
        """R6 (L6, syncobj.py:635-648; called in 1339): reached only when the election time is over.
        A campaign begins when a majority would vote for this node.
        """
        return not self._SyncObj__otherNodes or self.peers.elections.may_campaign()

    def _checkCommandsToApply(self) -> None:
        """Commands come through append(); Raft queues and forwards none (L4,
        syncobj.py:503-574).
        """

    def _SyncObj__tryLogCompaction(self) -> None:
        """No snapshots through Raft (S1, S2, S3, S7, L11, syncobj.py:1421-1470)."""

    def _SyncObj__parseChangeClusterRequest(self, _command: Any) -> None:
        """No membership commands: stock unpickles them whatever the settings are (S12,
        syncobj.py:887, 1415-1419).
        """

    def _SyncObj__loadDumpFile(self, _clear: bool) -> None:
        """Stock continues with an empty state when it cannot read one (S7,
        syncobj.py:1472-1511).
        """
        raise AssertionError("there is no dump file")
