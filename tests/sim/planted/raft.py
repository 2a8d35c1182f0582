"""Planted bugs of consensus: rules off, votes forgotten, acks that are not true, commits that are none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pysyncobj.node import Node

import tern_raft.elections
import tern_raft.transport
from tern_raft.consensus import Consensus
from tern_raft.journal import CommitLogJournal
from tern_raft.membership import Membership
from tern_raft.node import RaftNode
from tern_raft.rules import AppendPlan, Message, VoteCount, plan_append
from tern_raft.transport import PeerTransport
from tern_store import StoredEntry
from tern_store.state.vote_file import Standing, VoteFile
from tests.sim.planted.planting import PlantedBug, changed
from tests.sim.swarm import Swarm, choose


def refused(seed: int) -> Swarm:
    """Disks that refuse, and elections meanwhile."""
    return replace(
        choose(seed), nodes=3, kinds=("refuse", "isolate_leader", "reset", "transfer"), weights=(4, 3, 2, 2), scripts=()
    )


def _term_before_disk() -> Any:
    """Stock's order: a term counts before the disk has taken it, and a message that meets a refusal has half happened."""

    def set_term(self: Consensus, term: int, voted_for: str | None) -> None:
        self._SyncObj__raftCurrentTerm, self._SyncObj__votedForNodeId = term, voted_for
        self.journal.setCurrentTerm(term, voted_for)

    return changed((Consensus, "_SyncObj__setCurrentTerm", set_term))


# Rules ------------------------------------------------------------------------------------------------------------
def _r1_off() -> Any:
    """A reply of whatever term counts in the current one."""
    original = PeerTransport._receive_reply

    def receive_reply(self: PeerTransport, node: Any, message: Message) -> None:
        original(self, node, message | {"term": self._core.raftCurrentTerm})

    return changed((PeerTransport, "_receive_reply", receive_reply))


def _plan_off(change: Callable[[AppendPlan, Message], AppendPlan | None]) -> Any:
    """Plans of appends are what *change* makes of them, given the message as it came."""

    def plan(message: Message, **log: Any) -> AppendPlan | None:
        came = dict(message)
        planned = plan_append(message, **log)
        return None if planned is None else change(planned, came)

    return changed((tern_raft.transport, "plan_append", plan))


def _r2_off() -> Any:
    """The leader's commit index counts, however much of the own log it has verified."""
    return _plan_off(lambda plan, came: replace(plan, message=plan.message | {"commit_index": came["commit_index"]}))


def _r3_off() -> Any:
    """Whatever lies behind a message's last entry is cut, though nothing conflicts; and more is acked than was verified."""

    def stock(plan: AppendPlan, came: Message) -> AppendPlan:
        if plan.cut_from or plan.verified < 0:
            return plan
        return AppendPlan(came | {"commit_index": plan.message["commit_index"]}, verified=-1)

    return _plan_off(stock)


def _r4_off() -> Any:
    """A proven conflict stays where it is."""
    return _plan_off(lambda plan, _: replace(plan, cut_from=0))


def _r5_off() -> Any:
    """Votes are counted by message, not by voter."""
    return changed((VoteCount, "is_new", lambda _self, _term, _voter: True))


def _r6_off() -> Any:
    """No pre-vote: a node stands whenever it hears nobody."""

    def may_campaign(self: Any) -> bool:
        core = self._ask_core()
        end = (core.journal.log.end_term, core.journal.log.end_index)
        return bool(self._membership.may_vote(core.raftCurrentTerm + 1, end))

    return changed((tern_raft.elections.Elections, "may_campaign", may_campaign))


def _r7_off() -> Any:
    """Apply begins at the log's beginning, not behind the saved state."""
    return first_applied(lambda _applied: 1)


def first_applied(change: Callable[[int], int]) -> Any:
    """A restart applies from behind the index that *change* makes of the saved state's."""
    original = RaftNode.__init__

    def init(self: RaftNode, *arguments: Any, **named: Any) -> None:
        log = named["log_"]
        original(self, *arguments, **named | {"applied": max(change(named["applied"]), log.first_index - 1, 1)})

    return changed((RaftNode, "__init__", init))


# Acks and commits -------------------------------------------------------------------------------------------------
def _ack_before_append() -> Any:
    """A follower acks entries on sight; every second time it has to be sent them again before it writes them."""
    original = PeerTransport._receive_append
    count = 0

    def receive_append(self: PeerTransport, node: Any, message: Message) -> None:
        nonlocal count
        entries, core = message["entries"], self._core
        if entries and message["term"] == core.raftCurrentTerm and core.leader_name == str(node.id):
            following = entries[-1][1] + 1
            ack = {"type": "next_node_idx", "next_node_idx": following, "reset": False, "success": True}
            self._say(str(node.id), ack | {"term": core.raftCurrentTerm, "seq": message["seq"], "disk": 0})
            count += 1
            if count % 2:
                return
        original(self, node, message)

    return changed((PeerTransport, "_receive_append", receive_append))


def _ack_before_fsync() -> Any:
    """What is in the page cache counts as durable."""
    return changed((CommitLogJournal, "durable_index", property(lambda self: self.log.end_index)))


def _leader_counts_early() -> Any:
    """The leader counts itself for entries that its own disk has not synced; followers wait for theirs."""
    original = Consensus._SyncObj__getEntries

    def entries(self: Consensus, first: int | None, count: int | None = None, size: int | None = None) -> Any:
        with changed((CommitLogJournal, "durable_index", property(lambda journal: journal.log.end_index))):
            return original(self, first, count, size)

    return changed((Consensus, "_SyncObj__getEntries", entries))


def _commit_alone() -> Any:
    """The leader calls an entry committed when it has written it."""
    original = Consensus.append

    def append(self: Consensus, *arguments: Any, **named: Any) -> StoredEntry:
        entry = original(self, *arguments, **named)
        self._SyncObj__raftCommitIndex = entry.index
        return entry

    return changed((Consensus, "append", append))


def _match_survives_restart() -> Any:
    """What a peer acked before it died counts on when it comes back without it."""
    original = Consensus.begin_anew

    def begin_anew(self: Consensus, peer: str, end_index: int) -> int:
        match = self._SyncObj__raftMatchIndex.get(Node(peer), 0)  # none on a node that never led
        known: int = original(self, peer, end_index)
        self._SyncObj__raftMatchIndex[Node(peer)] = match
        return known

    return changed((Consensus, "begin_anew", begin_anew))


# Runs of a follower's apply ---------------------------------------------------------------------------------------
def _run_without_end() -> Any:
    """Entries that gather on a follower wait for more of them, and for nothing else."""
    return changed((Consensus, "_end_gathering", lambda _self: None))


def _run_drops_gathered() -> Any:
    """A run whose time is over applies its last entry alone."""
    begin, apply = Consensus._begins_run, RaftNode._apply
    dropped: dict[Consensus, int] = {}

    def begins_run(self: Consensus, entries: int) -> bool:
        if self._is_run_due and not self.is_leader:
            dropped[self] = self.raftCommitIndex - 1
        return begin(self, entries)

    def apply_entry(self: RaftNode, entry: StoredEntry) -> None:
        if entry.index > dropped.get(self._consensus, 0):
            apply(self, entry)

    return changed((Consensus, "_begins_run", begins_run), (RaftNode, "_apply", apply_entry))


# Votes ------------------------------------------------------------------------------------------------------------
def _forget_vote() -> Any:
    """Votes are kept in memory alone."""

    def save(self: VoteFile, term: int, voted_for: str | None) -> None:
        self._vote = replace(self._vote, term=term, voted_for=voted_for)

    return changed((VoteFile, "save", save))


def _vote_for_shorter_log() -> Any:
    """A vote for whoever asks, whatever the log ends with."""
    original = PeerTransport._onMessageReceived

    def received(self: PeerTransport, node: Any, message: Message) -> None:
        if message["type"] == "request_vote":
            message = message | {"last_log_term": 1 << 40, "last_log_index": 1 << 40}
        original(self, node, message)

    return changed(
        (PeerTransport, "_onMessageReceived", received),
        (tern_raft.elections, "may_lead", lambda **_: True),
    )


def _count_rebuilding() -> Any:
    """A node that has forgotten what it promised counts like any other."""
    return changed((Membership, "counts", lambda self, peer: self.standing_of(peer) is not None))


def _rebuilding_votes() -> Any:
    """It votes and stands, too."""
    return changed((Membership, "may_vote", lambda self, term, _end: term > self._votes.floor_term))


def _stale_readmission() -> Any:
    """A node that was rebuilt twice takes itself back with the entry that took its former directory back.

    In the place of "votes below its floor", which harms nobody: a node that was taken back by an entry of term F has that entry in its log,
    and who stands in a term up to F has no entry of term F yet, so that its log is older (syncobj.py:928-934 refuses it).
    """
    original = Membership.readmitted

    def readmitted(self: Membership, name: str, incarnation: bytes, term: int) -> bool:
        return original(self, name, self._votes.incarnation if name == self._me else incarnation, term)

    return changed((Membership, "readmitted", readmitted))


def _doubtful_votes() -> Any:
    """A node that cut its torn last entry votes at once."""
    return changed((VoteFile, "doubt", lambda _self: None))


def _second_founding() -> Any:
    """A member that lost its directory becomes a member again by itself."""
    original = VoteFile.open.__func__  # type: ignore[attr-defined]

    def open_votes(cls: type[VoteFile], *arguments: Any, **named: Any) -> VoteFile:
        votes: VoteFile = original(cls, *arguments, **named)
        if votes.standing is Standing.REBUILDING:
            votes._vote = replace(votes._vote, standing=Standing.MEMBER)
        return votes

    return changed((VoteFile, "open", classmethod(open_votes)))


def _deaf_to_who_is_away() -> Any:
    """What is known of the members is known of those that are connected."""

    def common_version(self: Membership) -> int:
        return min([self._version, *(hello.version for hello in self._heard.values())])

    return changed((Membership, "common_version", common_version))


@contextmanager
def _stale_read() -> Iterator[None]:
    """A leader answers reads without asking whether it still leads."""
    with changed((RaftNode, "when_current", lambda _self, ready: ready(True))):
        yield


RULES = (
    PlantedBug("r1_off", "acks of an old term count", ("lost", "log_agreement"), _r1_off),
    PlantedBug("r2_off", "an unverified prefix is committed", ("log_agreement", "lost", "reads"), _r2_off),
    PlantedBug("r3_off", "late messages cut what was acked", ("lost", "log_agreement", "commit_index"), _r3_off),
    PlantedBug("r4_off", "a conflict is never dropped", ("convergence", "stuck"), _r4_off),
    PlantedBug("r5_off", "a voter is counted twice", ("one_leader", "log_agreement"), _r5_off),
    PlantedBug("r6_off", "a node without a majority stands again and again", ("lonely_campaigns",), _r6_off),
    PlantedBug("r7_off", "a restart applies what its saved state holds", ("state_digest", "unhandled"), _r7_off),
)
CONSENSUS = (
    PlantedBug("ack_before_append", "acks on sight", ("lost", "log_agreement"), _ack_before_append),
    PlantedBug("ack_before_fsync", "the page cache is called durable", ("lost", "log_agreement"), _ack_before_fsync),
    PlantedBug("leader_counts_early", "the leader counts what it has not synced", ("lost",), _leader_counts_early),
    PlantedBug("commit_alone", "a leader commits without a majority", ("lost", "log_agreement"), _commit_alone),
    PlantedBug("run_without_end", "a follower waits for more to apply", ("convergence", "stuck"), _run_without_end),
    PlantedBug(
        "run_drops_gathered", "a follower applies the last of a run", ("lost", "state_digest"), _run_drops_gathered
    ),
    PlantedBug("match_survives_restart", "acks outlive their node", ("lost",), _match_survives_restart),
    PlantedBug("forget_vote", "votes are not on disk", ("one_vote", "one_leader"), _forget_vote),
    PlantedBug("vote_for_shorter_log", "anybody is elected", ("lost", "log_agreement"), _vote_for_shorter_log),
    PlantedBug("count_rebuilding", "who forgot counts", ("lost",), _count_rebuilding),
    PlantedBug(
        "term_before_disk",
        "a leader whose disk refuses a term leads in it",
        ("log_agreement", "lost", "unverified"),
        _term_before_disk,
        swarm=refused,
    ),
    PlantedBug("rebuilding_votes", "who forgot votes", ("one_vote", "lost"), _rebuilding_votes),
    PlantedBug("stale_readmission", "taken back once is for ever", ("right_to_vote", "one_vote"), _stale_readmission),
    PlantedBug("doubtful_votes", "who cut an entry votes", ("lost", "log_agreement"), _doubtful_votes),
    PlantedBug("second_founding", "who lost its directory is a member", ("one_vote", "lost"), _second_founding),
    PlantedBug("level_of_connected", "who is away knows everything", ("start", "stuck"), _deaf_to_who_is_away),
    PlantedBug("stale_read", "reads without a barrier", ("stale_reads", "offsets"), _stale_read),
)
