"""Link requests of proxies: decode, propose or read, reply. Runs in the core loop; nothing here waits.

Every request gets exactly one reply, unless its link is gone by then.
"""

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core.machine import Applied
from tern_broker.core.picking import Pick, ReceiveRequest
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.proposer import Proposal
from tern_broker.sends import check_send
from tern_broker.status import engine_status
from tern_broker.waiters import Waiters
from tern_remoting import Frame, Link
from tern_store import DerivedDamage, LogRot, StoreError
from tern_wire.codec import encode_msgpack
from tern_wire.commands import CommandKind
from tern_wire.errors import (
    DiskFull,
    GroupNotFound,
    LinkBodyMalformed,
    NotLeader,
    OffsetExpired,
    OutcomeUnknown,
    QueueNotFound,
    StorageDamaged,
    TernError,
    TopicNotFound,
)
from tern_wire.limits import (
    INVISIBLE_MAX_MS,
    PULL_MESSAGES_MAX,
    RECEIVE_MESSAGES_MAX,
    RECEIVE_SIZE_MAX_BYTES,
    SETTLE_ENTRIES_MAX,
    WAIT_MAX_MS,
)
from tern_wire.names import check_group, check_topic
from tern_wire.record import MESSAGE_ID, host_bytes
from tern_wire.requests import ERROR, Parts, RequestCode, body_parts, error_parts, read_body
from tern_wire.rows import REPLAYED, SETTLE_ROWS

log = logging.getLogger(__name__)
# Answered from the applied state, without an entry.
CURRENT_READS = frozenset({RequestCode.PULL, RequestCode.OFFSETS, RequestCode.GROUP_OFFSETS})
Handler = Callable[[Link, int, dict[str, Any], memoryview], None]


class LinkDoor:
    """Owner: the core loop."""

    def __init__(self, config: BrokerConfig, engine: Engine, *, rng: Random, monotonic: Callable[[], float]) -> None:
        self._config, self._engine, self._rng, self._monotonic = config, engine, rng, monotonic
        self._host = host_bytes(config.listen, config.link_port)
        self.waiters = Waiters(lambda: engine.state)
        self.disk_full = False
        self._turn = rng.randrange(1 << 16)
        engine.on_applied.append(self._applied)
        engine.on_clock.append(self.sweep)
        self._handlers: dict[int, Handler] = {
            RequestCode.SEND: self._send,
            RequestCode.RECEIVE: self._receive,
            RequestCode.NOTIFY: self._notify,
            RequestCode.SETTLE: self._settle,
            RequestCode.PULL: self._pull,
            RequestCode.OFFSETS: self._offsets,
            RequestCode.CREATE_TOPIC: self._create_topic,
            RequestCode.CREATE_GROUP: self._create_group,
            RequestCode.COMMIT_OFFSETS: self._commit_offsets,
            RequestCode.GROUP_OFFSETS: self._group_offsets,
            RequestCode.STATUS: self._status,
        }

    def on_frame(self, link: Link, frame: Frame) -> None:
        """One request of a proxy."""

        def ready(is_current: bool) -> None:
            self._handle(link, frame, is_leader=is_current)

        if frame.code in CURRENT_READS and self._engine.raft.is_serving:
            # A leader that was deposed and does not know it yet must not answer from its old state.
            self._engine.raft.when_current(ready)
        else:
            self._handle(link, frame, is_leader=self._engine.raft.is_serving)

    def _handle(self, link: Link, frame: Frame, *, is_leader: bool) -> None:
        handler = self._handlers.get(frame.code)
        try:
            if handler is None:
                raise LinkBodyMalformed(reason=f"request {frame.code} is not known to this release")
            head, raw = read_body(frame.body)
            if frame.code != RequestCode.STATUS and not is_leader:
                raise self._not_leader()
            handler(link, frame.opaque, head, raw)
        except TernError as error:
            link.reply(frame.opaque, ERROR, error_parts(error))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            malformed = LinkBodyMalformed(reason=f"request {frame.code}: {type(error).__name__} {error}")
            link.reply(frame.opaque, ERROR, error_parts(malformed))
        except (OSError, StoreError) as error:
            self._unreadable(link, frame.opaque, error)

    def _unreadable(self, link: Link, opaque: int, error: Exception, answer: TernError | None = None) -> None:
        """A record that should be there cannot be read: this request fails, loudly. Damage ends the node, anything else does not."""
        log.error("a read failed", exc_info=error)
        is_damage = isinstance(error, LogRot | DerivedDamage)
        damaged = StorageDamaged(node=self._config.node, broker_group=self._config.broker_group)
        link.reply(opaque, ERROR, error_parts(answer or (damaged if is_damage else TernError())))
        if is_damage:
            self._engine.fail_soon(error)

    def sweep(self) -> None:
        """Every few ms: deadlines of parked notifications, and none of them at a broker that does not lead."""
        if len(self.waiters):
            if self._engine.raft.is_serving:
                self.waiters.sweep(self._monotonic())
            else:
                self.waiters.refuse_all(self._not_leader())

    def _applied(self, applied: Applied) -> None:
        self.waiters.applied(applied)

    # Sends -----------------------------------------------------------------------------------------------------
    def _send(self, link: Link, opaque: int, head: dict[str, Any], raw: memoryview) -> None:
        if self.disk_full:
            raise DiskFull(broker_group=self._config.broker_group)
        send = check_send(head, raw, self._engine.state, self._rng)

        def done(verdicts: Any, _picks: list[Pick]) -> None:
            if isinstance(verdicts, TernError):
                link.reply(opaque, ERROR, error_parts(verdicts))
                return
            repeated = np.flatnonzero(verdicts["status"] == REPLAYED).tolist()
            try:
                replays = [self._replay(send.rows, verdicts, row) for row in repeated]
            except (OSError, StoreError) as error:
                # Everything is stored, but what was stored before under a key cannot be said.
                self._unreadable(link, opaque, error, OutcomeUnknown(broker_group=self._config.broker_group))
                return
            link.reply(opaque, 0, body_parts({"rows": len(verdicts), "replays": replays}, [verdicts.tobytes()]))

        self._engine.proposer.submit(
            Proposal(CommandKind.SEND, send.size_bytes, done, build=lambda now_ms: send.payload(now_ms, self._host))
        )

    def _replay(self, rows: Any, verdicts: Any, row: int) -> list[Any]:
        """The first receipt of a repeated send, read from the log."""
        topic = self._engine.state.names.topics_by_id[int(rows["topic"][row])]
        offset = int(verdicts["offset"][row])
        try:
            found = self._engine.reader.pull_records(topic, int(verdicts["queue"][row]), offset, 1)
        except OffsetExpired:
            found = []  # retention has dropped it; that it was stored is still known
        return [row, found[0].properties.get(MESSAGE_ID, ""), found[0].born_ms] if found else [row, "", 0]

    # Receives and settles --------------------------------------------------------------------------------------
    def _receive(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic, group = self._topic(head), self._group(head)
        self._turn += 1
        request = ReceiveRequest(
            group=group,
            topic=topic,
            messages_max=_bounded(head["max_messages"], 1, RECEIVE_MESSAGES_MAX),
            size_max_bytes=_bounded(head["max_bytes"], 1, RECEIVE_SIZE_MAX_BYTES),
            invisible_ms=_bounded(head["invisible_ms"] or group.invisible_ms, 1, INVISIBLE_MAX_MS),
            first_queue=self._turn % topic.queues,
        )

        def done(verdicts: Any, picks: list[Pick]) -> None:
            if isinstance(verdicts, TernError):
                link.reply(opaque, ERROR, error_parts(verdicts))
                return
            try:
                link.reply(opaque, 0, self._leased(topic, group, verdicts, picks))
            except (OSError, StoreError) as error:
                self._unreadable(link, opaque, error)

        self._engine.proposer.submit(Proposal(CommandKind.LEASE, 64, done, receive=request))

    def _leased(self, topic: Topic, group: Group, verdicts: Any, picks: list[Pick]) -> Parts:
        runs, records = [], []
        for pick, (lease, deadline_ms, attempt) in zip(
            picks, verdicts.tolist() if verdicts is not None else (), strict=False
        ):
            if lease:
                queue = pick.row[2]
                runs.append([queue, lease, attempt, deadline_ms, len(pick.offsets)])
                records.append(self._engine.reader.read_messages(topic, queue, pick.offsets, pick.entries).data)
        head = {"topic_id": topic.topic_id, "group_id": group.group_id, "runs": runs}
        return body_parts(head, records)

    def _notify(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic, group = self._topic(head), self._group(head)
        deadline_s = self._monotonic() + _bounded(head["wait_ms"], 0, WAIT_MAX_MS) / 1000

        def wake(answer: int | TernError) -> None:
            if isinstance(answer, TernError):
                link.reply(opaque, ERROR, error_parts(answer))
            else:
                link.reply(opaque, 0, body_parts({"available": answer}))

        self.waiters.park(group.group_id, topic.topic_id, deadline_s, wake)

    def _settle(self, link: Link, opaque: int, head: dict[str, Any], raw: memoryview) -> None:
        if not raw or len(raw) != head["rows"] * SETTLE_ROWS.itemsize or head["rows"] > 64 * SETTLE_ENTRIES_MAX:
            raise LinkBodyMalformed(reason=f"SETTLE of {head['rows']} rows in {len(raw)} bytes")
        rows = bytes(raw)

        def done(verdicts: Any, _picks: list[Pick]) -> None:
            if isinstance(verdicts, TernError):
                link.reply(opaque, ERROR, error_parts(verdicts))
            else:
                link.reply(opaque, 0, body_parts({}, [verdicts]))

        self._engine.proposer.submit(Proposal(CommandKind.SETTLE, len(rows), done, build=lambda _now: [rows]))

    # Reads -----------------------------------------------------------------------------------------------------
    def _pull(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic = self._topic(head)
        queue = self._queue(topic, head["queue"])
        end = head["end_offset"] if head["end_offset"] >= 0 else topic.ends[queue]
        offset = head["offset"]
        found = self._engine.reader.pull(
            *(topic, queue, offset, end),
            _bounded(head["max_messages"], 1, PULL_MESSAGES_MAX),
            _bounded(head["max_bytes"], 1, RECEIVE_SIZE_MAX_BYTES),
        )
        reply = {
            "next_offset": offset + len(found.offsets),
            "min_offset": topic.mins[queue],
            "max_offset": topic.ends[queue],
        }
        link.reply(opaque, 0, body_parts(reply, [found.data]))

    def _offsets(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic = self._topic(head)
        queues = [[queue, topic.mins[queue], end] for queue, end in enumerate(topic.ends)]
        link.reply(opaque, 0, body_parts({"queues": queues}))

    def _group_offsets(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        topic, group = self._topic(head), self._group(head)
        row = self._engine.state.deliveries.get((group.group_id, topic.topic_id), [])
        offsets = {str(queue): delivery.committed() for queue, delivery in enumerate(row) if delivery is not None}
        link.reply(opaque, 0, body_parts({"offsets": offsets}))

    def _status(self, link: Link, opaque: int, _head: dict[str, Any], _raw: memoryview) -> None:
        link.reply(opaque, 0, body_parts(engine_status(self._engine, self._config)))

    # Topics, groups, offsets -----------------------------------------------------------------------------------
    def _create_topic(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        request = {"topic": check_topic(head["topic"]), "queues": int(head["queues"])}
        self._propose_map(link, opaque, CommandKind.CREATE_TOPIC, request)

    def _create_group(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        request = {
            "group": check_group(head["group"]),
            "invisible_ms": _bounded(head["invisible_ms"], 1, INVISIBLE_MAX_MS),
            "start": "latest" if head["start"] == "latest" else "earliest",
        }
        self._propose_map(link, opaque, CommandKind.CREATE_GROUP, request)

    def _commit_offsets(self, link: Link, opaque: int, head: dict[str, Any], _raw: memoryview) -> None:
        request = {
            "group": str(head["group"]),
            "topic": str(head["topic"]),
            "offsets": {str(int(queue)): int(offset) for queue, offset in head["offsets"].items()},
            "expected": {str(int(queue)): int(offset) for queue, offset in head["expected"].items()},
        }
        self._propose_map(link, opaque, CommandKind.COMMIT_OFFSETS, request)

    def _propose_map(self, link: Link, opaque: int, kind: CommandKind, request: dict[str, Any]) -> None:
        payload = encode_msgpack(request)

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                link.reply(opaque, ERROR, error_parts(verdict))
            else:
                link.reply(opaque, 0, body_parts(verdict))

        self._engine.proposer.submit(Proposal(kind, len(payload), done, build=lambda _now: [payload]))

    def _topic(self, head: dict[str, Any]) -> Topic:
        topic = self._engine.state.names.topics.get(head["topic"])
        if topic is None:
            raise TopicNotFound(topic=str(head["topic"])[:160])
        return topic

    def _group(self, head: dict[str, Any]) -> Group:
        group = self._engine.state.names.groups.get(head["group"])
        if group is None:
            raise GroupNotFound(group=str(head["group"])[:160])
        return group

    def _queue(self, topic: Topic, queue: Any) -> int:
        if not isinstance(queue, int) or not 0 <= queue < topic.queues:
            raise QueueNotFound(queue=f"{self._config.broker_group}:{queue}", topic=topic.name)
        return queue

    def _not_leader(self) -> NotLeader:
        return NotLeader(
            node=self._config.node, leader=self._engine.raft.leader or "", broker_group=self._config.broker_group
        )


def _bounded(value: Any, low: int, high: int) -> int:
    """*value* as an int within the limits; the proxy has checked it, so anything else is a broken peer."""
    if not isinstance(value, int) or not low <= value <= high:
        raise LinkBodyMalformed(reason=f"{value!r} is not in {low}..{high}")
    return value
