"""A checker between brokers in memory and scripted producers, over real sockets: what is asked and
told, how much at a time, and whom it delays.
"""

import asyncio
import base64
from collections import Counter
from typing import Any

import pytest
from standardwebhooks import Webhook

from tern_remoting import Frame, Link
from tern_txn_checker import producer_groups, results
from tern_wire.errors import Overloaded
from tern_wire.link.requests import RequestCode, read_body
from tern_wire.transactions import BY_CHECK, COMMIT, ROLLBACK, TransactionId, TransactionIds
from tests.support.broker.contents import open_transactions
from tests.support.checker.checked_broker import CheckedBroker
from tests.support.checker.checker_mesh import KEY, checking, world
from tests.support.checker.scripted_producer import SECRET, Behaviour, ScriptedProducer, answers, hangs, says
from tests.support.loops import eventually

pytestmark = pytest.mark.anyio


# What is asked and told -----------------------------------------------------------------------------------------------
async def test_a_verdict_ends_the_transaction_by_check_under_its_claim() -> None:
    """Commit and rollback; nothing is reported beside them."""
    async with world(says("commit"), says("rollback")) as (broker, *_):
        first, second = broker.begin("pg0"), broker.begin("pg1")
        async with checking(broker) as checker:
            await eventually(lambda: checker.counters.settled["ended"] == 2, "both ends")
            assert (first.state, first.ends) == ("committed", [(COMMIT, BY_CHECK, 1)])
            assert (second.state, second.ends) == ("rolled-back", [(ROLLBACK, BY_CHECK, 2)])
            assert broker.asked[RequestCode.REPORT_CHECKS] == 0
            assert (checker.dispatcher.held, checker.dispatcher.held_bytes) == (0, 0)


async def test_the_question_names_transaction_group_attempt_and_messages() -> None:
    """As the contract says, signed with the group's secret; bodies only where the group wants them, and never our own properties."""
    async with world(says("unknown"), says("commit")) as (broker, plain, whole):
        broker.add_group("pg1", whole.url, include_body=True)
        one, two = broker.begin("pg0", b"a", b"b"), broker.begin("pg1", b"\x00\xff")
        async with checking(broker):
            await eventually(lambda: len(plain.asked) >= 2 and whole.asked, "questions")
        event = plain.asked[0].document
        transaction_id = TransactionIds(KEY).make(TransactionId("broker-a", one.number, one.producer_group_id))
        assert {name: event[name] for name in event if name not in {"time", "data"}} == {
            "specversion": "1.0",
            "type": "ternmq.transaction.check.v1",
            "source": "/v1/producer-groups/pg0",
            "id": transaction_id,
            "subject": transaction_id,
            "datacontenttype": "application/json",
        }
        message = {
            "topic": "orders",
            "message_id": "ID0-0",
            "keys": ["k1", "k2"],
            "tag": "TagA",
            "properties": {"colour": "blue"},
            "content_type": "text/plain",
        }
        assert event["data"] == {
            "transaction_id": transaction_id,
            "producer_group": "pg0",
            "attempt": 1,
            "begun_at": open_transactions(broker)[one.number].begun_ms,
            "messages": [message, {**message, "message_id": "ID0-1"}],
        }
        assert [asked.document["data"]["attempt"] for asked in plain.asked[:2]] == [1, 2]
        (shown,) = whole.asked[0].document["data"]["messages"]
        assert (shown["body"], two.state) == (base64.b64encode(b"\x00\xff").decode(), "committed")
        for asked in (*plain.asked, *whole.asked):
            assert asked.headers["webhook-id"] == asked.document["id"]
            Webhook(SECRET).verify(asked.body, asked.headers)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (says("unknown"), "unknown"),
        (says("maybe"), "malformed"),
        (answers(404), "http-404"),
        (answers(202), "http-202"),
        (answers(200, b'{"state":"commit"}', secret=""), "unsigned"),
        (says("commit", "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"), "wrong-signature"),
    ],
)
async def test_whatever_is_no_verdict_is_reported_and_asked_again_until_it_is_parked(
    behaviour: Behaviour, text: str
) -> None:
    """The broker group decides how often and when; the checker only says what came."""
    async with world(behaviour) as (broker, producer):
        broker.add_group("pg0", producer.url, max_checks=3, check_interval_ms=100)
        one = broker.begin("pg0")
        async with checking(broker, name="checker-1") as checker:
            await eventually(lambda: one.state == "expired", "the transaction is parked")
            assert checker.counters.answers == {text: 3}
        assert one.checks == [(attempt, "checker-1", text) for attempt in (1, 2, 3)]
        assert len(producer.asked) == 3


async def test_a_producer_group_that_cannot_be_asked_is_told_why() -> None:
    """No URL any more, one that is not allowed here, no secret: unknown, and nobody is called."""
    async with world(says("commit")) as (broker, producer):
        gone = await ScriptedProducer(hangs).start()
        await gone.stop()
        broker.add_group("gone", gone.url)
        broker.add_group("forbidden", "https://hooks.example.com/")
        broker.add_group("unsigned", producer.url, check_secret="")
        broker.add_group("pulling", producer.url)
        expected = {"forbidden": "url-forbidden", "unsigned": "no-secret", "gone": "refused", "pulling": "no-url"}
        begun = {name: broker.begin(name) for name in expected}

        def change(link: Link, frame: Frame) -> None:
            if read_body(frame.body)[0]["producer_group"] == "pulling":
                broker.add_group("pulling", "")
            broker.serve(link, frame)

        broker.script(RequestCode.DESCRIBE_PRODUCER_GROUP, *[change] * len(expected))
        async with checking(broker):
            await eventually(lambda: all(one.checks for one in begun.values()), "all reports")
        assert {name: one.checks[0][2] for name, one in begun.items()} == expected
        assert producer.connections == 0


async def test_a_changed_url_counts_after_some_seconds_at_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a producer group is asked for again when it is old; a hundred checks until then ask once."""
    monkeypatch.setattr(producer_groups, "KEPT_MS", 1_000)
    async with world(says("unknown"), says("commit")) as (broker, old, new):
        broker.add_group("pg0", old.url, check_interval_ms=100, max_checks=100)
        broker.begin_many("pg0", 100)
        async with checking(broker):
            began_s = asyncio.get_running_loop().time()
            await eventually(lambda: len(old.asked) >= 100, "the first round")
            passed_s = asyncio.get_running_loop().time() - began_s
            assert 1 <= broker.asked[RequestCode.DESCRIBE_PRODUCER_GROUP] <= 1 + passed_s // 1
            broker.add_group("pg0", new.url, check_interval_ms=100, max_checks=100)
            await eventually(lambda: broker.states() == {"committed": 100}, "all answered at the new URL")


# Long polls, room, batches ----------------------------------------------------------------------------------------------
async def test_an_idle_checker_holds_one_poll_and_asks_nothing_else() -> None:
    """What becomes due is brought to it; no loop asks."""
    async with world(says("commit")) as (broker, _), checking(broker) as checker:
        await eventually(lambda: broker.claims == 1, "the poll")
        (head,) = broker.claim_heads
        assert (head["producer_group"], head["wait_ms"], head["claim_ms"]) == ("", 5_000, 10_000)
        assert (head["checker"], 1 <= head["max"] <= 256) == (checker.name, True)
        one = broker.begin("pg0")
        await eventually(lambda: one.state == "committed", "the verdict")
        await eventually(lambda: broker.claims == 1, "the next poll")
        assert broker.asked[RequestCode.CLAIM_CHECKS] == 2


async def test_no_more_is_claimed_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker group that takes no results: what it has handed out stays at the dispatcher, and when that is half full no more is claimed."""
    monkeypatch.setattr(results, "PAUSE_LONGEST_MS", 50)
    async with world(says("commit")) as (broker, producer):
        broker.script(RequestCode.END_TRANSACTIONS, *[Overloaded(what="entries")] * 1_000)
        broker.begin_many("pg0", 300)
        async with checking(broker, held_max=128) as checker:
            await eventually(lambda: checker.dispatcher.held > 64, "the dispatcher is half full")
            await eventually(
                lambda: checker.dispatcher.under_way == 0 and len(producer.asked) == checker.dispatcher.held,
                "all calls",
            )
            claims = len(broker.claim_heads)
            tries = broker.asked[RequestCode.END_TRANSACTIONS]
            await eventually(lambda: broker.asked[RequestCode.END_TRANSACTIONS] > tries + 3, "some more tries")
            assert len(broker.claim_heads) == claims
            assert checker.dispatcher.held <= 64 + 128 // 32
            assert {head["max"] for head in broker.claim_heads} == {128 // 32}


async def test_many_verdicts_travel_together() -> None:
    """A thousand checks cost some tens of requests, not a thousand; and a burst costs a quick host no attempt."""
    async with world(says("commit")) as (broker, _):
        begun = broker.begin_many("pg0", 1_000)
        async with checking(broker, held_max=4_096) as checker:
            await eventually(lambda: broker.states() == {"committed": 1_000}, "all ends")
            # The broker has the ends a moment before the checker has its replies.
            await eventually(lambda: checker.counters.answers == {"commit": 1_000}, "all counted")
        assert {one.attempts for one in begun} == {1}
        assert broker.asked[RequestCode.END_TRANSACTIONS] < 300
        assert broker.asked[RequestCode.CLAIM_CHECKS] < 60


async def test_two_broker_groups_are_served_alike() -> None:
    """Each with its own polls, ids and results."""
    other = CheckedBroker(KEY, broker_group="broker-b")
    async with world(says("commit")) as (broker, producer), world(broker=other):
        other.add_group("pg0", producer.url)
        for each in (broker, other):
            each.begin_many("pg0", 50)
        async with checking(broker, other):
            await eventually(lambda: broker.states() == other.states() == {"committed": 50}, "all ends")
        groups = Counter(TransactionIds(KEY).read(asked.document["id"]).broker_group for asked in producer.asked)
        assert groups == {"broker-a": 50, "broker-b": 50}


# Fairness -----------------------------------------------------------------------------------------------------------------
async def test_a_host_that_hangs_delays_no_other_and_is_soon_left_alone() -> None:
    """Three hundred checks of it are claimed before those of another host are due. The latter are
    answered meanwhile, all at their first attempt.
    """
    async with world(hangs, says("commit")) as (broker, hung, well):
        broker.add_group("pg0", hung.url, timeout_ms=300)
        waiting = broker.begin_many("pg0", 300)
        async with checking(broker) as checker:
            await eventually(
                lambda: all(one.claims for one in waiting), "the claims of all checks of the host that hangs"
            )
            others = broker.begin_many("pg1", 200)

            def state() -> dict[str, Any]:
                found: dict[str, Any] = next(host for host in checker.status()["hosts"] if host["port"] == hung.port)
                assert found["under_way"] <= 4
                return found

            await eventually(lambda: all(one.state == "committed" for one in others), "the other host's checks")
            assert {one.attempts for one in others} == {1}
            await eventually(lambda: state()["circuit"] == "open", "its circuit opens")
            assert checker.status()["hosts"][0]["port"] == hung.port, "who needs a look comes first"
            # Two rounds of four, of which five failures open the circuit, and what began in between.
            assert len(hung.asked) <= 12
        assert len(well.asked) == 200


async def test_a_host_that_came_back_is_found_by_one_call() -> None:
    """While its circuit is open checks are given back or wait; then one call tries it, and all others follow."""
    async with world(answers(503)) as (broker, producer):
        broker.add_group("pg0", producer.url, check_interval_ms=100, max_checks=100)
        begun = broker.begin_many("pg0", 20)
        async with checking(broker, claim_ms=4_000) as checker:
            await eventually(
                lambda: checker.status()["hosts"][0]["circuit"] == "open" if checker.status()["hosts"] else False,
                "an open circuit",
            )
            before = len(producer.asked)
            assert before <= 8
            producer.behaviour = says("commit")
            await eventually(lambda: all(one.state == "committed" for one in begun), "all ends")
            assert len(producer.asked) == before + 20
            assert checker.status()["hosts"][0]["circuit"] == "closed"
