"""Raft messages as link frames: a MessagePack head, then entries exactly as they lie in the log. No pickle anywhere.

     | head size 4 (little-endian) | head: MessagePack map | entry | entry | ... |

The head of `append_entries` lists [index, term, size] of each entry.
"""

from typing import Any

from tern_store import StoredEntry
from tern_wire.errors import LinkBodyMalformed
from tern_wire.requests import Parts, body_parts, read_body

# Frame code of a Raft message on the link between peers.
RAFT_CODE = 900
# Types a peer may send, with the fields that pysyncobj reads without asking.
FIELDS: dict[str, dict[str, type]] = {
    "append_entries": {"term": int, "commit_index": int, "prevLogIdx": int, "prevLogTerm": int, "seq": int},
    "next_node_idx": {"term": int, "next_node_idx": int, "reset": bool, "success": bool, "seq": int},
    "request_vote": {"term": int, "last_log_index": int, "last_log_term": int},
    "response_vote": {"term": int},
    "pre_vote": {"term": int, "last_log_index": int, "last_log_term": int},
    "pre_vote_granted": {"term": int},
    "pre_vote_refused": {"term": int},
}


def encode_message(message: dict[str, Any]) -> Parts:
    """The parts of a frame's body for *message*; its entries are (StoredEntry, index, term)."""
    entries: list[tuple[StoredEntry, int, int]] = message.get("entries", [])
    head = {key: value for key, value in message.items() if key != "entries"}
    if message["type"] == "append_entries":
        head["entries"] = [[index, term, len(entry.raw)] for entry, index, term in entries]
    return body_parts(head, [entry.raw for entry, _, _ in entries])


def decode_message(body: bytes | memoryview) -> dict[str, Any]:
    """The message again, entries as (raw bytes, index, term); LinkBodyMalformed on anything unexpected."""
    head, raw = read_body(body)
    fields = FIELDS.get(str(head.get("type")))
    if fields is None:
        raise LinkBodyMalformed(reason=f"unknown Raft message {head.get('type')!r}")
    for name, kind in fields.items():
        if type(head.get(name)) is not kind or (kind is int and head[name] < 0):
            raise LinkBodyMalformed(reason=f"{head['type']} with {name}={head.get(name)!r}")
    if set(head) - set(fields) - {"type", "entries"}:
        raise LinkBodyMalformed(reason=f"{head['type']} with unknown fields")
    if head["type"] == "append_entries":
        head["entries"] = _cut_entries(head.get("entries"), raw, head["prevLogIdx"])
    return head


def _cut_entries(rows: Any, raw: memoryview, previous: int) -> list[tuple[bytes, int, int]]:
    entries: list[tuple[bytes, int, int]] = []
    at = 0
    if not isinstance(rows, list):
        raise LinkBodyMalformed(reason="append_entries without its list of entries")
    for number, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == 3 and all(type(value) is int for value in row)):
            raise LinkBodyMalformed(reason="an entry's row that is not [index, term, size]")
        index, term, size = row
        if index != previous + 1 + number or size <= 0 or at + size > len(raw):
            raise LinkBodyMalformed(reason=f"entry {index} of {size} bytes does not follow")
        entries.append((bytes(raw[at : at + size]), index, term))
        at += size
    if at != len(raw):
        raise LinkBodyMalformed(reason="bytes behind the last entry")
    return entries
