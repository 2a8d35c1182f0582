"""Raft messages as frames: there and back, and whatever a broken or hostile peer may send."""

import random
from typing import Any

import pytest

from tern_raft.frames import decode_message, encode_message
from tern_store import EntryKind, StoredEntry
from tern_store.log.entry import encode_entry
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.requests import body_parts


def append(entries: list[Any]) -> dict[str, Any]:
    """An append message as the leader sends it."""
    return HEAD | {"entries": entries}


HEAD: dict[str, Any] = {
    "type": "append_entries",
    "term": 3,
    "commit_index": 4,
    "prevLogIdx": 6,
    "prevLogTerm": 2,
    "seq": 9,
}
ACK = {"type": "next_node_idx", "term": 3, "next_node_idx": 7, "reset": False, "success": True, "seq": 1, "disk": 0}


def entry(index: int, term: int, kind: EntryKind = EntryKind.COMMANDS, size: int = 5) -> StoredEntry:
    """An entry whose checksum is right."""
    return encode_entry(kind, index, term, [b"x" * size], 1, position=100, previous_crc=0)


def test_an_append_travels_with_its_entries_as_they_lie_in_the_log() -> None:
    """Entries arrive as raw bytes with index and term, which their own headers say."""
    entries = [entry(7 + number, 2 + number // 2, size=number) for number in range(3)]
    body = b"".join(encode_message(append([(entry, entry.index, entry.term) for entry in entries])))
    message = decode_message(body)
    assert [(entry.raw, entry.index, entry.term) for entry in entries] == message["entries"]
    assert HEAD.items() <= message.items()


@pytest.mark.parametrize(
    "head",
    [
        {"type": "apply_command", "command": b"x"},
        {"type": ["append_entries"]},
        {"type": "append_entries", "term": 1},
        HEAD | {"term": -1},
        HEAD | {"term": True},
        HEAD | {"term": 3.0},
        HEAD | {"term": 1 << 56},
        HEAD | {"seq": (1 << 64) - 1},
        {"type": "append_entries", "serialized": b"x"},
        HEAD | {"group_ms": -1},
        HEAD | {"group_ms": 1 << 56},
        HEAD | {"group_ms": "5"},
        ACK | {"wall_ms": 5.0},
        HEAD | {"prevLogIdx": "6"},
        ACK | {"reset": 1},
        {"type": "request_vote", "term": 1, "last_log_index": 2},
        {},
    ],
)
def test_anything_but_the_known_messages_with_their_fields_is_refused(head: dict[str, Any]) -> None:
    """What pysyncobj would have executed, stored or trusted; numbers that would overflow where they are kept."""
    with pytest.raises(LinkBodyMalformed):
        decode_message(b"".join(body_parts(head, [])))


@pytest.mark.parametrize(
    "raw",
    [
        entry(8, 3).raw,
        entry(7, 3).raw + entry(9, 3).raw,
        entry(7, 3).raw + entry(7, 3).raw,
        entry(7, 4).raw,
        entry(7, 1).raw,
        entry(7, 3).raw + entry(8, 2).raw,
        entry(7, 3, EntryKind.GENESIS).raw,
        entry(7, 3).raw[:-1],
        entry(7, 3).raw + b"x",
        entry(7, 3).raw[:40],
        b"x",
    ],
    ids=[
        "a gap before it",
        "a gap behind it",
        "twice the same",
        "newer than its leader",
        "older than the one before the message",
        "older than the one before it",
        "a genesis",
        "cut",
        "a byte too many",
        "half a header",
        "one byte, pysyncobj's own no-op",
    ],
)
def test_entries_that_no_leader_could_have_are_refused_before_anything_is_written(raw: bytes) -> None:
    """They must follow the entry that the message names, and one another, in index and term."""
    with pytest.raises(LinkBodyMalformed):
        decode_message(b"".join(body_parts(HEAD, [raw])))


HELLO: dict[str, Any] = {
    "type": "hello",
    "standing": 0,
    "incarnation": bytes(16),
    "births": {},
    "last_log_index": 1,
    "last_log_term": 0,
    "version": 1,
    "number": 1,
}


@pytest.mark.parametrize("head", [HEAD, ACK, HELLO], ids=["append", "ack", "hello"])
def test_fields_of_a_newer_release_are_passed_over_and_nobody_sees_them(head: dict[str, Any]) -> None:
    """A group in the middle of an upgrade is not split by one more field; nor may such a field reach who reads without asking."""
    newer: dict[Any, Any] = {"serialized": b"x", "entries": [[7, 1, 5]], "wall_clock_of_tomorrow": [1, {"a": -1}], 7: 8}
    plain = decode_message(b"".join(body_parts(head, [])))
    assert decode_message(b"".join(body_parts(head | newer, []))) == plain
    assert plain.get("entries", []) == []


@pytest.mark.parametrize("field", sorted(HELLO.keys() - {"type"}))
def test_a_field_that_is_missing_is_refused_whatever_else_is_there(field: str) -> None:
    """Passing over what is not known makes nothing optional."""
    head = {name: value for name, value in HELLO.items() if name != field} | {"unheard_of": 1}
    with pytest.raises(LinkBodyMalformed, match="without a field"):
        decode_message(b"".join(body_parts(head, [])))


@pytest.mark.parametrize("value", [-1, "9", True, 1 << 56])
def test_an_optional_field_is_absent_or_right(value: Any) -> None:
    """A release that sends it sends it well."""
    assert decode_message(b"".join(body_parts(HELLO | {"http_port": 8082}, [])))["http_port"] == 8082
    assert "http_port" not in decode_message(b"".join(body_parts(HELLO, [])))
    with pytest.raises(LinkBodyMalformed, match="http_port"):
        decode_message(b"".join(body_parts(HELLO | {"http_port": value}, [])))


def test_a_size_that_lies_takes_no_bytes_of_others() -> None:
    """A header's size that reaches into the next entry, or says less than a header."""
    good = entry(7, 3).raw
    for size in (0, 1, 47, len(good) + 1, 1 << 31):
        bent = good[:4] + size.to_bytes(4, "big") + good[8:]
        with pytest.raises(LinkBodyMalformed):
            decode_message(b"".join(body_parts(HEAD, [bent, entry(8, 3).raw])))


def test_a_large_head_is_refused_before_it_is_read() -> None:
    """A greeting whose fields are right, with more births than any group has; what is no MessagePack at all is not looked at."""
    births = {f"n-{number}": bytes(16) for number in range(300)}
    greeting = {"type": "hello", "standing": 0, "incarnation": bytes(16), "births": {}, "last_log_index": 1}
    greeting |= {"last_log_term": 0, "version": 1, "number": 1}
    assert decode_message(b"".join(body_parts(greeting, [])))["births"] == {}
    with pytest.raises(LinkBodyMalformed, match="4 KiB"):
        decode_message(b"".join(body_parts(greeting | {"births": births}, [])))
    with pytest.raises(LinkBodyMalformed, match="4 KiB"):
        decode_message((5_000).to_bytes(4, "little") + b"\xc1" * 5_000)


def test_only_an_append_brings_bytes_behind_its_head() -> None:
    """An acknowledgement with an entry is none."""
    decode_message(b"".join(body_parts(ACK, [])))
    with pytest.raises(LinkBodyMalformed):
        decode_message(b"".join(body_parts(ACK, [entry(7, 3).raw])))


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
