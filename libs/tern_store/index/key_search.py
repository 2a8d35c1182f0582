"""Records by key: candidates from the key index, whose real keys are compared in the log."""

from dataclasses import dataclass

import numpy as np

from tern_store.index.key_index import TIME_MAX_MS, KeyIndex
from tern_store.log.commit_log import CommitLog
from tern_wire.records.layout import SIZE
from tern_wire.records.properties import KEYS, MESSAGE_ID
from tern_wire.records.read import decode_record

# Records of one hash whose keys are compared: collisions are rare, keys of a million records are
# not.
CANDIDATES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A record found by key: its position in the log, and its bytes as stored."""

    position: int
    data: bytes


def find_records(
    keys: KeyIndex,
    log: CommitLog,
    topic: str,
    key: str,
    *,
    begin_ms: int = 0,
    end_ms: int = TIME_MAX_MS,
    count: int = 64,
) -> list[Found]:
    """At most *count* records of *topic* with *key* as message id or key, newest first.
    Times are those stored. LogRot, DerivedDamage if bytes read on the way are damaged.
    """
    found: list[Found] = []
    for position in keys.find(topic, key, begin_ms=begin_ms, end_ms=end_ms, count=CANDIDATES_MAX):
        if len(found) == count:
            break
        where = np.array([position])
        (size,) = SIZE.unpack(log.read_records(where, np.array([SIZE.size])))
        data = log.read_records(where, np.array([size]))
        record = decode_record(data, 0)
        names = {record.properties.get(MESSAGE_ID), *record.properties.get(KEYS, "").split(" ")}
        if record.topic == topic and key in names:
            found.append(Found(position, bytes(data)))
    return found
