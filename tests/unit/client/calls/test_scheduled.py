"""Delivery times and message groups in the SDK: what requests carry, what receipts say, and messages taken back."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tern_client import Admin, BlockingAdmin, BlockingProducer, OutgoingMessage, Producer, RetryPolicy, ScheduledMessage
from tern_client.calls.batching import size_of
from tern_client.calls.documents import batch_request, send_request
from tern_wire.errors import AlreadyDelivered, OutcomeUnknown
from tern_wire.link.codec import encode_msgpack
from tests.support.client.scripted_proxy import ScriptedProxy, refused, said

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
AT_MS = 1_769_860_800_000
WAITS = {
    "message_id": "m",
    "queue": "broker-a:1",
    "offset": -1,
    "born_at": 5,
    "deliver_at": AT_MS,
    "recall_handle": "AQ",
}


@pytest.mark.parametrize(
    ("fields", "headers", "packed"),
    [
        ({"message_group": "g"}, {"MQ-Message-Group": "g"}, {"message_group": "g"}),
        ({"delay": "30s"}, {"MQ-Delay": "30s"}, {"delay": "30s"}),
        ({"delay": 0}, {"MQ-Delay": "0"}, {"delay": 0}),
        ({"delay": timedelta(minutes=1, microseconds=1_500)}, {"MQ-Delay": "60001"}, {"delay": 60_001}),
        ({"deliver_at": AT}, {"MQ-Deliver-At": str(AT_MS)}, {"deliver_at": AT_MS}),
        ({"deliver_at": "2026-01-31"}, {"MQ-Deliver-At": "2026-01-31"}, {"deliver_at": "2026-01-31"}),
        ({"deliver_at": AT_MS}, {"MQ-Deliver-At": str(AT_MS)}, {"deliver_at": AT_MS}),
        ({"delay_level": 3}, {"MQ-Delay-Level": "3"}, {"delay_level": 3}),
    ],
)
def test_a_message_says_when_it_comes_in_headers_and_in_batches(
    fields: dict[str, Any], headers: dict[str, str], packed: dict[str, Any]
) -> None:
    """As the API takes it; what is not said is left out."""
    message = OutgoingMessage(body=b"x", **fields)
    assert dict(send_request("t", message).headers) == headers
    assert batch_request("t", [message]).body == encode_msgpack({"messages": [{"body": b"x", **packed}]})
    assert size_of(message) >= len(encode_msgpack({"body": b"x", **packed}))


async def test_a_receipt_of_a_message_that_waits_has_no_offset_but_a_handle() -> None:
    """In single sends and batches, of both clients."""
    async with ScriptedProxy(answer=lambda _: said(WAITS, 201)) as proxy, Producer(proxy.url) as producer:
        receipt = await producer.send("t", b"x", delay="1h")
        assert (receipt.offset, receipt.deliver_at, receipt.recall_handle) == (-1, AT_MS, "AQ")
        assert proxy.asked[0].headers["mq-delay"] == "1h"

        def blocking() -> None:
            with BlockingProducer(proxy.url) as other:
                again = other.send("t", b"x", deliver_at=AT, message_group="")
                assert (again.offset, again.recall_handle) == (-1, "AQ")

        await asyncio.to_thread(blocking)
        assert proxy.asked[1].headers["mq-deliver-at"] == str(AT_MS)
        assert "mq-message-group" not in proxy.asked[1].headers


async def test_what_waits_is_listed_page_by_page() -> None:
    """Bounds, limit and cursor go along; fields of later releases are passed over."""
    row = {
        "message_id": "m",
        "queue": "broker-a:1",
        "deliver_at": 7,
        "born_at": 5,
        "body_size": 3,
        "recall_handle": "AQ",
    }
    pages = [
        said({"topic": "t", "messages": [{**row, "keys": ["k"], "tag": "T", "new": 1}], "next_cursor": "c c"}),
        said({"topic": "t", "messages": [row]}),
    ]
    async with ScriptedProxy(*pages) as proxy, Admin(proxy.url) as admin:
        first = await admin.scheduled("t", begin_ms=1, end_ms=9, limit=1)
        assert first.messages == (
            ScheduledMessage(
                message_id="m",
                queue="broker-a:1",
                deliver_at=7,
                born_at=5,
                body_size=3,
                recall_handle="AQ",
                tag="T",
                keys=("k",),
            ),
        )
        last = await admin.scheduled("t", cursor=first.next_cursor)
        assert (len(last.messages), last.next_cursor) == (1, "")
        assert [asked.path for asked in proxy.asked] == [
            "/v1/topics/t/scheduled?limit=1&from=1&to=9",
            "/v1/topics/t/scheduled?limit=100&cursor=c%20c",
        ]


async def test_a_recall_whose_outcome_is_unknown_is_not_repeated() -> None:
    """The repeat would say that nothing waits, though the first one may have done it; what is known is told as it is."""
    async with ScriptedProxy(refused(OutcomeUnknown()), refused(AlreadyDelivered())) as proxy:
        async with Admin(proxy.url, policy=QUICK) as admin:
            with pytest.raises(OutcomeUnknown):
                await admin.recall("t", "AQ/x")
        assert [(asked.method, asked.path) for asked in proxy.asked] == [("DELETE", "/v1/topics/t/scheduled/AQ%2Fx")]

        def blocking() -> None:
            with BlockingAdmin(proxy.url, policy=QUICK) as other, pytest.raises(AlreadyDelivered):
                other.recall("t", "AQ")

        await asyncio.to_thread(blocking)
