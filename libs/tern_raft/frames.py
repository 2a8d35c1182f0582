"""Raft messages as link frames: a MessagePack head, then entries exactly as stored. No pickle.

| head size 4 (little-endian) | head: MessagePack map | entry | entry | ... |
Pickle is what X1 and X7 are about (tcp_connection.py:291). Entries follow `append_entries` alone,
and index, term and size come from their own headers, so no head can contradict them.

Law: numbers in a decoded message can be used in arithmetic and stored, whatever the sender. A
member is trusted to be one, not to be correct. Unknown fields come from a newer release and are
ignored: an upgrade splits no group.
"""

from typing import Any

from tern_store import HEADER_SIZE_BYTES, EntryKind, EntryRefused, StoredEntry, decode_header
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.requests import HEAD_SIZE, Parts, body_parts, read_body

# Frame code of a Raft message on the link between peers.
RAFT_CODE = 900
# The largest head, a greeting with the names of five members, has a few hundred bytes.
HEAD_SIZE_MAX_BYTES = 4096
# Terms, indexes and message numbers stay far below what vote slots, entries and MessagePack can
# hold (8 bytes), so that additions never overflow: at a million a second they reach this in 2,000
# years.
NUMBER_MAX = 1 << 56
# Types that a peer may send, with the fields that pysyncobj reads unchecked. Stock's other types
# (apply_command, snapshots, chunks, utilities: L4, S1, L9, X4) are unknown here.
FIELDS: dict[str, dict[str, type]] = {
    "hello": {
        "standing": int,
        "incarnation": bytes,
        "births": dict,
        "last_log_index": int,
        "last_log_term": int,
        "version": int,
        "number": int,
    },
    "append_entries": {"term": int, "commit_index": int, "prevLogIdx": int, "prevLogTerm": int, "seq": int},
    "next_node_idx": {
        "term": int,
        "next_node_idx": int,
        "reset": bool,
        "success": bool,
        "seq": int,
        "disk": int,
    },
    "request_vote": {"term": int, "last_log_index": int, "last_log_term": int, "told": bool},
    "response_vote": {"term": int},
    "pre_vote": {"term": int, "last_log_index": int, "last_log_term": int},
    "pre_vote_granted": {"term": int},
    "pre_vote_refused": {"term": int},
    "timeout_now": {"term": int},
    "behind": {"term": int, "first": int},
    "digest": {"index": int, "digest": int},
}
# Fields that earlier releases do not send; the reader defines the meaning of their absence.
# *wall_ms*: the sender's clock. *group_ms*: the group's time, unknown to a leader that does not
# serve yet. *waits_...*: the entry that the sender cannot or may not apply (`pass_over.py`).
OPTIONAL_FIELDS: dict[str, dict[str, type]] = {
    "hello": {"http_port": int},
    "append_entries": {"group_ms": int},
    "next_node_idx": {"wall_ms": int, "waits_index": int, "waits_crc": int, "waits_asked": int},
}


def encode_message(message: dict[str, Any]) -> Parts:
    """The parts of a frame's body for *message*; its entries are (StoredEntry, index, term)."""
    entries: list[tuple[StoredEntry, int, int]] = message.get("entries", [])
    head = {key: value for key, value in message.items() if key != "entries"}
    return body_parts(head, [entry.raw for entry, _, _ in entries])


def decode_message(body: bytes | memoryview) -> dict[str, Any]:
    """Decode a message, entries as (raw bytes, index, term); LinkBodyMalformed on anything
    unexpected.
    """
    if len(body) >= HEAD_SIZE.size and HEAD_SIZE.unpack_from(body)[0] > HEAD_SIZE_MAX_BYTES:
        raise LinkBodyMalformed(reason="a Raft message with a head of more than 4 KiB")
    head, raw = read_body(body)
    name = head.get("type")
    fields = FIELDS.get(name) if type(name) is str else None
    if fields is None:
        raise LinkBodyMalformed(reason="a Raft message of no known type")
    if not fields.keys() <= head.keys():
        raise LinkBodyMalformed(reason=f"{name} without a field that it has")
    known = fields | {field: kind for field, kind in OPTIONAL_FIELDS.get(str(name), {}).items() if field in head}
    for field, kind in known.items():
        if type(head[field]) is not kind or (kind is int and not 0 <= head[field] < NUMBER_MAX):
            raise LinkBodyMalformed(reason=f"{name} with a {field} that is none")
    # pysyncobj reads fields that no release of ours sends (`serialized`): unknown ones are removed.
    head = {field: head[field] for field in ("type", *known)}
    if name == "append_entries":
        head["entries"] = _cut_entries(raw, head["prevLogIdx"], head["prevLogTerm"], head["term"])
    elif raw:
        raise LinkBodyMalformed(reason=f"bytes behind {name}")
    return head


def _cut_entries(raw: memoryview, index: int, term: int, term_max: int) -> list[tuple[bytes, int, int]]:
    """Cut the entries that follow entry *index* of *term*, none newer than *term_max*.
    The log verifies the checksums.
    """
    entries: list[tuple[bytes, int, int]] = []
    at = 0
    while at < len(raw):
        try:
            header = decode_header(raw[at:])
        except EntryRefused as error:
            raise LinkBodyMalformed(reason=str(error)) from error
        index += 1
        if header.index != index or header.kind is EntryKind.GENESIS:
            raise LinkBodyMalformed(reason=f"an entry that does not follow entry {index - 1}")
        if not term <= header.term <= term_max:
            raise LinkBodyMalformed(reason=f"entry {index} of a term that is not between {term} and {term_max}")
        if not HEADER_SIZE_BYTES <= header.size <= len(raw) - at:
            raise LinkBodyMalformed(reason=f"entry {index} that ends outside its message")
        entries.append((bytes(raw[at : at + header.size]), index, header.term))
        term = header.term
        at += header.size
    return entries
