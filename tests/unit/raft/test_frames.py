"""Raft messages as frames: there and back, and whatever a broken or hostile peer may send."""

import random
from typing import Any

import pytest

from tern_raft.frames import decode_message, encode_message
from tern_store import EntryKind
from tern_store.entry import encode_entry
from tern_wire.codec import encode_msgpack
from tern_wire.errors import LinkBodyMalformed
from tern_wire.requests import body_parts


def append(entries: list[Any]) -> dict[str, Any]:
    """An append message as the leader sends it."""
    return {
        "type": "append_entries",
        "term": 3,
        "commit_index": 4,
        "prevLogIdx": 6,
        "prevLogTerm": 2,
        "seq": 9,
        "entries": entries,
    }


def test_an_append_travels_with_its_entries_as_they_lie_in_the_log() -> None:
    """Entries arrive as raw bytes with index and term."""
    entries = [
        encode_entry(
            kind=EntryKind.COMMANDS, index=7 + n, term=3, position=100, version=1, previous_crc=0, parts=[b"x" * n]
        )
        for n in range(3)
    ]
    body = b"".join(encode_message(append([(entry, entry.index, entry.term) for entry in entries])))
    message = decode_message(body)
    assert [(entry.raw, entry.index, entry.term) for entry in entries] == message["entries"]
    assert {"term": 3, "commit_index": 4, "prevLogIdx": 6, "seq": 9}.items() <= message.items()


@pytest.mark.parametrize(
    "head",
    [
        {"type": "apply_command", "command": b"x"},
        {"type": "append_entries", "term": 1},
        append([]) | {"term": -1},
        append([]) | {"term": True},
        append([]) | {"serialized": b"x"},
        append([[8, 1, 0]]),
        append([[7, 1, 5]]),
        append([[9, 1, 1]]),
        append([["7", 1, 1]]),
        append([7]),
        {"type": "request_vote", "term": 1, "last_log_index": 2},
        {"type": "timeout_later", "term": 1},
    ],
)
def test_anything_but_the_six_messages_with_their_fields_is_refused(head: dict[str, Any]) -> None:
    """What pysyncobj would have executed, stored or trusted."""
    with pytest.raises(LinkBodyMalformed):
        decode_message(b"".join(body_parts(head, [])))


def test_random_bytes_are_refused_and_nothing_else_happens() -> None:
    """Seeded fuzz: a message or LinkBodyMalformed."""
    rng = random.Random(7)
    good = b"".join(encode_message(append([])))
    for _ in range(3000):
        data = bytearray(good if rng.random() < 0.7 else rng.randbytes(rng.randrange(80)))
        for _ in range(rng.randrange(1, 5)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            decode_message(bytes(data))
        except LinkBodyMalformed:
            continue


def test_a_pickle_is_only_bytes_here() -> None:
    """The stock port executes this; ours refuses it."""
    with pytest.raises(LinkBodyMalformed):
        decode_message(encode_msgpack(b"cos\nsystem\n(S'true'\ntR."))
