"""What a scripted proxy answers to a receive, for the tests of both consumers."""

from typing import Any

from tern_client import ReceivedMessage
from tests.support.client.scripted_proxy import Reply, packed

# Leases of these deliveries end in the year 2100, unless a test says otherwise.
FAR_MS = 4_102_444_800_000


def delivery(number: int, invisible_until: int = FAR_MS) -> dict[str, Any]:
    """A received message as the proxy writes it; *invisible_until* in ms since the epoch."""
    return {
        "message_id": f"m{number}",
        "topic": "t",
        "queue": "broker-a:0",
        "offset": number,
        "body": b"body %d" % number,
        "content_type": "",
        "tag": "A",
        "keys": ["k"],
        "properties": {"p": "1"},
        "born_at": 1,
        "stored_at": 2,
        "attempt": 1,
        "receipt_handle": f"h{number}",
        "invisible_until": invisible_until,
    }


def delivered(
    *numbers: int, settled: list[dict[str, Any]] | None = None, invisible_until: int = FAR_MS, attempt: int = 1
) -> Reply:
    """A receive's answer."""
    messages = [{**delivery(number, invisible_until), "attempt": attempt} for number in numbers]
    return packed({"messages": messages, "settled": settled or []})


def received(number: int, message_group: str = "") -> ReceivedMessage:
    """A message."""
    return ReceivedMessage(
        message_id=f"m{number}",
        topic="t",
        queue="broker-a:0",
        offset=number,
        body=b"x",
        content_type="",
        tag="",
        keys=(),
        properties={},
        born_at=1,
        stored_at=2,
        attempt=1,
        receipt_handle=f"h{number}",
        invisible_until=3,
        message_group=message_group,
    )
