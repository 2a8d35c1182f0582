"""What a scripted proxy answers to a tail: its lines."""

import base64
import json
from typing import Any

from tern_wire.paths import NDJSON
from tests.support.client.scripted_proxy import Reply


def message(number: int, body: bytes = b"") -> dict[str, Any]:
    """The event of a message whose id is its number."""
    data = {
        "message_id": "m" * 32,
        "topic": "orders",
        "queue": "broker-a:0",
        "offset": number,
        "body_base64": base64.b64encode(body or b"%d" % number).decode(),
        "tag": "new",
        "born_at": 1,
        "stored_at": 2,
    }
    return {"event": "message", "id": f"1-{number}", "data": data}


def stream(*events: dict[str, Any], rest: bytes = b"") -> Reply:
    """An answer of these lines, and the begin of another one."""
    lines = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    return Reply(body=lines + rest, headers={"Content-Type": NDJSON}, chunked=True)


START: dict[str, Any] = {"event": "start", "id": "1-start"}
STOPPING: dict[str, Any] = {"event": "end", "id": "1-1", "data": {"reason": "stopping"}}
IDLE: dict[str, Any] = {"event": "end", "data": {"reason": "idle"}}
