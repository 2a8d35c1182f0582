"""Laws between nodes that only a simulator can check, since it alone sees all of them at one moment. Each breaks long before a client notices.

    match_index     what a leader counts as a peer's, the peer has, durably, of the same terms; an answer of another term has no
                    effect; and a peer that has forgotten what it promised counts for nothing                             (R1, R3)
    majority        what a leader calls committed, a majority has durably (of nodes that are away, the best is assumed)
    unverified      what a follower calls committed is what its leader has there, and what others have applied; and an append
                    moves its commit index to the last entry that it has verified, at most                                (R2)
    needless_cut    what a node cuts is not in its leader's log, and was not applied by anybody                           (R3)
    kept_conflict   an entry that an append has proven wrong is gone afterwards                                           (R4)
    vote_count      consensus hears of one voter's vote once a term                                                       (R5)
    right_to_vote   a node votes as a member, above its floor; with another directory than before, only if it was taken back, which the
                    group does for the directory that it names alone
    term_on_disk    a node acts in the term, and by the vote, that its disk has
    known_version   no entry of a version is logged that a node does not know, whether it is there or not
    durable         what a node had durably, log and vote, is there when it starts again, unless it says that it must be rebuilt

Owner: the observers. Laws hold after each event of a node; nothing here changes what a node does.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tern_raft.membership import read_readmit
from tern_store import EntryKind
from tern_store.state.vote_file import Standing

if TYPE_CHECKING:
    from tests.sim.machines.broker_node import BrokerNode

# Index -> (term, CRC, who applied it first).
Canon = dict[int, tuple[int, int, str]]
# The laws above, each a checker: that one of them is broken says that harm may come, not yet that it has come.
LAWS = frozenset(
    (
        "match_index",
        "majority",
        "unverified",
        "needless_cut",
        "kept_conflict",
        "vote_count",
        "right_to_vote",
        "durable",
        "term_on_disk",
        "known_version",
    )
)
COUNTED = frozenset({Standing.MEMBER, Standing.DOUBTFUL})


class Ghosts:
    """Watches the nodes that were attached, each as long as its process lives."""

    def __init__(self, report: Callable[[str, str], None], canon: Canon) -> None:
        self._report, self._canon = report, canon
        self._nodes: dict[str, BrokerNode] = {}
        # Of every node that ever was: what it had durably of log and vote, and the directory (incarnation) that it voted with first.
        self._durable: dict[str, int] = {}
        self._votes: dict[str, tuple[int, str | None]] = {}
        self._incarnations: dict[str, bytes] = {}
        # Whom leaders have asked the group to take back.
        self._readmitted: set[tuple[str, bytes]] = set()
        # (node, term): who has told that node that it would vote for it in that term.
        self._invited: dict[tuple[str, int], set[str]] = {}
        # What the release knows that each node ran last.
        self._versions: dict[str, int] = {}
        # Whose append is being heard now, and its term.
        self._word: tuple[str, int] = ("", 0)

    def attach(self, node: "BrokerNode") -> None:
        """*node*'s process has opened its files and begins."""
        if self._nodes.get(node.name) is node:
            return
        name, raft = node.name, node.engine.raft
        self._versions[name] = node.config.release
        log, votes = node.engine.store.log, raft._votes
        # Who is in doubt says itself that entries may be missing; but it has peers.
        is_sure = votes.standing is Standing.MEMBER or len(node.config.members()) == 1
        if is_sure and log.end_index < self._durable.get(name, 0):
            self._report("durable", f"{name} had entry {self._durable[name]}, now its log ends with {log.end_index}")
        if log.was_torn and votes.standing is Standing.MEMBER and len(self._durable) > 1:
            self._report("durable", f"{name} has cut the end of its log and does not say so")
        if votes.standing in COUNTED:
            self._require_vote(name, (votes.term, votes.voted_for))
        else:
            self._votes.pop(name, None)  # another file than the one that knew
        self._durable[name] = log.synced_index
        self._nodes[name] = node
        node.process.on_end.append(lambda: self._detach(node))
        self._watch_log(node, log)
        self._watch_votes(node, votes)
        self._watch_acks(node, raft)

    def committed(self, name: str, index: int) -> None:
        """*name* believes that everything up to *index* is committed."""
        node = self._nodes.get(name)
        if node is None:
            return
        raft, log = node.engine.raft, node.engine.store.log
        if index < log.first_index:
            return
        if raft.is_leader:
            self._require_majority(name, index, log.term_at(index))
            return
        term, canon = log.term_at(index), self._canon.get(index)
        if canon is not None and (canon[0], canon[1]) != (term, log.mark(index).crc):
            self._report("unverified", f"{name} commits another entry {index} than {canon[2]} has applied")
        leader_log = self._leader_log(node)
        if (
            leader_log is not None
            and leader_log.first_index <= index <= leader_log.end_index
            and leader_log.term_at(index) != term
        ):
            self._report("unverified", f"{name} commits entry {index} of term {term}, which its leader has not")

    def acts(self, name: str, acts: tuple[int, str | None], kept: tuple[int, str | None], log_term: int) -> None:
        """After an event *name* acts as of that term and vote, and its disk has *kept* those. A log that was copied may end in a later term."""
        if acts != kept and not kept[0] < acts[0] <= log_term:
            self._report("term_on_disk", f"{name} acts as of (term, vote) {acts}, its disk has {kept}")

    def is_invited(self, name: str, term: int) -> bool:
        """Whether a majority, itself among it, has said that it would elect *name* in *term*."""
        invited = self._invited.get((name, term))
        return len(self._durable) == 1 or (invited is not None and 2 * (len(invited) + 1) > len(self._durable))

    # Below -----------------------------------------------------------------------------------------------------
    def _require_vote(self, name: str, found: tuple[int, str | None]) -> None:
        """What a process was killed in the middle of writing may be there: newer is right, older is not."""
        known = self._votes.get(name)
        if known is None or found == known or found[0] > known[0] or (found[0] == known[0] and known[1] is None):
            return
        self._report("durable", f"{name} had (term, vote) {known}, now {found}")

    def _detach(self, node: "BrokerNode") -> None:
        if self._nodes.get(node.name) is node:
            del self._nodes[node.name]

    def _leader_log(self, node: "BrokerNode") -> Any:
        """The log of the leader that *node* follows, if that leads in the same term."""
        raft = node.engine.raft
        leader = self._nodes.get(raft.leader or "")
        if leader is None or not leader.engine.raft.is_leader or leader.engine.raft.term != raft.term:
            return None
        return leader.engine.store.log

    def _require_majority(self, name: str, index: int, term: int) -> None:
        lacking = []
        for other in self._nodes.values():
            log = other.engine.store.log
            has = log.synced_index >= index and (index < log.first_index or log.term_at(index) == term)
            if not has and other.engine.raft.standing in COUNTED:
                lacking.append(other.name)
        if len(lacking) > (len(self._durable) - 1) // 2:
            self._report("majority", f"{name} calls entry {index} committed, which {sorted(lacking)} have not durably")

    def _watch_log(self, node: "BrokerNode", log: Any) -> None:
        mark_synced, truncate_from = log.mark_synced, log.truncate_from

        def synced(job: Any) -> None:
            mark_synced(job)
            self._durable[node.name] = log.synced_index

        def truncate(index: int) -> None:
            if log.first_index < index <= log.end_index:
                self._require_conflict(node, log, index)
            # Before it is done: the process may be killed in the middle of it.
            self._durable[node.name] = min(self._durable[node.name], max(index - 1, 0))
            truncate_from(index)

        log.mark_synced, log.truncate_from = synced, truncate

    def _require_conflict(self, node: "BrokerNode", log: Any, index: int) -> None:
        for cut in range(index, log.end_index + 1):
            canon = self._canon.get(cut)
            if canon is not None and canon[:2] == (log.term_at(cut), log.mark(cut).crc):
                self._report("needless_cut", f"{node.name} cuts entry {cut}, which {canon[2]} has applied")
                return
        # The leader on whose word it cuts; that of a newer term may be unknown to consensus yet.
        peer, term = self._word
        leader = self._nodes.get(peer)
        if leader is None or not leader.engine.raft.is_leader or leader.engine.raft.term != term:
            return
        theirs = leader.engine.store.log
        if theirs.first_index <= index <= theirs.end_index and theirs.term_at(index) == log.term_at(index):
            self._report("needless_cut", f"{node.name} cuts entry {index}, which its leader {peer} has as well")

    def _watch_votes(self, node: "BrokerNode", votes: Any) -> None:
        save, be_readmitted = votes.save, votes.be_readmitted

        def readmitted(term: int) -> None:
            if (node.name, votes.incarnation) not in self._readmitted:
                self._report("right_to_vote", f"{node.name} takes itself back, whom nobody has named as it is now")
            be_readmitted(term)

        def saved(term: int, voted_for: str | None) -> None:
            save(term, voted_for)
            self._votes[node.name] = (term, voted_for)
            if voted_for is None:
                return
            vote, first = votes._vote, self._incarnations.setdefault(node.name, votes.incarnation)
            text = f"{node.name} votes for {voted_for} in term {term}"
            if vote.standing in {Standing.REBUILDING, Standing.UNBORN}:
                self._report("right_to_vote", f"{text}, but it is {vote.standing.name.lower()}")
            elif term <= vote.floor_term:
                self._report("right_to_vote", f"{text}, not above its floor {vote.floor_term}")
            elif votes.incarnation != first and not vote.floor_term:
                self._report("right_to_vote", f"{text}, but lost its directory and was never taken back")

        votes.save, votes.be_readmitted = saved, readmitted

    def _watch_acks(self, node: "BrokerNode", raft: Any) -> None:
        transport, core = raft.transport, raft._consensus
        receive_reply, receive_append = transport._receive_reply, transport._receive_append
        hear, propose, granted = transport._onMessageReceived, core.append, transport.elections.granted
        log = node.engine.store.log
        votes_heard: set[tuple[str, int]] = set()

        def proposed(parts: Any, version: int, *, urgent: bool, kind: EntryKind = EntryKind.COMMANDS) -> Any:
            if kind == EntryKind.READMIT:
                self._readmitted.add(read_readmit(memoryview(b"".join(parts))))
            if old := sorted(name for name, known in self._versions.items() if known < version):
                self._report(
                    "known_version", f"{node.name} logs an entry of version {version}, which {old} do not know"
                )
            return propose(parts, version, urgent=urgent, kind=kind)

        def invited(peer: str, message: dict[str, Any]) -> None:
            self._invited.setdefault((node.name, message["term"]), set()).add(peer)
            granted(peer, message)

        def heard(peer: Any, message: dict[str, Any]) -> None:
            if message["type"] == "response_vote":
                vote = (str(peer.id), message["term"])
                if vote in votes_heard:
                    self._report("vote_count", f"{node.name} counts the vote of {vote[0]} in term {vote[1]} again")
                votes_heard.add(vote)
            hear(peer, message)

        def reply(peer: Any, message: dict[str, Any]) -> None:
            before, term = core._SyncObj__lastResponseTime.get(peer), message["term"]
            receive_reply(peer, message)
            if term != raft.term and core._SyncObj__lastResponseTime.get(peer) != before:
                self._report("match_index", f"{node.name} hears an answer of term {term} in term {raft.term}")
            match = core._SyncObj__raftMatchIndex.get(peer, 0)
            if match and core.is_leader:
                self._require_true(node, str(peer.id), match)

        def append(peer: Any, message: dict[str, Any]) -> None:
            previous, wrong = message.get("prevLogIdx", 0), None
            if (
                message["term"] >= raft.term
                and max(log.first_index, raft.commit_index + 1) <= previous <= log.end_index
            ):
                wrong = log.term_at(previous) if log.term_at(previous) != message["prevLogTerm"] else None
            before, verified = raft.commit_index, previous + len(message.get("entries", ()))
            self._word = (str(peer.id), message["term"])
            try:
                receive_append(peer, message)
            finally:
                self._word = ("", 0)
            if raft.commit_index > max(before, verified):
                text = f"{node.name} commits entry {raft.commit_index} on a message that verifies {verified}"
                self._report("unverified", text)
            # Of a message whose term its disk has refused, nothing counts; the leader sends it again.
            is_taken = raft.term >= message["term"]
            if wrong is not None and is_taken and previous <= log.end_index and log.term_at(previous) == wrong:
                self._report(
                    "kept_conflict", f"{node.name} keeps entry {previous} of term {wrong}, which is not its leader's"
                )

        transport._receive_reply, transport._receive_append = reply, append
        transport._onMessageReceived = heard
        core.append, transport.elections.granted = proposed, invited

    def _require_true(self, leader: "BrokerNode", peer: str, match: int) -> None:
        other = self._nodes.get(peer)
        if other is None or other.engine.raft.term != leader.engine.raft.term:
            return
        mine, log = leader.engine.store.log, other.engine.store.log
        text = f"{leader.name} counts entry {match} as {peer}'s"
        if other.engine.raft.standing is Standing.REBUILDING:
            self._report("match_index", f"{text}, which has forgotten what it promised")
        elif match > log.synced_index:
            self._report("match_index", f"{text}, which has {log.end_index}, durably {log.synced_index}")
        elif match >= max(log.first_index, mine.first_index) and log.term_at(match) != mine.term_at(match):
            self._report("match_index", f"{text}, which has one of term {log.term_at(match)} there")
