"""The state machine as bytes and back: a restart loads it before it replays the tail of the log.

     | snapshot size 4 | snapshot: MessagePack map | the youngest table of idempotency keys:
           | count 8 | first halves 8 each | second halves 8 each | receipts 8 each | crcs 4 each |
     | witness of those keys 8 |

Little-endian. `take` is quick and runs on the owner's thread; `encode` may run on any other.
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from tern_broker.core.feature_level import PARTS_SINCE, READ_LEASES_LEVEL
from tern_broker.core.machine import StateMachine
from tern_broker.core.sending.idempotency import Packed, witness_of
from tern_wire.errors import MalformedBody
from tern_wire.limits import RETRY_DELAYS_MS
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.settings.retry_policy import EXPONENTIAL, RetryPolicy

# Format 14 has read leases; below their level the state is saved as the release before does, which
# may be started again.
FORMAT, FORMAT_WITHOUT_LEASES = 14, 13
# Format 8 had no principals; formats 8 and 9 had no placement of topics: the parts are missing, and
# no topic has been placed yet. Before format 11 comparisons were not counted, and keys had no
# witness. Before format 12 no group had gone beyond its first feature level. Before format 13 no
# group had passed over an entry.
FORMATS_READ = frozenset({8, 9, 10, 11, 12, FORMAT_WITHOUT_LEASES, FORMAT})
_SIZE = struct.Struct("<I")
_COUNT = struct.Struct("<q")
_WITNESS = struct.Struct("<Q")
# The arrays of a table, in order.
_ARRAYS = ("<u8", "<u8", "<u8", "<u4")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A frozen copy of the state."""

    facts: dict[str, Any]
    keys: Packed


def documents(state: StateMachine) -> dict[str, dict[str, Any]]:
    """Return `config/*.json` in RocketMQ's words, for its tools and for people. Topics carry the
    ids that name our directories.
    """
    topics = {
        topic.name: {
            "topicName": topic.name,
            "readQueueNums": topic.queues,
            "writeQueueNums": topic.queues,
            "perm": topic.perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": {
                **{f"+{name}": text for name, text in topic.attributes.items()},
                "+message.type": topic.kind,
                "+ternmq.topic.id": str(topic.topic_id),
            },
        }
        for topic in state.names.topics_by_id.values()  # topics of dead letters included, as in RocketMQ
    }
    groups = {
        group.name: {
            "groupName": group.name,
            "consumeEnable": group.consume_enabled,
            "consumeBroadcastEnable": group.is_broadcast,
            "consumeMessageOrderly": group.is_fifo,
            "retryMaxTimes": group.max_attempts,
            "groupRetryPolicy": _retry_policy(group.retry),
            "attributes": {f"+{name}": text for name, text in group.attributes.items()},
        }
        for group in state.names.groups.values()
    }
    offsets = {
        f"{state.names.topics_by_id[topic_id].name}@{state.names.groups_by_id[group_id].name}": {
            str(queue): delivery.committed() for queue, delivery in enumerate(row) if delivery is not None
        }
        for (group_id, topic_id), row in state.leasing.deliveries.items()
    }
    return {
        "topics.json": {"topicConfigTable": topics},
        "subscriptionGroup.json": {"subscriptionGroupTable": groups},
        "consumerOffset.json": {"offsetTable": offsets},
    }


def _retry_policy(retry: RetryPolicy) -> dict[str, Any]:
    if retry.policy == EXPONENTIAL:
        numbers = {"initial": retry.initial_ms, "max": retry.max_ms, "multiplier": retry.multiplier_permille / 1_000}
        return {"type": "EXPONENTIAL", "exponentialRetryPolicy": numbers}
    return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": list(retry.delays_ms or RETRY_DELAYS_MS)}}


def take(state: StateMachine) -> Snapshot:
    """Copy the state; called by the owner between two entries."""
    level = state.feature_level.level
    facts = {
        "format": FORMAT if level >= READ_LEASES_LEVEL else FORMAT_WITHOUT_LEASES,
        "now_ms": state.now_ms,
        "digest": state.digest,
        "keys": state.keys.facts(),
        "parts": {name: part.pack() for name, part in state.parts.items() if level >= PARTS_SINCE.get(name, 0)},
    }
    return Snapshot(facts, state.keys.snapshot())


def encode(snapshot: Snapshot) -> list[bytes]:
    """Return the parts of the saved state."""
    packed = encode_msgpack(snapshot.facts)
    keys = snapshot.keys
    arrays = (keys.first, keys.second, keys.receipts, keys.crcs)
    columns = [array.astype(kind, copy=False).tobytes() for array, kind in zip(arrays, _ARRAYS, strict=True)]
    return [_SIZE.pack(len(packed)), packed, _COUNT.pack(len(keys.first)), *columns, _WITNESS.pack(witness_of(keys))]


def is_known(payload: bytes) -> bool:
    """Return whether `load` reads *payload*, which may come from another release."""
    try:
        facts = decode_msgpack(payload[_SIZE.size : _SIZE.size + _SIZE.unpack_from(payload)[0]])
        return bool(facts["format"] in FORMATS_READ)
    except (struct.error, MalformedBody, LookupError, TypeError):
        return False


def load(payload: bytes) -> StateMachine:
    """Restore the state. ValueError on another format, or if the restored state differs from the
    saved one (the file's checksum has been verified already).
    """
    state = StateMachine()
    end = _SIZE.size + _SIZE.unpack_from(payload)[0]
    packed = payload[_SIZE.size : end]
    facts = decode_msgpack(packed)
    if facts["format"] not in FORMATS_READ:
        raise ValueError(f"saved state of format {facts['format']}, this release reads {sorted(FORMATS_READ)}")
    state.now_ms, state.digest = facts["now_ms"], facts["digest"]
    for name, part in state.parts.items():
        if name in facts["parts"] or (facts["format"] == FORMAT and name not in PARTS_SINCE):
            part.unpack(facts["parts"][name])
    count, end = _COUNT.unpack_from(payload, end)[0], end + _COUNT.size
    arrays = []
    for kind in _ARRAYS:
        arrays.append(np.frombuffer(payload, kind, count, end))
        end += arrays[-1].nbytes
    state.keys.restore(facts["keys"], Packed(*arrays))
    if facts["format"] in {FORMAT_WITHOUT_LEASES, FORMAT}:
        _require_same(state, packed, _WITNESS.unpack_from(payload, end)[0])
    return state


def _require_same(state: StateMachine, packed: bytes, witness: int) -> None:
    """Raise ValueError unless *state* would be saved as the same bytes. A part that loses data
    would silently differ from the other nodes.
    """
    again = take(state)
    if witness_of(again.keys) != witness:
        raise ValueError("the idempotency keys of the saved state are not what was saved")
    if encode_msgpack(again.facts) == packed:
        return
    saved = decode_msgpack(packed)  # decoded again: a part may have changed the objects it was restored from
    for name, part in again.facts["parts"].items():
        if encode_msgpack(part) != encode_msgpack(saved["parts"][name]):
            raise ValueError(f"'{name}' of the saved state is not what was saved")
    raise ValueError("the saved state is not what was saved")
