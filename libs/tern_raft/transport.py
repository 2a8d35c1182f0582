"""pysyncobj's transport over our link: messages pass the rules, acknowledgements wait for the disk.

Sans-IO: bodies come in by `receive` and leave by the given `post` function; sockets are in
`links.py` or in a simulator. Stock's TCPTransport is never built: it unpickles data of strangers,
on all addresses (X1, tcp_connection.py:291, transport.py:268-273).
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tern_raft.barrier import ReadBarrier
from tern_raft.clocks import PeerClocks
from tern_raft.core import HEARTBEATS, Core, progress
from tern_raft.elections import Elections
from tern_raft.frames import decode_message, encode_message
from tern_raft.membership import Membership, is_hello
from tern_raft.pass_over import Waiting
from tern_raft.rules import Message, VoteCount, plan_append
from tern_store import EntryRefused
from tern_store.files import is_lack
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.requests import Parts

if TYPE_CHECKING:
    from tern_raft.pass_over import PassOver

log = logging.getLogger(__name__)
# A peer further ahead is not correct, and its term would be kept for ever (X3: stock does,
# syncobj.py:920, 956). At an election a second this takes 12 days.
TERM_STEP_MAX = 1 << 20


class PeerTransport(Transport):  # type: ignore[misc]
    """One node's view of its peers.
    Owner: the core loop, which calls `bind` once after Consensus().
    """

    def __init__(
        self,
        me: str,
        others: list[str],
        *,
        membership: Membership,
        clocks: PeerClocks,
        post: Callable[[str, Parts], bool],
        buffered: Callable[[str], int],
        kick: Callable[[], None],
        on_heartbeat: Callable[[], None],
        kick_later: Callable[[float], object],
        on_behind: Callable[[], None],
        on_fatal: Callable[[Exception], None],
        stickiness_s: float,
    ) -> None:
        """*on_heartbeat*: the leader has said nothing new.
        *on_behind*: the leader's log begins behind the end of ours; does not return to
        consensus.
        *on_fatal*: a vote could not be kept, or a message was half processed; ends the process.
        """
        super().__init__(None, Node(me), [Node(other) for other in others])
        self._nodes = {other: Node(other) for other in others}
        self._post, self._buffered, self._kick, self._on_heartbeat = post, buffered, kick, on_heartbeat
        self._on_behind, self._on_fatal = on_behind, on_fatal
        self._consensus: Core | None = None
        self.membership, self.clocks = membership, clocks
        self.barrier = ReadBarrier(len(others) + 1)
        self.elections = Elections(
            me,
            others,
            core=lambda: self._core,
            membership=membership,
            post=self._say,
            kick_later=kick_later,
            stickiness_s=stickiness_s,
        )
        self._votes = VoteCount()
        # Success acks that wait for the local disk; the newest one of each peer is enough.
        self._held: dict[str, Message] = {}
        # Numbers of append messages: a restart request answers one of them, and older ones in
        # flight are void.
        self._seq = 0
        self._void_before: dict[str, int] = {}
        self._answering_seq = 0
        self._verified = -1
        self._is_heartbeat = False
        self.flight_base: dict[str, int] = {}
        # Entries acknowledged by peers that do not count.
        self.learned: dict[str, int] = {}
        # Fill of the peers' disks, and of ours, in thousandths.
        self.disk_permille: dict[str, int] = {}
        self.own_disk_permille = 0
        # Receives a peer's digest of its state: peer, index of the entry, digest.
        self.on_digest: Callable[[str, int, int], None] = lambda peer, index, digest: None
        # Entries that this node and its peers cannot apply; None: not used.
        self.pass_over: PassOver | None = None

    def bind(self, consensus: Core) -> None:
        """Set the consensus that this transport serves."""
        self._consensus = consensus

    # pysyncobj's interface ------------------------------------------------------------------------
    def tryGetReady(self) -> None:
        """Always ready: listening and dialling run elsewhere."""

    @property
    def ready(self) -> bool:
        """Always True."""
        return True

    def waitReady(self) -> None:
        """Do not wait."""

    def addNode(self, _node: Node) -> None:
        """Membership is fixed."""

    def dropNode(self, _node: Node) -> None:
        """Membership is fixed."""

    def destroy(self) -> None:
        """The owner closes the links."""

    def send(self, node: Node, message: Message) -> bool:
        """Send, or hold an acknowledgement until it is true."""
        kind = message["type"]
        if kind == "request_vote":
            message["told"] = self.elections.was_told
        elif kind == "next_node_idx":
            message["term"] = self._core.raftCurrentTerm  # R1
            message["seq"] = self._answering_seq
            message["disk"] = self.own_disk_permille
            if message["success"]:
                if self._verified >= 0:
                    message["next_node_idx"] = min(message["next_node_idx"], self._verified + 1)  # R3
                return self._send_ack(node, message)
        return self._say(str(node.id), message)

    def encode_append(self, message: Message) -> Parts:
        """Number an append, and encode it for one peer or more: `post` sends it."""
        self._seq += 1
        message["seq"] = self._seq
        if group_ms := self.clocks.group_ms():
            message["group_ms"] = group_ms
        return encode_message(message)

    def post(self, node: Node, parts: Parts) -> bool:
        """Send what `encode_append` returned; False if there is no link."""
        return self._post(str(node.id), parts)

    @property
    def last_number(self) -> int:
        """The number of the last append message."""
        return self._seq

    # Events of the links --------------------------------------------------------------------------
    def connected(self, peer: str) -> None:
        """Greet *peer* on its new link; its own greeting tells from where to send again.
        Messages in flight on the old link are lost. Stock counts messages into a broken link as
        sent (L4, syncobj.py:1273, 1306).
        """
        self._greet(peer)
        if self._core.is_leader:
            self.barrier.join(peer, self._seq + 1)
        self._onNodeConnected(self._nodes[peer])
        self._kick()

    def lost(self, peer: str) -> None:
        """Handle the loss of the link to *peer*."""
        self._held.pop(peer, None)
        self.membership.lost(peer)
        if self.pass_over is not None:
            self.pass_over.lost(peer)
        self.clocks.lost(peer)
        self._onNodeDisconnected(self._nodes[peer])
        self.elections.peer_lost(peer, was_leader=self._core.leader_name == peer)
        self._kick()

    def greet_all(self) -> None:
        """Greet everyone again: this node's standing has changed."""
        for peer in self._nodes:
            self._greet(peer)

    def tell_digest(self, peer: str, index: int, digest: int) -> None:
        """Send *peer* this node's digest at entry *index*."""
        self._say(peer, {"type": "digest", "index": index, "digest": digest})

    def buffered_bytes(self, node: Node) -> int:
        """Bytes for *node* waiting in this process."""
        return self._buffered(str(node.id))

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """Handle one message of *peer*; LinkBodyMalformed if it is none (the caller then closes the
        link).
        """
        message = decode_message(body)
        before = progress(self._core, self._nodes[peer])
        try:
            self._receive(peer, message)
        except LinkBodyMalformed:
            raise
        except Exception as error:
            # A failed sync or an entry half stored: after closing only the link, the node would
            # continue as if nothing had happened. Stock logs it and ticks on (L1, L13,
            # syncobj.py:594-597).
            self._on_fatal(error)
            raise
        is_news = message["type"] not in HEARTBEATS or progress(self._core, self._nodes[peer]) != before
        if is_news or self.barrier.is_busy:
            self._kick()
        elif message["type"] == "append_entries":
            self._on_heartbeat()

    def _receive(self, peer: str, message: Message) -> None:
        kind, node, core = message["type"], self._nodes[peer], self._core
        if message.get("term", 0) > core.raftCurrentTerm + TERM_STEP_MAX:
            raise LinkBodyMalformed(reason=f"{peer} is in term {message['term']}, this node in {core.raftCurrentTerm}")
        if kind == "hello":
            self._receive_hello(peer, message)
        elif not self.membership.has_heard(peer):
            raise LinkBodyMalformed(reason=f"{peer} sends a message before it has greeted")
        elif kind == "append_entries":
            self._receive_append(node, message)
        elif kind == "next_node_idx":
            self._receive_reply(node, message)
        elif kind == "pre_vote":
            self.elections.answer(peer, message)
        elif kind == "pre_vote_granted":
            self.elections.granted(peer, message)
        elif kind == "pre_vote_refused":
            core.learn_term(message["term"])
        elif kind == "request_vote":
            end = (message["last_log_term"], message["last_log_index"])
            # R6 again: a node that hears a leader helps to depose it only at that leader's request.
            # In stock any newer term deposes (L6, syncobj.py:918-923).
            is_wanted = message["told"] or not self.elections.has_leader
            if is_wanted and self.membership.may_vote(message["term"], end):
                self._onMessageReceived(node, message)
        elif kind == "response_vote":
            is_wanted = message["term"] == core.raftCurrentTerm and self.membership.counts(peer)
            if is_wanted and self._votes.is_new(message["term"], peer):  # R5
                self._onMessageReceived(node, message)
        elif kind == "timeout_now":
            if message["term"] == core.raftCurrentTerm and core.leader_name == peer:
                # Stock obeys any node of a term that is not older (syncobj.py:911-916).
                self.elections.told_to_stand()
                self._onMessageReceived(node, message)
        elif kind == "digest":
            self.on_digest(peer, message["index"], message["digest"])
        elif message["term"] >= core.raftCurrentTerm and message["first"] > core.journal.log.end_index + 1:
            # A leader that this node may never have received an append from: `behind` is all that
            # it can send to a node with less than its log.
            self._on_behind()

    def synced(self) -> None:
        """Send the held acknowledgements that the local disk has made true."""
        durable, term = self._core.journal.durable_index, self._core.raftCurrentTerm
        for peer, message in list(self._held.items()):
            if message["term"] != term:
                del self._held[peer]
            elif message["next_node_idx"] - 1 <= durable:
                del self._held[peer]
                self._say(peer, message)

    # Acknowledgements -----------------------------------------------------------------------------
    def _send_ack(self, node: Node, message: Message) -> bool:
        """Durable here: a follower's ack leaves only when its own disk has the entries.
        A heartbeat is answered at once. Stock answers before anything is on a disk (S4,
        syncobj.py:1019).
        """
        peer = str(node.id)
        durable = self._core.journal.durable_index
        if message["next_node_idx"] - 1 <= durable:
            return self._say(peer, message)
        held = self._held.get(peer)
        if held is None or held["term"] != message["term"] or held["next_node_idx"] <= message["next_node_idx"]:
            self._held[peer] = message
        alive = {**message, "next_node_idx": durable + 1}
        return self._say(peer, alive) if self._is_heartbeat else True

    def _receive_hello(self, peer: str, message: Message) -> None:
        if not is_hello(message):
            raise LinkBodyMalformed(reason=f"a greeting of {peer} with invalid values")
        if not self.membership.is_news(peer, message):
            return
        stored = self._core.journal.log
        if self.membership.heard(peer, message, (stored.end_term, stored.end_index)):
            self.greet_all()
        # It may lack entries that it had on another link or in another directory; its next ack
        # tells.
        self.learned.pop(peer, None)
        self._void_flight(peer, self._core.begin_anew(peer, message["last_log_index"]))

    def _greet(self, peer: str) -> None:
        stored = self._core.journal.log
        self._say(peer, self.membership.hello((stored.end_term, stored.end_index)))

    def _say(self, peer: str, message: Message) -> bool:
        if message["type"] == "next_node_idx":
            # Added now: an ack may have waited for the disk.
            message["wall_ms"] = self.clocks.own_ms()
            if self.pass_over is not None and (waiting := self.pass_over.waiting) is not None:
                waits = {"waits_index": waiting.index, "waits_crc": waiting.crc, "waits_asked": waiting.asked_at}
                message = message | waits
        return self._post(peer, encode_message(message))

    def _receive_append(self, node: Node, message: Message) -> None:
        core, stored = self._core, self._core.journal.log
        if message["term"] < core.raftCurrentTerm:
            # A node that may not stand could never follow again once its term was ahead, since no
            # other node would learn that term (stock sends nothing, too: syncobj.py:942-945).
            self._say(str(node.id), {"type": "pre_vote_refused", "term": core.raftCurrentTerm})
            return
        if message["term"] == core.raftCurrentTerm and (core.is_leader or core.leader_name not in {None, str(node.id)}):
            # Stock follows the latest sender (syncobj.py:953-958).
            raise LinkBodyMalformed(reason=f"{node.id} leads in term {message['term']}, which has another leader")
        self.elections.leader_heard()
        if "group_ms" in message:
            self.clocks.on_group_ms(message.pop("group_ms"))
        plan = plan_append(
            message,
            first=stored.first_index,
            last=stored.end_index,
            commit=core.raftCommitIndex,
            term_at=stored.term_at,
        )
        if plan is None:
            log.error("refused an append that conflicts with committed entries", extra={"peer": str(node.id)})
            return
        self._answering_seq, self._verified = message["seq"], plan.verified
        self._is_heartbeat = not message["entries"]
        try:
            # Before the message has any effect: stock has a new leader, and a later deadline,
            # before it finds that its disk refuses the term.
            core.learn_term(message["term"])
            if plan.cut_from:
                core.journal.deleteEntriesFrom(plan.cut_from - stored.first_index)  # R4
            self._onMessageReceived(node, plan.message)
        except OSError as error:
            if not is_lack(error):
                raise
            # No space for it (stock dies of SIGBUS: L10, journal.py:117-126), or no descriptor:
            # nothing is acknowledged, and the leader repeats it with its next heartbeat.
            log.warning("no place for an entry", extra={"peer": str(node.id), "error": str(error)})
        except EntryRefused as error:
            # Damaged on the way (stock has no checksum: S8, journal.py:197-203), or not the
            # leader's log: request entries again behind the good ones.
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
        self.disk_permille[peer] = message["disk"]
        if "wall_ms" in message:
            self.clocks.heard(peer, message["wall_ms"])
        if self.pass_over is not None:
            acked = message["next_node_idx"] - 1 if message["success"] else 0
            self.pass_over.heard(peer, _waiting(message), acked)
        if self.membership.counts(peer):
            self.barrier.answered(peer, message["seq"])
        elif message["success"]:
            # Not a member (yet): its entries do not count, but readmission needs to know them.
            self.learned[peer] = max(self.learned.get(peer, 0), message["next_node_idx"] - 1)
            message["success"] = False
        following, heard_s = core._SyncObj__raftNextIndex, core._SyncObj__lastResponseTime
        before, before_s = following[node], heard_s[node]
        if message["reset"] and message["seq"] < self._void_before.get(peer, 0):
            # Stock grants every one of them (L2, syncobj.py:1077-1078).
            message["reset"] = False  # an answer to messages in flight when the last restart was granted
        self._onMessageReceived(node, message)
        if not self.membership.counts(peer):
            heard_s[node] = before_s  # peers that do not count keep no leader alive (stock: syncobj.py:1083, 679-686)
        if message["reset"]:
            self._void_flight(peer, following[node] - 1)
        elif following[node] < before:
            following[node] = before  # an ack must not re-send entries in flight (stock: syncobj.py:1080-1083)

    def _void_flight(self, peer: str, base: int) -> None:
        self._void_before[peer] = self._seq + 1
        self.flight_base[peer] = base

    @property
    def _core(self) -> Core:
        assert self._consensus is not None
        return self._consensus


def _waiting(message: Message) -> Waiting | None:
    if "waits_index" not in message:
        return None
    return Waiting(message["waits_index"], message.get("waits_crc", 0), message.get("waits_asked", 0))
