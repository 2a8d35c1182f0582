"""A broker peer for tests of the proxy: a real LinkServer that speaks tern_wire.link.requests over a small log in memory.

What it does is right by default; `script` bends the next replies: errors, silence, a broken link. It counts what it was asked.
"""

import asyncio
import struct
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tern_remoting import Frame, Link, LinkServer
from tern_wire.errors import GroupNotFound, NotLeader, TernError, TopicNotFound
from tern_wire.limits import FRAME_SIZE_MAX_BYTES
from tern_wire.link.heads import head_parts
from tern_wire.link.requests import ERROR, RequestCode, body_parts, error_parts, read_body
from tern_wire.link.rows import (
    ACK,
    EXTEND,
    FLAG_HALF,
    FLAG_KEYED,
    KEY_REUSED,
    LEASE_OVER,
    NACK,
    NO_QUEUE,
    NO_TOPIC,
    PREPARED_BEFORE,
    RELEASE,
    REPLAYED,
    SCHEDULED,
    SCHEDULED_BEFORE,
    SEND_ROWS,
    SENT,
    SETTLE_ROWS,
    SETTLED,
)
from tern_wire.link.status import Leadership
from tern_wire.records.read import decode_record
from tests.support.scripted.admin import ScriptedAdmin
from tests.support.scripted.dead_letters import ScriptedDeadLetters
from tests.support.scripted.members import ScriptedMembers
from tests.support.scripted.principals import ScriptedPrincipals
from tests.support.scripted.queries import ScriptedQueries
from tests.support.scripted.reads import ScriptedReads
from tests.support.scripted.replies import ScriptedReplies
from tests.support.scripted.scheduled import ScriptedScheduled
from tests.support.scripted.transactions import ScriptedTransactions

_VERDICT = struct.Struct("<IIq")
# What a scripted reply is: an error, None for silence, or a function that does what it likes with the link.
Bend = TernError | None | Callable[[Link, Frame], None]


class ScriptedBroker:
    """One node of one broker group. *peers* of a group share `state`; `leads` says who answers."""

    def __init__(self, key: bytes, *, broker_group: str = "broker-a", node: str = "broker-a-0") -> None:
        self.broker_group, self.node = broker_group, node
        self.leads, self.leader_hint, self.term = True, "", 1
        self.topics: dict[str, tuple[int, list[list[bytes]]]] = {}
        self.groups: dict[str, int] = {}
        self.min_offsets: dict[tuple[str, int], int] = {}
        self.reads = ScriptedReads(broker_group, self.topics, self.min_offsets)
        self.asked: Counter[RequestCode] = Counter()
        self.flights: list[int] = []
        self.heads: list[tuple[RequestCode, dict[str, Any]]] = []
        self.released: list[int] = []
        # (offset, delay in ms or -1), and (offset, reason).
        self.nacked: list[tuple[int, int]] = []
        self.rejected: list[tuple[int, str]] = []
        self.committed: dict[tuple[str, str], dict[str, int]] = {}
        self.admin = ScriptedAdmin(self.topics, self.groups, self.committed)
        self.dead_letters = ScriptedDeadLetters(self.groups)
        self.scheduled = ScriptedScheduled(self.topics)
        self.transactions = ScriptedTransactions(self.topics)
        self._queries = ScriptedQueries(self.topics, self.groups, self.committed)
        self.held: deque[Callable[[], None]] = deque()
        self.is_holding = False
        # As SIGSTOP does: the connection stays, nothing is answered.
        self.is_paused = False
        self._frozen: list[tuple[Link, Frame]] = []
        # What its STATUS says beside role and term.
        self.facts: dict[str, Any] = {}
        # Whether it tells proxies of its leadership when they connect.
        self.greets = True
        self.members = ScriptedMembers(self.topics, self.groups)
        self.replies, self.principals = ScriptedReplies(self.topics), ScriptedPrincipals()
        self._bends: dict[RequestCode, deque[Bend]] = {}
        self._keys: dict[bytes, tuple[int, int, int, int]] = {}
        self._cursors: dict[tuple[str, str, int], int] = {}
        self._returned: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        # lease -> (topic, group, queue), and what of it is unsettled, with the attempt.
        self._leases: dict[int, tuple[str, str, int, set[int], int]] = {}
        self._settled: set[tuple[int, int, int, int]] = set()
        self._next_lease = 1
        self._notified: list[tuple[Link, int, str, str, asyncio.TimerHandle]] = []
        self.server = LinkServer(
            "127.0.0.1",
            0,
            key=key,
            name=node,
            group_id="",
            on_frame=self._on_frame,
            on_ready=lambda link: self._tell(link) if self.greets else None,
            frame_size_max_bytes=FRAME_SIZE_MAX_BYTES,
        )

    # What tests call --------------------------------------------------------------------------------------------
    def script(self, code: RequestCode, *bends: Bend) -> None:
        """Bend the next replies to *code*, one each."""
        self._bends.setdefault(code, deque()).extend(bends)

    def hold(self) -> None:
        """Keep all SEND, SETTLE and END_TRANSACTIONS requests waiting until `let_go`."""
        self.is_holding = True

    def let_go(self, count: int = 1_000_000) -> None:
        """Answer *count* of what was held."""
        while self.held and count > 0:
            self.held.popleft()()
            count -= 1
        if not self.held:
            self.is_holding = False

    def tell(self) -> None:
        """A LEADERSHIP notice to every proxy, as when its role changes."""
        for link in self.server.links:
            self._tell(link)

    def _tell(self, link: Link) -> None:
        link.post(Leadership.code, head_parts(Leadership(self.node, self.term, self.leads)))

    def lead(self, term: int) -> None:
        """Win the election of *term*, and say so."""
        self.leads, self.term = True, term
        self.tell()

    def wake(self) -> None:
        """Paused no more: everything that came meanwhile is served now."""
        self.is_paused = False
        frozen, self._frozen = self._frozen, []
        for link, frame in frozen:
            self._on_frame(link, frame)

    def create_topic(self, name: str, queues: int) -> int:
        """A topic, as if a proxy had asked for it."""
        if name not in self.topics:
            self.topics[name] = (len(self.topics) + 1, [])
        topic_id, logs = self.topics[name]
        logs.extend([] for _ in range(queues - len(logs)))
        return topic_id

    def records(self, topic: str) -> list[bytes]:
        """All records of a topic, by queue."""
        return [record for log in self.topics[topic][1] for record in log]

    @property
    def notified(self) -> int:
        """NOTIFY requests that wait."""
        return len(self._notified)

    # Requests ---------------------------------------------------------------------------------------------------
    def _on_frame(self, link: Link, frame: Frame) -> None:
        if self.is_paused:
            self._frozen.append((link, frame))
            return
        code = RequestCode(frame.code)
        self.asked[code] += 1
        bends = self._bends.get(code)
        if bends:
            bend = bends.popleft()
            if isinstance(bend, TernError):
                link.reply(frame.opaque, ERROR, error_parts(bend))
            elif bend is not None:
                bend(link, frame)
            return
        if self.is_holding and code in {RequestCode.SEND, RequestCode.SETTLE, RequestCode.END_TRANSACTIONS}:
            self.held.append(lambda: self._answer(link, frame, code))
            return
        self._answer(link, frame, code)

    def _answer(self, link: Link, frame: Frame, code: RequestCode) -> None:
        head, raw = read_body(frame.body)
        self.heads.append((code, head))
        try:
            if code not in {RequestCode.STATUS, RequestCode.PULL_ANYWHERE} and not self.leads:
                raise NotLeader(node=self.node, leader=self.leader_hint)
            if code == RequestCode.NOTIFY:
                self._notify(link, frame.opaque, head)
                return
            if code == RequestCode.AWAIT_REPLY:
                self.replies.wait(link, frame.opaque, head)
                return
            if code == RequestCode.CLAIM_CHECKS:
                self.transactions.claim(link, frame.opaque, head)
                return
            reply, data = self._handlers()[code](head, raw)
        except TernError as error:
            link.reply(frame.opaque, ERROR, error_parts(error))
            return
        link.reply(frame.opaque, 0, body_parts(reply, [data] if data else []))
        self._wake()

    def _handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], tuple[dict[str, Any], bytes]]]:
        return {
            RequestCode.SEND: self._send,
            RequestCode.RECEIVE: self._receive,
            RequestCode.SETTLE: self._settle,
            RequestCode.DEAD_LETTER: self._dead_letter,
            **self.reads.handlers(),
            **self.admin.handlers(),
            RequestCode.STATUS: self._status,
            **self.members.handlers(),
            **self._queries.handlers(),
            **self.scheduled.handlers(),
            **self.transactions.handlers(),
            **self.dead_letters.handlers(),
            **self.principals.handlers(),
        }

    def _send(self, head: dict[str, Any], raw: memoryview) -> tuple[dict[str, Any], bytes]:
        rows = np.frombuffer(raw, SEND_ROWS, head["rows"]).tolist()
        at = head["rows"] * SEND_ROWS.itemsize
        self.flights.append(len(rows))
        verdicts: list[bytes] = []
        replays: list[list[Any]] = []
        for number, row in enumerate(rows):
            size, topic_number, queue, flags, _, crc, _, key, deliver_ms, _ = row
            record = bytes(raw[at : at + size])
            at += size
            decoded = decode_record(record)
            name = head["topics"][topic_number]
            assert (decoded.topic, decoded.queue, decoded.body_crc, decoded.size_bytes) == (name, queue, crc, size)
            if name not in self.topics:
                verdicts.append(_VERDICT.pack(NO_TOPIC, queue, 0))
                continue
            log = self.topics[name][1]
            if queue >= len(log):
                verdicts.append(_VERDICT.pack(NO_QUEUE, queue, 0))
                continue
            if flags & FLAG_HALF:
                status, offset, check_after_ms = self.transactions.prepare(row, head, record)
                if status == PREPARED_BEFORE and flags & FLAG_KEYED:
                    replays.append(self.transactions.replay(number, offset, check_after_ms))
                verdicts.append(_VERDICT.pack(status, queue, offset))
                continue
            known = self._keys.get(bytes(key)) if flags & FLAG_KEYED else None
            if known is not None:
                first_queue, offset, first_crc, born_ms = known
                if offset in self.scheduled.all and first_crc == crc:
                    _, _, first_ms, waiting = self.scheduled.all[offset]
                    replays.append([number, decode_record(waiting).properties["UNIQ_KEY"], born_ms, first_ms])
                    verdicts.append(_VERDICT.pack(SCHEDULED_BEFORE, first_queue, offset))
                    continue
                if first_crc == crc:
                    first = decode_record(log[first_queue][offset])
                    replays.append([number, first.properties["UNIQ_KEY"], born_ms, 0])
                status = REPLAYED if first_crc == crc else KEY_REUSED
                verdicts.append(_VERDICT.pack(status, first_queue, offset))
                continue
            offset = len(log[queue])
            if deliver_ms:
                offset = self.scheduled.add(name, queue, deliver_ms, record)
            else:
                log[queue].append(record[:20] + offset.to_bytes(8, "big") + record[28:])
            if flags & FLAG_KEYED:
                self._keys[bytes(key)] = (queue, offset, crc, decoded.born_ms)
            verdicts.append(_VERDICT.pack(SCHEDULED if deliver_ms else SENT, queue, offset))
        assert at == len(raw)
        facts = {"producer_groups": self.transactions.facts(head.get("producer_groups", []))}
        return {"rows": len(rows), "replays": replays, **facts}, b"".join(verdicts)

    def _available(self, topic: str, group: str) -> int:
        fresh = sum(
            len(log) - self._cursors.get((topic, group, queue), 0) for queue, log in enumerate(self.topics[topic][1])
        )
        return fresh + len(self._returned.get((topic, group), ()))

    def _check(self, head: dict[str, Any]) -> tuple[int, int]:
        if head["topic"] not in self.topics:
            raise TopicNotFound(topic=head["topic"])
        if head["group"] not in self.groups:
            raise GroupNotFound(group=head["group"])
        return self.topics[head["topic"]][0], self.groups[head["group"]]

    def _receive(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        topic_id, group_id = self._check(head)
        topic, group = head["topic"], head["group"]
        left = head["max_messages"]
        runs: list[list[int]] = []
        data = b""
        returned = self._returned.get((topic, group), [])
        while returned and left:
            queue, offset, attempt = returned.pop(0)
            runs.append([queue, self._lease(topic, group, queue, {offset}, attempt), attempt, 1_000_000, 1])
            data += self.topics[topic][1][queue][offset]
            left -= 1
        for queue, log in enumerate(self.topics[topic][1]):
            at = self._cursors.get((topic, group, queue), 0)
            taken = log[at : at + left]
            if taken:
                self._cursors[topic, group, queue] = at + len(taken)
                offsets = set(range(at, at + len(taken)))
                runs.append([queue, self._lease(topic, group, queue, offsets, 1), 1, 1_000_000, len(taken)])
                data += b"".join(taken)
                left -= len(taken)
        return {"topic_id": topic_id, "group_id": group_id, "runs": runs}, data

    def _lease(self, topic: str, group: str, queue: int, offsets: set[int], attempt: int) -> int:
        lease = self._next_lease
        self._next_lease += 1
        self._leases[lease] = (topic, group, queue, offsets, attempt)
        return lease

    def _settle(self, head: dict[str, Any], raw: memoryview) -> tuple[dict[str, Any], bytes]:
        assert len(raw) == head["rows"] * SETTLE_ROWS.itemsize
        statuses = bytearray()
        for group, topic, queue, action, offset, lease, time_ms in np.frombuffer(raw, SETTLE_ROWS).tolist():
            held = self._leases.get(lease)
            if held is None or offset not in held[3]:
                done = action == ACK and (group, topic, queue, offset) in self._settled
                statuses.append(SETTLED if done else LEASE_OVER)
                continue
            statuses.append(SETTLED)
            if action == ACK:
                held[3].discard(offset)
                self._settled.add((group, topic, queue, offset))
            elif action == RELEASE:
                held[3].discard(offset)
                self.released.append(offset)
                self._returned.setdefault((held[0], held[1]), []).append((queue, offset, held[4]))
            elif action == NACK:
                held[3].discard(offset)
                self.nacked.append((offset, time_ms))
                self._returned.setdefault((held[0], held[1]), []).append((queue, offset, held[4] + 1))
            else:
                assert action == EXTEND
        return {}, bytes(statuses)

    def _dead_letter(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        statuses = bytearray()
        for *_, offset, lease, reason in head["rows"]:
            held = self._leases.get(lease)
            is_held = held is not None and offset in held[3]
            statuses.append(SETTLED if is_held else LEASE_OVER)
            if held is not None and is_held:
                held[3].discard(offset)
                self.rejected.append((offset, reason))
        return {}, bytes(statuses)

    def expire(self) -> None:
        """End all leases: what is unsettled comes back with the next attempt."""
        for topic, group, queue, offsets, attempt in self._leases.values():
            for offset in sorted(offsets):
                self._returned.setdefault((topic, group), []).append((queue, offset, attempt + 1))
        self._leases.clear()
        self._wake()

    def _notify(self, link: Link, opaque: int, head: dict[str, Any]) -> None:
        self._check(head)

        def late() -> None:
            self._notified.remove(entry)
            link.reply(opaque, 0, body_parts({"available": 0}))

        timer = asyncio.get_running_loop().call_later(head["wait_ms"] / 1_000, late)
        entry = (link, opaque, head["topic"], head["group"], timer)
        self._notified.append(entry)
        self._wake()

    def _wake(self) -> None:
        self.replies.wake()
        self.transactions.wake()
        for entry in list(self._notified):
            link, opaque, topic, group, timer = entry
            available = self._available(topic, group)
            if available:
                self._notified.remove(entry)
                timer.cancel()
                link.reply(opaque, 0, body_parts({"available": available}))

    def resign(self) -> None:
        """Lead no longer: waiting notifications are refused, as a broker does."""
        self.leads = False
        for link, opaque, _, _, timer in self._notified:
            timer.cancel()
            link.reply(opaque, ERROR, error_parts(NotLeader(node=self.node, leader=self.leader_hint)))
        self._notified.clear()
        self.replies.refuse(NotLeader(node=self.node, leader=self.leader_hint))
        self.transactions.refuse(NotLeader(node=self.node, leader=self.leader_hint))

    def _status(self, head: dict[str, Any], _: memoryview) -> tuple[dict[str, Any], bytes]:
        role = "leader" if self.leads else "follower"
        leader = self.node if self.leads else ""
        return {"node": self.node, "role": role, "term": self.term, "leader": leader, **self.facts}, b""
