"""A checker when others fail: replicas that die, leaders that change, refusals, lost results, and its own end."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from tern_remoting import Frame, Link
from tern_txn_checker import checker as checker_module
from tern_txn_checker import results
from tern_txn_checker.core.answers import Answer
from tern_txn_checker.core.schedule import Check
from tern_wire.errors import NoLeader, Overloaded
from tern_wire.limits import CHECK_AFTER_MIN_MS
from tern_wire.link.requests import RequestCode
from tern_wire.transactions import BY_CHECK, COMMIT
from tests.support.broker.contents import replicate
from tests.support.checker.checked_broker import CheckedBroker
from tests.support.checker.checker_mesh import KEY, checking, hanging, world
from tests.support.checker.scripted_producer import Asked, hangs, says
from tests.support.loops import eventually

pytestmark = pytest.mark.anyio


# Replicas -----------------------------------------------------------------------------------------------------------------
async def test_replicas_share_the_work_and_ask_nobody_twice() -> None:
    """Three of them: what one has claimed, the others do not get."""
    async with world(says("commit")) as (broker, producer), AsyncExitStack() as stack:
        for number in range(3):
            await stack.enter_async_context(checking(broker, name=f"checker-{number}"))
        await eventually(lambda: broker.claims == 3, "three polls")
        begun = broker.begin_many("pg0", 300)
        await eventually(lambda: broker.states() == {"committed": 300}, "all ends")
        checkers = {checker for one in begun for _, checker in one.claims}
        assert checkers == {"checker-0", "checker-1", "checker-2"}
        assert len({asked.document["id"] for asked in producer.asked}) == len(producer.asked) == 300


async def test_a_killed_replicas_claims_pass_to_another_with_the_same_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls and results die with it. Nothing is asked twice before its claims are over, and no attempt is lost by that."""
    monkeypatch.setattr(checker_module, "STOP_GRACE_S", 0.1)
    async with world(says("commit")) as (broker, producer):
        begun = broker.begin_many("pg0", 10)
        async with checking(broker, name="dying", ask=hanging, claim_ms=400) as dying:
            await eventually(lambda: all(one.claims == [(1, "dying")] for one in begun), "its claims")
            await dying.links.stop()  # as kill -9: its connections end, and nothing is told
            async with checking(broker, name="living"):
                await eventually(lambda: broker.states() == {"committed": 10}, "all ends")
        assert all(one.claims == [(1, "dying"), (1, "living")] for one in begun)
        assert {one.attempts for one in begun} == {1}
        assert len(producer.asked) == 10


async def test_an_attempt_that_two_checkers_have_lost_is_lost_and_the_next_one_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second one died, too: the broker group counts the attempt as lost, and asks again."""
    monkeypatch.setattr(checker_module, "STOP_GRACE_S", 0.1)
    async with world(says("commit")) as (broker, _):
        one = broker.begin("pg0")
        async with checking(broker, name="hung", ask=hanging, claim_ms=100):
            await eventually(lambda: one.checks, "a lost attempt")
        assert one.checks[0] == (1, "hung", "lost")
        assert one.claims[:2] == [(1, "hung"), (1, "hung")]
        async with checking(broker, name="living"):
            await eventually(lambda: one.state == "committed", "the verdict")
        assert one.claims[-1] == (one.attempts, "living")


# Leaders, links, refusals -----------------------------------------------------------------------------------------------
async def test_claims_and_results_follow_the_leader() -> None:
    """The old one resigns while a call is under way: its verdict reaches the new one, and so does the next poll."""
    release = asyncio.Event()

    async def waits(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        return await says("commit")(asked, writer)

    async with (
        world(waits) as (old, producer),
        world(broker=CheckedBroker(KEY, node="broker-a-1", leads=False)) as (successor,),
    ):
        one = old.begin("pg0")
        async with checking(old, successor):
            await eventually(lambda: producer.asked, "the call")
            await eventually(lambda: old.claims == 1, "the next poll")
            replicate(successor, old)
            there = replace(one, broker=successor)
            assert (one.state, there.state, there.claims) == ("open", "open", one.claims)
            old.resign()
            release.set()
            successor.lead(2)
            await eventually(lambda: there.state == "committed", "the verdict at the new leader")
            await eventually(lambda: successor.claims == 1, "the poll at the new leader")
            assert (one.state, there.ends) == ("open", [(COMMIT, BY_CHECK, 1)])
            assert len(producer.asked) == 1


async def test_a_result_is_told_again_until_the_broker_group_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused twice for want of a leader or of room; the producer is not asked again for that."""
    monkeypatch.setattr(results, "PAUSE_FIRST_MS", 5)
    async with world(says("commit"), says("unknown")) as (broker, first, _):
        broker.script(RequestCode.END_TRANSACTIONS, Overloaded(what="entries"), Overloaded(what="entries"))
        broker.script(RequestCode.REPORT_CHECKS, Overloaded(what="entries"))
        one, two = broker.begin("pg0"), broker.begin("pg1")
        async with checking(broker):
            await eventually(lambda: one.state == "committed" and two.checks, "both results")
        assert (len(first.asked), broker.asked[RequestCode.END_TRANSACTIONS]) == (1, 3)


async def test_a_result_whose_claim_is_over_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker group has handed the check to somebody else by then."""
    monkeypatch.setattr(checker_module, "STOP_GRACE_S", 0.1)
    async with world(says("unknown")) as (broker, _):
        broker.script(RequestCode.REPORT_CHECKS, *[Overloaded(what="entries")] * 1_000)
        broker.begin("pg0")
        async with checking(broker, claim_ms=700) as checker:
            await eventually(lambda: checker.counters.settled["claim-over"] >= 1, "the result is given up")
            await eventually(lambda: checker.dispatcher.held <= 1, "no more than the claim that came after it is held")


async def test_a_claim_that_is_refused_is_made_again_after_a_pause() -> None:
    """Whatever the reason; and a producer group that cannot be looked up keeps its attempt."""
    async with world(says("commit")) as (broker, producer):
        broker.script(RequestCode.CLAIM_CHECKS, Overloaded(what="polls"), Overloaded(what="polls"))
        broker.script(RequestCode.DESCRIBE_PRODUCER_GROUP, Overloaded(what="reads"))
        one = broker.begin("pg0")
        async with checking(broker, claim_ms=1_500):
            await eventually(lambda: one.state == "committed", "the verdict")
        assert (one.attempts, len(one.claims), len(producer.asked)) == (1, 2, 1)


async def test_a_producer_group_that_cannot_be_looked_up_holds_up_no_other() -> None:
    """Claimed together: the one keeps its attempt until its claim is over, the other is asked at once."""
    async with world(says("commit"), says("commit")) as (broker, *_):
        broker.script(RequestCode.DESCRIBE_PRODUCER_GROUP, Overloaded(what="reads"))
        begun = [broker.begin("pg0"), broker.begin("pg1")]
        broker.pass_time(CHECK_AFTER_MIN_MS)
        async with checking(broker, claim_ms=60_000) as checker:
            await eventually(lambda: checker.counters.settled["ended"] == 1, "one verdict")
            await eventually(lambda: broker.claims == 1, "the next poll")
            assert sorted(one.state for one in begun) == ["committed", "open"]
            assert len(broker.claim_heads) == 2, "claimed together, and polled again"


async def test_a_reply_that_cannot_be_read_ends_nothing() -> None:
    """The next claim is made after a pause."""
    async with world(says("commit")) as (broker, _):

        def lies(link: Link, frame: Frame) -> None:
            link.reply(frame.opaque, 0, [b"\x04\x00\x00\x00nono"])

        broker.script(RequestCode.CLAIM_CHECKS, lies)
        async with checking(broker):
            await eventually(
                lambda: broker.claims == 1 and broker.asked[RequestCode.CLAIM_CHECKS] == 2, "the next poll"
            )
            begun = broker.begin("pg0")
            await eventually(lambda: begun.state == "committed", "the verdict")


async def test_a_checker_waits_for_a_leader_as_long_as_there_is_none() -> None:
    """It is not ready meanwhile, and says so."""
    async with world(says("commit")) as (broker, _):
        one = broker.begin("pg0")
        broker.resign()
        async with checking(broker) as checker:
            is_ready, reasons = checker.readiness()
            assert (is_ready, reasons["leaders"]) == (False, {"broker-a": ""})
            await eventually(lambda: broker.asked[RequestCode.STATUS], "it looks for one")
            broker.lead(2)
            await eventually(lambda: one.state == "committed", "the verdict")
            assert checker.readiness()[0]


async def test_an_unexpected_failure_of_a_call_costs_one_check_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, told as `checker-failed`, and its place is free again."""

    async def fails(_: Check, __: int) -> Answer:
        raise RuntimeError("a bug")

    async with world(says("commit")) as (broker, _):
        one = broker.begin("pg0")
        async with checking(broker, ask=fails) as checker:
            await eventually(lambda: one.checks, "a report")
            await eventually(lambda: checker.dispatcher.under_way == 0, "a free place")
        assert one.checks[0][2] == "checker-failed"
        assert "a bug" in caplog.text


# The end ------------------------------------------------------------------------------------------------------------------
async def test_a_stop_lets_what_is_under_way_end_and_begins_nothing() -> None:
    """The verdict of a call that was being made is told; what waited keeps its attempt for another checker."""
    async with world(hangs) as (broker, producer):
        begun = broker.begin_many("pg0", 6)

        async def soon(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            while not stopping:
                await asyncio.sleep(0.005)
            return await says("commit")(asked, writer)

        stopping: list[bool] = []
        producer.behaviour = soon
        async with checking(broker) as checker:
            await eventually(
                lambda: checker.dispatcher.under_way == 4 and checker.dispatcher.waiting == 2, "four calls"
            )
            ending = asyncio.create_task(checker.stop())
            await eventually(lambda: not checker.readiness()[0], "it is not ready any more")
            stopping.append(True)
            await ending
        assert broker.states() == {"committed": 4, "open": 2}
        assert len(producer.asked) == 4
        assert {one.attempts for one in begun} == {1}
        assert [one.checks for one in begun if one.state == "open"] == [[], []]


async def test_a_checker_that_may_call_nobody_claims_nothing() -> None:
    """Checks are left to those that can make them."""
    async with world(says("commit")) as (broker, _):
        broker.begin("pg0")
        async with checking(broker, hosts="") as idle:
            await eventually(lambda: idle.readiness()[0], "a leader")
            async with checking(broker):
                await eventually(lambda: broker.states() == {"committed": 1}, "the verdict of the other checker")
        assert {head["checker"] for head in broker.claim_heads}.isdisjoint({idle.name})


async def test_no_leader_is_no_reason_to_forget_a_verdict() -> None:
    """A broker group that answers `no-leader` for a while gets the verdict in the end."""
    async with world(says("commit")) as (broker, producer):
        broker.script(
            RequestCode.END_TRANSACTIONS, NoLeader(broker_group="broker-a"), NoLeader(broker_group="broker-a")
        )
        one = broker.begin("pg0")
        async with checking(broker):
            await eventually(lambda: one.state == "committed", "the verdict")
        assert len(producer.asked) == 1
