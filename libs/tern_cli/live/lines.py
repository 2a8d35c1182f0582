"""Output of `ternmq tail`: a line for people, or a line of JSON. Pure.

    2026-01-01T01:00:00.003+01:00 1767225600003 broker-a:3 42 [paid] order-7,order-8 {"total":9.5}

A body is one line whatever is in it: what a terminal would obey is shown as an escape, and a body
that is no text as hex.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from tern_cli.readable import shown_time
from tern_cli.views.message_format import body_document

if TYPE_CHECKING:
    from tern_client import PulledMessage  # only for its type: help must not wait for the SDK

# Puts a colour around a text: its words are those of typer.style.
Paint = Callable[[str, str], str]


def plain(text: str, _: str) -> str:
    """Return *text* without a colour."""
    return text


def line_of(message: "PulledMessage", paint: Paint = plain) -> str:
    """Return *message* on one line: local time, milliseconds since 1970, queue, offset, tag, keys,
    body.
    """
    parts = [
        paint(shown_time(message.stored_at), "bright_black"),
        paint(str(message.stored_at), "bright_black"),
        paint(message.queue, "cyan"),
        str(message.offset),
    ]
    if message.tag:
        parts.append(paint(f"[{_on_one_line(message.tag)}]", "green"))
    if message.keys:
        parts.append(paint(_on_one_line(",".join(message.keys)), "yellow"))
    return " ".join([*parts, body_of(message.body)])


def body_of(body: bytes) -> str:
    """Return *body* as text on one line, or as `0x` and hex."""
    try:
        return _on_one_line(body.decode())
    except UnicodeDecodeError:
        return f"0x{body.hex()}"


def json_of(message: "PulledMessage") -> str:
    """Return *message* as JSON on one line: `body` when it is UTF-8 text, else `body_base64`."""
    document = {
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
        **body_document(message.body),
    }
    return json.dumps(document, ensure_ascii=False)


def _on_one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
