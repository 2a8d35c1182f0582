"""A row that the server refuses for good is named, counted and set aside; what is about everything waits for people."""

import asyncio
import logging

import pytest
from sqlalchemy import Engine, text

from tern_client.outbox import Outbox
from tern_client.outbox.batches import is_refusal
from tern_wire.errors import Forbidden, InvalidField, MessageTooLarge, NoLeader, TernError, TopicNotWritable, error_from
from tests.support.client.outbox_server import OutboxServer
from tests.support.loops import eventually
from tests.unit.client.outbox.conftest import MakeRelay
from tests.unit.client.outbox.test_relays import add

TOO_LARGE = MessageTooLarge(actual=2, limit=1)


def test_a_refused_row_is_set_aside_listed_and_comes_back(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows behind it are sent; after `retry` it is sent as well, with its own key."""
    server.refused[b"bad"] = TOO_LARGE
    add(engine, outbox, b"1", b"bad", b"2")
    with caplog.at_level(logging.ERROR, "tern_client.outbox"):
        counts = asyncio.run(relay_of().drain())
    assert (server.bodies(), counts.sent, counts.failed) == ([b"1", b"2"], 2, 1)
    assert "message-too-large" in caplog.text
    (failed,) = outbox.failed()
    assert (failed.topic, failed.message_group, failed.error_code) == ("orders", "g", "message-too-large")
    assert failed.error_detail == TOO_LARGE.detail and failed.failed_at >= failed.created_at > 0
    assert (outbox.backlog().waiting, outbox.backlog().failed) == (0, 1)
    server.refused.clear()
    assert outbox.retry([failed.id]) == 1
    asyncio.run(relay_of().drain())
    assert (server.bodies(), outbox.failed()) == ([b"1", b"2", b"bad"], [])


def test_a_group_is_held_by_its_failure_when_asked_and_others_are_not(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Its order has no gap: after `retry` all follow; after `discard` those behind it do."""
    server.refused[b"bad"] = TOO_LARGE
    add(engine, outbox, b"bad", b"2", b"3")
    add(engine, outbox, b"other", group="h")
    add(engine, outbox, b"loose 1", b"loose 2", group="")
    asyncio.run(relay_of(on_failure="hold_group").drain())
    assert server.bodies() == [b"other", b"loose 1", b"loose 2"]
    server.refused.clear()
    outbox.retry([failed.id for failed in outbox.failed()])
    asyncio.run(relay_of(on_failure="hold_group").drain())
    assert server.bodies()[3:] == [b"bad", b"2", b"3"]
    server.refused[b"worse"] = TOO_LARGE
    add(engine, outbox, b"worse", b"4")
    asyncio.run(relay_of(on_failure="hold_group").drain())
    assert outbox.discard([failed.id for failed in outbox.failed()]) == 1
    asyncio.run(relay_of(on_failure="hold_group").drain())
    assert server.bodies()[6:] == [b"4"]


def test_a_request_that_is_refused_as_a_whole_is_taken_apart(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """One malformed message must not condemn those beside it: each is sent alone, in order."""
    server.faults = [
        InvalidField(reason="malformed", pointer="/messages/1"),
        "",
        InvalidField(reason="malformed", pointer=""),
    ]
    add(engine, outbox, b"1", b"2", b"3")
    asyncio.run(relay_of().drain())
    assert (server.bodies(), [failed.error_code for failed in outbox.failed()]) == ([b"1", b"3"], ["invalid-field"])
    assert [len(request) for request in server.requests] == [3, 1, 1, 1]


def test_an_unknown_topic_fails_its_rows_and_no_others(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """They are listed with the server's own sentence."""
    server.missing.add("ordres")
    add(engine, outbox, b"1", b"2", b"3", topic="ordres")
    add(engine, outbox, b"4")
    asyncio.run(relay_of().drain())
    assert (server.bodies(), len(server.requests)) == ([b"4"], 2)
    assert [(failed.topic, failed.error_code) for failed in outbox.failed()] == [("ordres", "topic-not-found")] * 3


def test_a_topic_that_takes_nothing_now_does_not_stop_the_others(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Its rows wait, none is set aside, though they come first and fill whole batches."""
    add(engine, outbox, *(b"%d" % number for number in range(6)), topic="closed")
    add(engine, outbox, b"open")
    server.faults = [NoLeader(broker_group="broker-a")]
    relay = relay_of(batch_rows=2)

    async def main() -> None:
        async with relay:
            await eventually(lambda: not outbox.backlog().waiting, "all are sent")

    asyncio.run(main())
    assert [request[0]["body"] for request in server.requests][:2] == [b"0", b"open"]
    assert server.bodies("closed") == [b"%d" % number for number in range(6)]
    assert relay.counts.failed == 0


def test_a_missing_right_holds_everything_and_fails_nothing(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """A key that has expired must not set thousands of rows aside. `drain` raises what is wrong."""
    add(engine, outbox, b"1", b"2")
    server.faults = [Forbidden(principal="p", action="SEND", resource="topic orders")] * 100
    with pytest.raises(Forbidden):
        asyncio.run(relay_of().drain())
    server.faults.clear()
    asyncio.run(relay_of().drain())
    assert (server.bodies(), outbox.failed()) == ([b"1", b"2"], [])


def test_a_row_that_holds_no_message_is_set_aside(
    engine: Engine, outbox: Outbox, server: OutboxServer, relay_of: MakeRelay
) -> None:
    """Something else has written it."""
    add(engine, outbox, b"1", b"2")
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE ternmq_outbox SET fields = 'nonsense' WHERE seq = (SELECT MIN(seq) FROM ternmq_outbox)")
        )
    counts = asyncio.run(relay_of().drain())
    assert (server.bodies(), counts.failed, outbox.failed()[0].error_code) == ([b"2"], 1, "row-damaged")


@pytest.mark.parametrize(
    "error, refuses",
    [
        (TOO_LARGE, True),
        (error_from("topic-not-found", {}), True),
        (error_from("of-a-later-release", {"status": 422}), True),
        (error_from("of-a-later-release", {"status": 503}), False),
        (TernError(endpoint="a gateway", status=404), False),
        (TopicNotWritable(topic="t"), False),
        (Forbidden(), False),
        (NoLeader(broker_group="b"), False),
        (TernError(), False),
    ],
)
def test_only_errors_about_the_message_are_refusals(error: TernError, refuses: bool) -> None:
    """A gateway's page, a missing right and a closed topic say nothing about the message."""
    assert is_refusal(error) is refuses
