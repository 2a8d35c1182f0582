"""The state machine as bytes and back: what a restart loads before it replays the tail of the log.

     | snapshot size 4 | snapshot: MessagePack map | generation | generation | ... |
     a generation of idempotency keys:
     | number 8 | count 8 | first halves 8 each | second halves 8 each | receipts 8 each | crcs 4 each |

Little-endian. `take` is quick and runs on the owner's thread; `encode` may run on any other.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from tern_broker.core.idempotency import Packed
from tern_broker.core.leases import Delivery, Lease, Run
from tern_broker.core.machine import StateMachine
from tern_broker.core.topics import Group, Topic
from tern_wire.codec import decode_msgpack, encode_msgpack

FORMAT = 4
_SIZE = struct.Struct("<I")
_GENERATION = struct.Struct("<qq")
# The arrays of a generation, in order.
_ARRAYS = ("<u8", "<u8", "<u8", "<u4")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen copy of the state."""

    facts: dict[str, Any]
    keys: list[Packed]


def documents(state: StateMachine) -> dict[str, dict[str, Any]]:
    """`config/*.json` in RocketMQ's words, for its tools and for people; topics carry the ids that name our directories."""
    topics = {
        topic.name: {
            "topicName": topic.name,
            "readQueueNums": topic.queues,
            "writeQueueNums": topic.queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {"+ternmq.topic.id": str(topic.topic_id)},
        }
        for topic in state.names.topics.values()
    }
    groups = {
        group.name: {"groupName": group.name, "consumeEnable": True, "attributes": {}}
        for group in state.names.groups.values()
    }
    offsets = {
        f"{state.names.topics_by_id[topic_id].name}@{state.names.groups_by_id[group_id].name}": {
            str(queue): delivery.committed() for queue, delivery in enumerate(row) if delivery is not None
        }
        for (group_id, topic_id), row in state.deliveries.items()
    }
    return {
        "topics.json": {"topicConfigTable": topics},
        "subscriptionGroup.json": {"subscriptionGroupTable": groups},
        "consumerOffset.json": {"offsetTable": offsets},
    }


def take(state: StateMachine) -> Snapshot:
    """Copy what changes; called by the owner between two entries."""
    facts = {
        "format": FORMAT,
        "now_ms": state.now_ms,
        "next_lease": state.next_lease,
        "next_id": state.names.next_id,
        "data_version": state.data_version,
        "digest": state.digest,
        "topics": [
            [topic.topic_id, topic.name, list(topic.ends), list(topic.mins)] for topic in state.names.topics.values()
        ],
        "groups": [
            [group.group_id, group.name, group.invisible_ms, group.start_latest]
            for group in state.names.groups.values()
        ],
        "deliveries": [
            [group_id, topic_id, queue, *_pack_delivery(delivery)]
            for (group_id, topic_id), row in state.deliveries.items()
            for queue, delivery in enumerate(row)
            if delivery is not None
        ],
    }
    return Snapshot(facts, state.keys.snapshot())


def encode(snapshot: Snapshot) -> list[bytes]:
    """The parts of the saved state."""
    packed = encode_msgpack(snapshot.facts)
    parts = [_SIZE.pack(len(packed)), packed]
    for keys in snapshot.keys:
        parts.append(_GENERATION.pack(keys.number, len(keys.first)))
        arrays = (keys.first, keys.second, keys.receipts, keys.crcs)
        parts.extend(array.astype(kind, copy=False).tobytes() for array, kind in zip(arrays, _ARRAYS, strict=True))
    return parts


def is_known(payload: bytes) -> bool:
    """Whether `load` reads *payload*, which may be another release's."""
    facts = decode_msgpack(payload[_SIZE.size : _SIZE.size + _SIZE.unpack_from(payload)[0]])
    return bool(facts["format"] == FORMAT)


def load(payload: bytes) -> StateMachine:
    """The state again; ValueError on another format (the file's checksum has been verified already)."""
    state = StateMachine()
    end = _SIZE.size + _SIZE.unpack_from(payload)[0]
    facts = decode_msgpack(payload[_SIZE.size : end])
    if facts["format"] != FORMAT:
        raise ValueError(f"saved state of format {facts['format']}, this release reads {FORMAT}")
    state.now_ms, state.next_lease = facts["now_ms"], facts["next_lease"]
    state.names.next_id, state.data_version = facts["next_id"], facts["data_version"]
    state.digest = facts["digest"]
    for topic_id, name, ends, mins in facts["topics"]:
        state.names.put(Topic(topic_id, name, ends, mins))
    for group_id, name, invisible_ms, start_latest in facts["groups"]:
        state.names.put(Group(group_id, name, invisible_ms, start_latest))
    for group_id, topic_id, queue, *packed in facts["deliveries"]:
        row = state.deliveries.setdefault((group_id, topic_id), [])
        row.extend([None] * (queue + 1 - len(row)))
        row[queue] = _unpack_delivery(packed)
    while end < len(payload):
        number, count = _GENERATION.unpack_from(payload, end)
        end += _GENERATION.size
        arrays = []
        for kind in _ARRAYS:
            arrays.append(np.frombuffer(payload, kind, count, end))
            end += arrays[-1].nbytes
        state.keys.restore(Packed(number, *arrays))
    state.watch_all()
    return state


def _pack_delivery(delivery: Delivery) -> list[Any]:
    leases = [
        [
            *(lease.lease_id, lease.start, lease.count, _pack_bits(lease.settled), lease.deadline_ms, lease.attempt),
            [[offset, deadline_ms] for offset, deadline_ms in lease.extended.items()],
        ]
        for lease in delivery.leases.values()
    ]
    runs = [[run.run_id, run.start, run.count, _pack_bits(run.settled), run.attempts] for run in delivery.runs.values()]
    return [delivery.cursor, delivery.version, leases, runs]


def _unpack_delivery(packed: list[Any]) -> Delivery:
    cursor, version, leases, runs = packed
    delivery = Delivery(cursor, version)
    for lease_id, start, count, bits, deadline_ms, attempt, extended in leases:
        settled = int.from_bytes(bits, "little")
        delivery.leases[lease_id] = Lease(lease_id, start, count, settled, deadline_ms, attempt, dict(extended))
        delivery.leased += count - settled.bit_count()
    for run_id, start, count, bits, attempts in runs:
        delivery.runs[run_id] = Run(run_id, start, count, int.from_bytes(bits, "little"), attempts)
    return delivery


def _pack_bits(bits: int) -> bytes:
    """Bitmaps are wider than MessagePack's integers."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
