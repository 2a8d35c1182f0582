"""What hostile, broken or unlucky peers make of good bytes and good messages. Pure, by seed."""

import random
import struct
from typing import Any

from tern_raft.frames import FIELDS
from tern_remoting import Frame, FrameReader, LinkError
from tern_store import EntryKind, StoredEntry
from tern_store.log.entry import encode_entry
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.requests import HEAD_SIZE

HUGE = (2**31, 2**32 - 1, 2**53, 2**56 - 1, 2**56, 2**63 - 1, 2**63, 2**64 - 1)
JUNK: tuple[Any, ...] = (
    None,
    True,
    -1,
    1.5,
    float("nan"),
    "",
    "n-1",
    b"",
    b"\0" * 16,
    [],
    [[]],
    {},
    {"a": 1},
    [1, 2, 3],
)
# Deep enough for every recursive decoder.
DEPTH = 2_000


def bend(data: bytes, rng: random.Random) -> bytes:
    """*data* with one to three things done to it: never the same again, but for bits that nobody reads."""
    bent = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if not bent:
            break
        at = rng.randrange(len(bent))
        match rng.randrange(8):
            case 0 | 1:
                bent[at] ^= 1 << rng.randrange(8)
            case 2:
                bent[at] = rng.randrange(256)
            case 3:
                del bent[at:]
            case 4:
                del bent[at : at + rng.randrange(1, 9)]
            case 5:
                bent[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 6:  # a length that lies, wherever there is one
                at = rng.choice((0, 4, 21, 25, 29, at))
                bent[at : at + 4] = struct.pack(
                    ">I", rng.choice((0, 1, len(bent), max(0, len(bent) - 4), 4097, *HUGE[:2]))
                )
            case _:
                bent += bent[at:]
    return bytes(bent)


def begins_same(bent: bytes, good: bytes) -> bool:
    """Whether the first frame of *bent* says what *good*, one frame, says: some fields of RocketMQ's header nobody reads."""
    size = 4 + int.from_bytes(bent[:4], "big")
    return _meaning(bent[:size]) == _meaning(good)


def _meaning(data: bytes) -> list[tuple[Any, ...]] | None:
    try:
        frames: list[Frame] = FrameReader(1 << 23).feed(data)
    except LinkError:
        return None
    return [(frame.code, frame.flags, frame.remark, bytes(frame.body)) for frame in frames]


def near(value: int, rng: random.Random) -> int:
    """A number that could be meant: mostly close to *value*."""
    return max(0, value + rng.choice((0, 0, 0, 1, -1, 2, -2, 5, -5, 100, -value, 70_000)))


def message_near(term: int, end: int, end_term: int, rng: random.Random, *, is_calm: bool) -> dict[str, Any]:
    """A message of any kind whose fields have the right types, and numbers near those of the node.

    *is_calm*: of no newer term, so that a leader stays one and hears what else is wrong.
    """
    kind = rng.choice(list(FIELDS))
    message: dict[str, Any] = {"type": kind}
    for name, what in FIELDS[kind].items():
        if what is bool:
            message[name] = rng.random() < 0.5
        elif what is bytes:
            message[name] = rng.randbytes(rng.choice((16, 16, 0, 400)))
        elif what is dict:
            message[name] = {f"n-{number}": rng.randbytes(16) for number in range(rng.randrange(4))}
        elif "term" in name.lower():
            message[name] = rng.choice((term, term, end_term)) if is_calm else near(rng.choice((term, end_term)), rng)
        elif name == "seq":
            message[name] = rng.choice((near(end, rng), 1 << 40))
        elif name in {"standing", "version"}:
            message[name] = rng.randrange(6)
        else:
            message[name] = near(end, rng)
    if is_calm and rng.random() < 0.5 and kind == "next_node_idx":
        message |= {"term": term, "success": True, "reset": rng.random() < 0.3}
    return message


def twist(message: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """*message* with a field of another type, far too large, missing, or one too many."""
    twisted = dict(message)
    name = rng.choice(list(twisted))
    match rng.randrange(5):
        case 0:
            del twisted[name]
        case 1:
            twisted[rng.choice(("entries", "serialized", "transmission", "command", "x"))] = rng.choice(JUNK)
        case 2 | 3:
            twisted[name] = rng.choice(HUGE)
        case _:
            twisted[name] = rng.choice(JUNK)
    return twisted


def entries_near(log: Any, term: int, rng: random.Random) -> list[StoredEntry]:
    """Entries that follow the log, or nearly: right checksums around what the numbers say."""
    index, position, crc = log.end_index, log.end_position, log.mark(log.end_index).crc
    entries: list[StoredEntry] = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        index += 1
        entry = encode_entry(
            rng.choice((EntryKind.COMMANDS, EntryKind.COMMANDS, *EntryKind)),
            index if rng.random() < 0.9 else near(index, rng),
            term if rng.random() < 0.9 else rng.choice((near(term, rng), *HUGE)),
            [rng.randbytes(rng.choice((0, 1, 40, 300)))],
            rng.choice((0, 1, 1, 1, 7, 65_535)),
            position=position if rng.random() < 0.9 else rng.choice((0, 2**40, *HUGE)),
            previous_crc=crc if rng.random() < 0.9 else rng.randrange(1 << 32),
        )
        entries.append(entry)
        position, crc = position + len(entry), entry.crc
    return entries


def packed(head: dict[str, Any] | bytes, raw: bytes = b"") -> bytes:
    """A message's body from any head at all."""
    data = head if isinstance(head, bytes) else encode_msgpack(head)
    return HEAD_SIZE.pack(len(data)) + data + raw


def deep(rng: random.Random) -> bytes:
    """A head of lists in lists, or maps in maps, with or without an end."""
    step = rng.choice((b"\x91", b"\x81\xa1x", b"\xdc\x00\x01"))
    return packed(step * rng.randrange(1, DEPTH) + rng.choice((b"", b"\xc0")))
