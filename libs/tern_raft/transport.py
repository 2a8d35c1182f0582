"""pysyncobj's transport over our link: every message passes the rules, every acknowledgement waits for the disk.

Sans-IO: bodies come in by `receive`, go out by the `post` function given; sockets live in `links.py`, a simulator may stand there.
"""

import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tern_raft.frames import decode_message, encode_message
from tern_raft.rules import Message, VoteCount, may_lead, plan_append
from tern_store import EntryRefused
from tern_wire.errors import LinkBodyMalformed
from tern_wire.requests import Parts

if TYPE_CHECKING:
    from tern_raft.consensus import Consensus

log = logging.getLogger(__name__)
# A pre-vote is asked again after this long, and its grants are worth that much.
PRE_VOTE_PERIOD_S = 0.1
PRE_VOTE_WORTH_S = 0.5


class PeerTransport(Transport):  # type: ignore[misc]
    """One node's view of its peers. Owner: the core loop; `bind` is called once, right after construction of Consensus."""

    def __init__(
        self,
        me: str,
        others: list[str],
        *,
        post: Callable[[str, Parts], bool],
        buffered: Callable[[str], int],
        kick: Callable[[], None],
        stickiness_s: float,
    ) -> None:
        super().__init__(None, Node(me), [Node(other) for other in others])
        self._nodes = {other: Node(other) for other in others}
        self._post, self._buffered, self._kick = post, buffered, kick
        self._stickiness_s = stickiness_s
        self._consensus: Consensus | None = None
        self._votes = VoteCount()
        self._pre_votes: dict[str, float] = {}
        self._pre_vote_at = 0.0
        self._leader_heard_at = -1e9
        # Success acks that wait until the local disk has what they promise; the newest one a peer is enough.
        self._held: dict[str, Message] = {}
        # Numbers of append messages: a restart request answers one of them, and older ones in flight are void.
        self._seq = 0
        self._void_before: dict[str, int] = {}
        self._answering_seq = 0
        self._verified = -1
        self._is_heartbeat = False
        self.flight_base: dict[str, int] = {}

    def bind(self, consensus: "Consensus") -> None:
        """The consensus that this transport serves."""
        self._consensus = consensus

    # pysyncobj's interface -------------------------------------------------------------------------------------
    def tryGetReady(self) -> None:
        """Always ready: listening and dialling happen beside it."""

    @property
    def ready(self) -> bool:
        """As above."""
        return True

    def waitReady(self) -> None:
        """As above."""

    def addNode(self, _node: Node) -> None:
        """Membership is fixed."""

    def dropNode(self, _node: Node) -> None:
        """Membership is fixed."""

    def destroy(self) -> None:
        """Links are closed by their owner."""

    def send(self, node: Node, message: Message) -> bool:
        """Send, or hold an acknowledgement until it is true."""
        kind = message["type"]
        if kind == "append_entries":
            self._seq += 1
            message["seq"] = self._seq
        elif kind == "next_node_idx":
            message["term"] = self._core.raftCurrentTerm  # R1
            message["seq"] = self._answering_seq
            if message["success"]:
                if self._verified >= 0:
                    message["next_node_idx"] = min(message["next_node_idx"], self._verified + 1)  # R3
                return self._send_ack(node, message)
        return self._post(str(node.id), encode_message(message))

    # What the links report -------------------------------------------------------------------------------------
    def connected(self, peer: str) -> None:
        """A link to *peer* is up. What was in flight on the old one is gone: send again from what it has acknowledged."""
        node = self._nodes[peer]
        core = self._core
        if core.is_leader:
            known = core.match_index(peer)
            if known:
                core._SyncObj__raftNextIndex[node] = known + 1
            self._void_flight(peer, core._SyncObj__raftNextIndex[node] - 1)
        self._onNodeConnected(node)
        self._kick()

    def lost(self, peer: str) -> None:
        """The link to *peer* is gone."""
        self._held.pop(peer, None)
        self._pre_votes.pop(peer, None)
        self._onNodeDisconnected(self._nodes[peer])
        if self._core.leader_name == peer:
            self._leader_heard_at = -1e9
            self._core.stand_soon()
        self._kick()

    def buffered_bytes(self, node: Node) -> int:
        """Bytes waiting in this process for *node*."""
        return self._buffered(str(node.id))

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """One message of *peer*; LinkBodyMalformed when it is none (the caller then closes the link)."""
        message = decode_message(body)
        node, core = self._nodes[peer], self._core
        match message["type"]:
            case "append_entries":
                self._receive_append(node, message)
            case "next_node_idx":
                self._receive_reply(node, message)
            case "pre_vote":
                self._answer_pre_vote(peer, message)
            case "pre_vote_granted":
                if message["term"] == core.raftCurrentTerm + 1:
                    self._pre_votes[peer] = monotonic()
            case "pre_vote_refused":
                self._learn_term(message["term"])
            case "response_vote":
                if self._votes.is_new(message["term"], peer):  # R5
                    self._onMessageReceived(node, message)
            case "request_vote":
                self._onMessageReceived(node, message)
        self._kick()

    def synced(self) -> None:
        """The local disk has caught up: acknowledgements that are true now may leave."""
        durable, term = self._core.journal.durable_index, self._core.raftCurrentTerm
        for peer, message in list(self._held.items()):
            if message["term"] != term:
                del self._held[peer]
            elif message["next_node_idx"] - 1 <= durable:
                del self._held[peer]
                self._post(peer, encode_message(message))

    # Acknowledgements ------------------------------------------------------------------------------------------
    def _send_ack(self, node: Node, message: Message) -> bool:
        """Durable here: a follower's ack leaves only when its own disk has the entries; a heartbeat is answered at once."""
        peer = str(node.id)
        durable = self._core.journal.durable_index
        if message["next_node_idx"] - 1 <= durable:
            return self._post(peer, encode_message(message))
        held = self._held.get(peer)
        if held is None or held["term"] != message["term"] or held["next_node_idx"] <= message["next_node_idx"]:
            self._held[peer] = message
        alive = {**message, "next_node_idx": durable + 1}
        return self._post(peer, encode_message(alive)) if self._is_heartbeat else True

    def _receive_append(self, node: Node, message: Message) -> None:
        core, stored = self._core, self._core.journal.log
        if message["term"] < core.raftCurrentTerm:
            return
        self._leader_heard_at = monotonic()
        plan = plan_append(
            message,
            first=stored.first_index,
            last=stored.end_index,
            commit=core.raftCommitIndex,
            term_at=stored.term_at,
        )
        if plan is None:
            log.error("refused an append that contradicts what is committed", extra={"peer": str(node.id)})
            return
        if plan.cut_from:
            core.journal.deleteEntriesFrom(plan.cut_from - stored.first_index)  # R4
        self._answering_seq, self._verified = message["seq"], plan.verified
        self._is_heartbeat = not message["entries"]
        try:
            self._onMessageReceived(node, plan.message)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            # No space for it here: nothing is acknowledged, and the leader asks again with its next heartbeat.
            log.warning("no space for an entry", extra={"peer": str(node.id)})
        except EntryRefused as error:
            # Damaged on the way, or not the leader's log: ask for it again from what is good.
            log.warning("refused an entry", extra={"peer": str(node.id), "reason": str(error)})
            self.send(
                node, {"type": "next_node_idx", "next_node_idx": stored.end_index + 1, "reset": True, "success": False}
            )
        finally:
            self._verified, self._is_heartbeat = -1, False

    def _receive_reply(self, node: Node, message: Message) -> None:
        core, peer = self._core, str(node.id)
        if message["term"] != core.raftCurrentTerm or not core.is_leader:  # R1
            return
        if message["next_node_idx"] > core.journal.log.end_index + 1:
            raise LinkBodyMalformed(reason=f"{peer} acknowledges entry {message['next_node_idx'] - 1} that nobody sent")
        following = core._SyncObj__raftNextIndex
        before = following[node]
        if message["reset"] and message["seq"] < self._void_before.get(peer, 0):
            message["reset"] = False  # an answer to what was in flight when the last restart was granted
        self._onMessageReceived(node, message)
        if message["reset"]:
            self._void_flight(peer, following[node] - 1)
        elif following[node] < before:
            following[node] = before  # an ack must not re-send what is in flight (stock: syncobj.py:1080-1083)

    def _void_flight(self, peer: str, base: int) -> None:
        self._void_before[peer] = self._seq + 1
        self.flight_base[peer] = base

    # R6: pre-vote ----------------------------------------------------------------------------------------------
    def has_pre_votes(self) -> bool:
        """Whether a majority would elect this node now; asks for it when not. Called while the election time is over."""
        now, core = monotonic(), self._core
        fresh = sum(1 for at in self._pre_votes.values() if now - at < PRE_VOTE_WORTH_S)
        if (fresh + 1) * 2 > len(self._nodes) + 1:
            self._pre_votes.clear()
            return True
        if now >= self._pre_vote_at:
            self._pre_vote_at = now + PRE_VOTE_PERIOD_S
            stored = core.journal.log
            question: dict[str, Any] = {
                "type": "pre_vote",
                "term": core.raftCurrentTerm + 1,
                "last_log_index": stored.end_index,
                "last_log_term": stored.end_term,
            }
            for peer in self._nodes:
                self._post(peer, encode_message(question))
        return False

    def _answer_pre_vote(self, peer: str, message: Message) -> None:
        """Grant unless a leader was heard lately or our log is newer. Changes no state, so lying costs nothing."""
        core, stored = self._core, self._core.journal.log
        has_leader = core.is_leader or monotonic() - self._leader_heard_at < self._stickiness_s
        is_new = may_lead(
            own_term=stored.end_term,
            own_index=stored.end_index,
            last_term=message["last_log_term"],
            last_index=message["last_log_index"],
        )
        if is_new and not has_leader and message["term"] > core.raftCurrentTerm:
            self._post(peer, encode_message({"type": "pre_vote_granted", "term": message["term"]}))
        elif message["term"] <= core.raftCurrentTerm:
            # The asker is in an old term: without learning ours it could never stand, though its log may be the newest.
            self._post(peer, encode_message({"type": "pre_vote_refused", "term": core.raftCurrentTerm}))

    def _learn_term(self, term: int) -> None:
        core = self._core
        if term > core.raftCurrentTerm and not core.is_leader:
            core._SyncObj__setCurrentTerm(term, None)

    @property
    def _core(self) -> "Consensus":
        assert self._consensus is not None
        return self._consensus
