"""How a checker's links follow routes: without a name server for a while, and to a broker group that appears later."""

import pytest

from tests.support.checker.checked_broker import CheckedBroker
from tests.support.checker.checker_mesh import KEY, checking
from tests.support.checker.scripted_producer import ScriptedProducer, says
from tests.support.loops import eventually

pytestmark = pytest.mark.anyio


async def test_no_name_server_at_the_start_or_later_is_survived() -> None:
    """A checker starts without one, finds the brokers when one answers, and goes on with what it knows when none does."""
    broker = CheckedBroker(KEY)
    producer = await ScriptedProducer(says("commit")).start()
    await broker.start()
    broker.add_group("pg0", producer.url)
    try:
        async with checking(broker, route_interval_ms=10) as checker:
            routing = checker.links.polls.routing
            routing.is_up = False  # type: ignore[attr-defined]
            await eventually(lambda: not checker.links.is_reachable, "no name server any more")
            one = broker.begin("pg0")
            await eventually(lambda: one.state == "committed", "the verdict")
            routing.is_up = True  # type: ignore[attr-defined]
            await eventually(lambda: checker.links.is_reachable, "a name server again")
    finally:
        await producer.stop()
        await broker.stop()


async def test_a_broker_group_that_appears_later_is_served_too() -> None:
    """Nobody starts a checker again for it."""
    first, later = CheckedBroker(KEY), CheckedBroker(KEY, broker_group="broker-b")
    producer = await ScriptedProducer(says("rollback")).start()
    for broker in (first, later):
        await broker.start()
        broker.add_group("pg0", producer.url)
    try:
        async with checking(first, route_interval_ms=10) as checker:
            await eventually(lambda: first.claims, "the first group's poll")
            checker.links.polls.routing.brokers = (first, later)  # type: ignore[attr-defined]
            one = later.begin("pg0")
            await eventually(lambda: one.state == "rolled-back", "the verdict")
            assert checker.readiness()[1]["leaders"] == {"broker-a": "broker-a-0", "broker-b": "broker-b-0"}
    finally:
        await producer.stop()
        for broker in (first, later):
            await broker.stop()
