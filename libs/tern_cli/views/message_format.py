"""Output of `ternmq recv`: a `%` format as in rpk and kcat, or a JSON document. Pure."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tern_cli.failures import CommandFailed

if TYPE_CHECKING:
    from tern_client import ReceivedMessage  # only for its type: help must not wait for the SDK

_PIECE = re.compile(r"%(.)|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "0": "\0"}

_FIELDS: "dict[str, Callable[[ReceivedMessage], bytes]]" = {
    "v": lambda message: message.body,
    "t": lambda message: message.tag.encode(),
    "k": lambda message: " ".join(message.keys).encode(),
    "p": lambda message: json.dumps(dict(message.properties), ensure_ascii=False).encode(),
    "i": lambda message: message.message_id.encode(),
    "q": lambda message: message.queue.encode(),
    "o": lambda message: str(message.offset).encode(),
    "a": lambda message: str(message.attempt).encode(),
    "d": lambda message: str(message.born_at).encode(),
    "h": lambda message: message.receipt_handle.encode(),
    "s": lambda message: str(len(message.body)).encode(),
    "c": lambda message: message.correlation_id.encode(),
    "r": lambda message: message.reply_to.encode(),
}


def compile_format(text: str) -> "Callable[[ReceivedMessage], bytes]":
    """Return a function that formats a message by *text*.
    CommandFailed (exit 2) when *text* has an unknown letter.
    """
    pieces: list[bytes | Callable[[ReceivedMessage], bytes]] = []
    for letter, escape, plain, rest in _PIECE.findall(text):
        if letter == "%":
            pieces.append(b"%")
        elif letter:
            if letter not in _FIELDS:
                known = " ".join(f"%{name}" for name in _FIELDS)
                raise CommandFailed("Not a format", f"%{letter} is not known; there are {known} %%.", exit_code=2)
            pieces.append(_FIELDS[letter])
        else:
            pieces.append((_ESCAPES.get(escape, f"\\{escape}") if escape else plain or rest).encode())
    return lambda message: b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in pieces)


def as_document(message: "ReceivedMessage") -> dict[str, Any]:
    """Return *message* as JSON: `body` when it is UTF-8 text, else `body_base64`."""
    document: dict[str, Any] = {
        "message_id": message.message_id,
        "topic": message.topic,
        "queue": message.queue,
        "offset": message.offset,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "content_type": message.content_type,
        "born_at": message.born_at,
        "stored_at": message.stored_at,
        "attempt": message.attempt,
        "receipt_handle": message.receipt_handle,
        "invisible_until": message.invisible_until,
    }
    if message.reply_to:
        document |= {
            "correlation_id": message.correlation_id,
            "reply_to": message.reply_to,
            "expires_at": message.expires_at,
        }
    return {**document, **body_document(message.body)}


def body_document(body: bytes) -> dict[str, str]:
    """Return `body` when *body* is UTF-8 text, else `body_base64`."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}
