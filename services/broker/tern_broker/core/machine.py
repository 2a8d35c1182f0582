"""The replicated state machine: one deterministic, total function over entries.

Law: apply never raises on an entry that the log accepted, reads no file, no clock and no randomness; it sees time only as the
entry's `now_ms`, which never goes back. The same entries give the same state on every node.
"""

import heapq
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.digest import Verdict, advance, is_same
from tern_broker.core.idempotency import KeyTable
from tern_broker.core.leases import Delivery, Lease
from tern_broker.core.sending import SendApplier
from tern_broker.core.topics import Names, Topic
from tern_broker.core.trimming import Moves, Trim, apply_trim, read_moves
from tern_wire.codec import decode_msgpack
from tern_wire.commands import CommandKind, read_entry
from tern_wire.errors import (
    GroupNotFound,
    InvalidField,
    LimitReached,
    LinkBodyMalformed,
    MalformedBody,
    OffsetMoved,
    QueueNotFound,
    TernError,
    TopicConflict,
    TopicNotFound,
)
from tern_wire.limits import GROUPS_MAX, QUEUES_PER_TOPIC_MAX, TOPICS_MAX
from tern_wire.rows import (
    ACK,
    EXTEND,
    LEASE_OVER,
    LEASE_ROWS,
    LEASE_UNKNOWN,
    LEASE_VERDICTS,
    RELEASE,
    SETTLE_ROWS,
    SETTLED,
    QueueAppends,
)

# A lease row with this run number asks only that the group's start in the queue be fixed.
OPEN_QUEUE = -1


@dataclass(slots=True)
class Applied:
    """What one entry did: a verdict for each command, queue entries to store, and what others wait for."""

    verdicts: list[Verdict] = field(default_factory=list)
    appends: list[QueueAppends] = field(default_factory=list)
    # Topics with new messages, or with messages that became visible again.
    woken_topics: set[int] = field(default_factory=set)
    metadata_changed: bool = False
    # Records that were copied forward, and where the log begins from now on.
    moves: list[Moves] = field(default_factory=list)
    trim: Trim | None = None
    # What the leader had become by this entry, and whether this node has become something else.
    was_compared: bool = False
    has_diverged: bool = False


@dataclass(slots=True)
class Counters:
    """What happened since the process started; for metrics only, never read by apply."""

    stored: int = 0
    replayed: int = 0
    leased: int = 0
    settled: int = 0
    expired: int = 0


class StateMachine:
    """The state of one broker group. Owner: the core loop."""

    def __init__(self) -> None:
        self.names = Names()
        self.keys = KeyTable()
        self.now_ms = 0
        self.next_lease = 1
        # (group id, topic id) -> one delivery a queue, None where the group has not begun.
        self.deliveries: dict[tuple[int, int], list[Delivery | None]] = {}
        # (deadline_ms, lease id, group id, topic id, queue); stale ones are skipped when they come up.
        self.deadlines: list[tuple[int, int, int, int, int]] = []
        # Counts changes of topics and groups: what name servers compare.
        self.data_version = 0
        # Of everything that apply has decided so far; equal on all nodes after the same entry.
        self.digest = 0
        self.counters = Counters()
        self._sending = SendApplier(self.names, self.keys)

    # Apply -----------------------------------------------------------------------------------------------------
    def apply(self, body: memoryview, position: int) -> Applied:
        """Apply one entry's body, which begins at *position* in the log."""
        applied = Applied()
        try:
            now_ms, commands = read_entry(body)
        except LinkBodyMalformed as error:
            applied.verdicts.append(error)
            return applied
        self.now_ms = max(self.now_ms, now_ms)
        self.keys.expire(self.now_ms)
        self._expire(applied)
        for command in commands:
            try:
                applied.verdicts.append(
                    self._apply_command(command.kind, command.payload, position + command.at, applied)
                )
            except TernError as error:
                applied.verdicts.append(error)
            except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
                # No release of ours writes such a command. Every node refuses it alike, at the same point: ending would end them all.
                reason = f"command {command.kind} with {type(error).__name__}"
                applied.verdicts.append(LinkBodyMalformed(reason=reason))
        self.digest = advance(self.digest, applied.verdicts, (self.now_ms, self.next_lease, self.data_version))
        return applied

    def _apply_command(self, kind: int, payload: memoryview, position: int, applied: Applied) -> Verdict:
        match kind:
            case CommandKind.SEND:
                verdicts, appends = self._sending.apply(payload, position, self.now_ms)
                if appends is not None:
                    applied.appends.append(appends)
                    applied.woken_topics |= appends.topic_ids()
                    self.counters.stored += len(appends.entries)
                return verdicts
            case CommandKind.LEASE:
                return self._lease(payload)
            case CommandKind.SETTLE:
                return self._settle(payload, applied)
            case CommandKind.CREATE_TOPIC:
                return self._create_topic(_read_map(payload), applied)
            case CommandKind.CREATE_GROUP:
                return self._create_group(_read_map(payload), applied)
            case CommandKind.COMMIT_OFFSETS:
                return self._commit_offsets(_read_map(payload), applied)
            case CommandKind.COPY:
                applied.moves.append(moves := read_moves(payload, position))
                return {"moved": len(moves.rows)}
            case CommandKind.TRIM:
                applied.trim = apply_trim(_read_map(payload), self.names, self.deliveries)
                return {"lost": len(applied.trim.lost)}
            case CommandKind.DIGEST:
                applied.was_compared = True
                applied.has_diverged = not is_same(payload, self.digest)
                return {}
        return LinkBodyMalformed(reason=f"command {kind} is not known to this release")

    # Leases ----------------------------------------------------------------------------------------------------
    def delivery(self, group_id: int, topic: Topic, queue: int) -> Delivery:
        """The group's delivery of a queue, begun now if need be."""
        row = self.deliveries.setdefault((group_id, topic.topic_id), [])
        if len(row) < topic.queues:
            row.extend([None] * (topic.queues - len(row)))
        found = row[queue]
        if found is None:
            group = self.names.groups_by_id[group_id]
            found = row[queue] = Delivery(topic.ends[queue] if group.start_latest else topic.mins[queue])
        return found

    def _lease(self, payload: memoryview) -> npt.NDArray[Any]:
        rows = np.frombuffer(payload, LEASE_ROWS, len(payload) // LEASE_ROWS.itemsize)
        verdicts = np.zeros(len(rows), LEASE_VERDICTS)
        for number, (group_id, topic_id, queue, count, start, run, version, invisible_ms) in enumerate(rows.tolist()):
            topic = self.names.topics_by_id.get(topic_id)
            if topic is None or queue >= topic.queues or group_id not in self.names.groups_by_id:
                continue
            delivery = self.delivery(group_id, topic, queue)
            if run == OPEN_QUEUE or delivery.version != version:
                continue
            deadline_ms = self.now_ms + invisible_ms
            lease = (
                delivery.lease_run(self.next_lease, run, start, count, deadline_ms)
                if run
                else delivery.lease_fresh(self.next_lease, start, count, topic.ends[queue], deadline_ms)
            )
            if lease is None:
                continue
            self.next_lease += 1
            heapq.heappush(self.deadlines, (deadline_ms, lease.lease_id, group_id, topic_id, queue))
            self.counters.leased += lease.count - lease.settled.bit_count()
            verdicts[number] = (lease.lease_id, deadline_ms, lease.attempt)
        return verdicts

    def _settle(self, payload: memoryview, applied: Applied) -> bytes:
        rows = np.frombuffer(payload, SETTLE_ROWS, len(payload) // SETTLE_ROWS.itemsize)
        results = bytearray(len(rows))
        acks: dict[int, list[Any]] = {}
        for number, (group_id, topic_id, queue, action, offset, lease_id, invisible_ms) in enumerate(rows.tolist()):
            row = self.deliveries.get((group_id, topic_id))
            delivery = row[queue] if row is not None and queue < len(row) else None
            if delivery is None:
                results[number] = LEASE_UNKNOWN
                continue
            lease = delivery.leases.get(lease_id)
            bit = 1 << offset - lease.start if lease is not None and 0 <= offset - lease.start < lease.count else 0
            if lease is None or not bit or lease.settled & bit:
                results[number] = SETTLED if action == ACK and delivery.is_settled(offset) else LEASE_OVER
            elif action == ACK:
                # Acks of one lease are gathered: one change of its bitmap, however many messages.
                acks.setdefault(lease_id, [delivery, lease, 0])[2] |= bit
            elif action == EXTEND:
                deadline_ms = self.now_ms + invisible_ms
                lease.extended[offset] = deadline_ms
                heapq.heappush(self.deadlines, (deadline_ms, lease_id, group_id, topic_id, queue))
            elif action == RELEASE:
                # Visible at once; the attempt does not count, since nobody saw the message.
                delivery.give_back(lease, bit, self._next_id(), lease.attempt - 1)
                applied.woken_topics.add(topic_id)
            else:
                results[number] = LEASE_UNKNOWN
        for delivery, lease, mask in acks.values():
            self.counters.settled += int((mask & ~lease.settled).bit_count())
            delivery.settle(lease, mask)
        return bytes(results)

    def is_due(self, now_ms: int) -> bool:
        """Whether a leased message becomes visible again by *now_ms*. What is dropped here, apply would skip."""
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            deadline_ms, lease_id, group_id, topic_id, queue = self.deadlines[0]
            lease = self._lease_of(lease_id, group_id, topic_id, queue)
            if lease is None:
                heapq.heappop(self.deadlines)  # settled or given back since
            elif (true_ms := _next_deadline(lease)) > deadline_ms:
                # Extended since. Its turn comes in the order of true deadlines, as in a state that was just loaded.
                heapq.heapreplace(self.deadlines, (true_ms, lease_id, group_id, topic_id, queue))
            else:
                return True
        return False

    def _expire(self, applied: Applied) -> None:
        while self.is_due(self.now_ms):
            _, lease_id, group_id, topic_id, queue = heapq.heappop(self.deadlines)
            delivery = self.deliveries[group_id, topic_id][queue]
            lease = self._lease_of(lease_id, group_id, topic_id, queue)
            assert delivery is not None
            assert lease is not None
            mask = delivery.expired_mask(lease, self.now_ms)
            self.counters.expired += mask.bit_count()
            delivery.give_back(lease, mask, self._next_id(), lease.attempt)
            applied.woken_topics.add(topic_id)
            if not lease.is_done:
                self._watch(lease, group_id, topic_id, queue)

    def _lease_of(self, lease_id: int, group_id: int, topic_id: int, queue: int) -> Lease | None:
        delivery = self.deliveries[group_id, topic_id][queue]
        return delivery.leases.get(lease_id) if delivery is not None else None

    def _watch(self, lease: Lease, group_id: int, topic_id: int, queue: int) -> None:
        heapq.heappush(self.deadlines, (_next_deadline(lease), lease.lease_id, group_id, topic_id, queue))

    def watch_all(self) -> None:
        """Derive the deadlines again after a saved state was loaded."""
        self.deadlines.clear()
        for (group_id, topic_id), row in self.deliveries.items():
            for queue, delivery in enumerate(row):
                for lease in delivery.leases.values() if delivery is not None else ():
                    self._watch(lease, group_id, topic_id, queue)

    def _next_id(self) -> int:
        self.next_lease += 1
        return self.next_lease - 1

    # Topics, groups, offsets -----------------------------------------------------------------------------------
    def _create_topic(self, request: dict[str, Any], applied: Applied) -> dict[str, Any]:
        name, queues = str(request["topic"]), int(request["queues"])
        if not 1 <= queues <= QUEUES_PER_TOPIC_MAX:
            raise InvalidField(reason=f"a topic has 1 to {QUEUES_PER_TOPIC_MAX} queues", pointer="/queues")
        topic = self.names.topics.get(name)
        created = topic is None
        if topic is None:
            if len(self.names.topics) >= TOPICS_MAX:
                raise LimitReached(what="topics", actual=len(self.names.topics), limit=TOPICS_MAX)
            topic = self.names.add_topic(name, queues)
        elif queues < topic.queues:
            raise TopicConflict(topic=name, actual=topic.queues, wanted=queues)
        grown = queues > topic.queues
        topic.grow(queues)
        if created or grown:
            self.data_version += 1
            applied.metadata_changed = True
        return {"topic_id": topic.topic_id, "queues": topic.queues, "created": created}

    def _create_group(self, request: dict[str, Any], applied: Applied) -> dict[str, Any]:
        name = str(request["group"])
        group = self.names.groups.get(name)
        created = group is None
        if group is None:
            if len(self.names.groups) >= GROUPS_MAX:
                raise LimitReached(what="groups", actual=len(self.names.groups), limit=GROUPS_MAX)
            group = self.names.add_group(name, int(request["invisible_ms"]), request["start"] == "latest")
        group.invisible_ms = int(request["invisible_ms"])
        group.start_latest = request["start"] == "latest"
        applied.metadata_changed = True
        return {"group_id": group.group_id, "created": created}

    def _commit_offsets(self, request: dict[str, Any], applied: Applied) -> dict[str, Any]:
        group = self.names.groups.get(str(request["group"]))
        topic = self.names.topics.get(str(request["topic"]))
        if group is None:
            raise GroupNotFound(group=request["group"])
        if topic is None:
            raise TopicNotFound(topic=request["topic"])
        offsets = {int(queue): int(offset) for queue, offset in request["offsets"].items()}
        expected = {int(queue): int(offset) for queue, offset in request["expected"].items()}
        for queue, offset in (offsets | expected).items():
            if not 0 <= queue < topic.queues:
                raise QueueNotFound(queue=queue, topic=topic.name)
            if queue in offsets and not 0 <= offset <= topic.ends[queue] and queue not in expected:
                raise InvalidField(
                    reason=f"offset {offset} is not in 0..{topic.ends[queue]}", pointer=f"/offsets/{queue}"
                )
        for queue, offset in expected.items():
            actual = self.delivery(group.group_id, topic, queue).committed()
            if actual != offset:
                raise OffsetMoved(queue=queue, actual=actual, expected=offset)
        for queue, offset in offsets.items():
            end = topic.ends[queue]
            if not 0 <= offset <= end:
                raise InvalidField(reason=f"offset {offset} is not in 0..{end}", pointer=f"/offsets/{queue}")
        for queue, offset in offsets.items():
            self.delivery(group.group_id, topic, queue).seek(max(offset, topic.mins[queue]))
        applied.woken_topics.add(topic.topic_id)
        return {"offsets": {str(queue): offset for queue, offset in offsets.items()}}


def _next_deadline(lease: Lease) -> int:
    """When the first message that is still leased becomes visible again."""
    return min(
        lease.extended.get(lease.start + bit, lease.deadline_ms)
        for bit in range(lease.count)
        if not lease.settled >> bit & 1
    )


def _read_map(payload: memoryview) -> dict[str, Any]:
    """The map of a command; the leader wrote it, so its keys are there (tests hold both sides together)."""
    try:
        value = decode_msgpack(payload)
    except MalformedBody as error:
        raise LinkBodyMalformed(reason=error.detail) from error
    if not isinstance(value, dict):
        raise LinkBodyMalformed(reason="a command that is no map")
    return value
