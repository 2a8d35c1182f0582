"""Raft messages as link frames: a MessagePack head, then entries exactly as they lie in the log. No pickle anywhere (X1, X7: tcp_connection.py:291).

     | head size 4 (little-endian) | head: MessagePack map | entry | entry | ... |

Entries follow `append_entries` alone, and say themselves what they are: index, term and size come from their own headers, so no head
can contradict them. Law: what passes here has numbers that can be counted on and stored, whoever sent it. A member is trusted to
be one, not to be sane. A field that this release does not know is of a newer one, and is passed over: an upgrade splits no group.
"""

from typing import Any

from tern_store import HEADER_SIZE_BYTES, EntryKind, EntryRefused, StoredEntry, decode_header
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.requests import HEAD_SIZE, Parts, body_parts, read_body

# Frame code of a Raft message on the link between peers.
RAFT_CODE = 900
# The largest head, a greeting with the names of five members, has a few hundred bytes; a large one would only cost memory.
HEAD_SIZE_MAX_BYTES = 4096
# Terms, indexes and numbers of messages stay far below what the vote slots, entries and MessagePack can hold (8 bytes), so that
# adding to one never overflows: at a million a second they reach this in two thousand years.
NUMBER_MAX = 1 << 56
# Types a peer may send, with the fields that pysyncobj reads without asking. Stock's others (apply_command, snapshots, chunks, utilities:
# L4, S1, L9, X4) have no name here.
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
# Fields that releases before this one do not send: whoever reads them says what their absence means. *wall_ms*: the sender's clock. *group_ms*: the
# group's time; a leader that does not serve yet does not know it. *waits_...*: the entry that the sender cannot apply, or may not (`pass_over.py`).
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
    """The message again, entries as (raw bytes, index, term); LinkBodyMalformed on anything unexpected."""
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
    # pysyncobj asks for fields by name that no release of ours sends (`serialized`): what is not known goes no further.
    head = {field: head[field] for field in ("type", *known)}
    if name == "append_entries":
        head["entries"] = _cut_entries(raw, head["prevLogIdx"], head["prevLogTerm"], head["term"])
    elif raw:
        raise LinkBodyMalformed(reason=f"bytes behind {name}")
    return head


def _cut_entries(raw: memoryview, index: int, term: int, term_max: int) -> list[tuple[bytes, int, int]]:
    """The entries that follow entry *index* of *term*, none newer than *term_max*. Checksums are the log's business."""
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
