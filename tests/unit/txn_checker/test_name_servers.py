"""Routes from name servers over HTTP: what is asked, what a warm, a cold and an odd one count for; and how links follow."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tern_txn_checker.name_servers import NameServers
from tern_wire.errors import NoNameServer
from tests.support.checker.checker_mesh import checking, eventually
from tests.support.checker.scripted_checks import ScriptedChecks
from tests.support.checker.scripted_producer import Asked, ScriptedProducer, answers, hangs, says, sends

pytestmark = pytest.mark.anyio

GROUP = {"nodes": {"broker-a-0": {"link": "127.0.0.1:1", "http": "127.0.0.1:2"}}, "leader": "broker-a-0", "term": 3}


def routes(*, warm: bool = True, tag: str = "t1") -> bytes:
    """A whole document, with topics that a checker does not need."""
    topics = {"orders": {"broker-a": {"topic_id": 1, "queues": 8}}}
    return json.dumps(
        {"cluster": "dev", "warm": warm, "broker_groups": {"broker-a": GROUP}, "topics": topics, "topics_tag": tag}
    ).encode()


@asynccontextmanager
async def name_servers(*behaviours: object) -> AsyncIterator[tuple[NameServers, list[ScriptedProducer]]]:
    """A server for each of *behaviours*."""
    async with AsyncExitStack() as stack:
        made = []
        for behaviour in behaviours:
            server = await ScriptedProducer(behaviour).start()  # type: ignore[arg-type]
            stack.push_async_callback(server.stop)
            made.append(server)
        yield NameServers(tuple(f"http://127.0.0.1:{server.port}/" for server in made)), made


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is waited for, on however slow a machine."""
    monkeypatch.setattr("tern_txn_checker.name_servers.TIMEOUT_S", 30)


async def test_an_unchanged_answer_costs_neither_topics_nor_bytes() -> None:
    """The second question names the topics of the first, and its tag; 304 is the same again."""
    async with name_servers(answers(200, routes(), 'ETag: "v1"')) as (servers, (server,)):
        first = await servers.fetch()
        assert (first.warm, first.broker_groups["broker-a"].leader, first.broker_groups["broker-a"].term) == (
            True,
            "broker-a-0",
            3,
        )
        server.behaviour = answers(304)
        assert await servers.fetch() == first
        assert [asked.path for asked in server.asked] == ["/v1/routes?topics_tag=", "/v1/routes?topics_tag=t1"]
        assert server.asked[1].headers["if-none-match"] == '"v1"'


async def test_a_warm_answer_is_preferred_and_its_server_asked_first_from_then_on() -> None:
    """A cold one is better than none."""
    cold, warm = answers(200, routes(warm=False)), answers(200, routes())
    async with name_servers(cold, warm) as (servers, (first, second)):
        assert (await servers.fetch()).warm
        assert (await servers.fetch()).warm
        assert (len(first.asked), len(second.asked)) == (1, 2)
        second.behaviour = answers(503)
        assert not (await servers.fetch()).warm


@pytest.mark.parametrize(
    "behaviour",
    [answers(500), answers(200, b"{"), answers(200, b'{"warm":1}'), sends(b""), sends(b"\x00"), answers(304), answers(302, b"", "Location: /")],
    ids=range(7),
)  # fmt: skip
async def test_whoever_answers_oddly_does_not_answer(behaviour: object) -> None:
    """NoNameServer, with the addresses; another one's answer counts."""
    async with name_servers(behaviour, answers(200, routes())) as (servers, _):
        assert (await servers.fetch()).warm
    async with name_servers(behaviour) as (servers, (server,)):
        with pytest.raises(NoNameServer, match=str(server.port)):
            await servers.fetch()


async def test_a_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is asked after a while."""
    monkeypatch.setattr("tern_txn_checker.name_servers.TIMEOUT_S", 0.05)
    async with name_servers(hangs, answers(200, routes())) as (servers, _), asyncio.timeout(30):
        while True:
            # On a slow machine the other one may take longer, too.
            with contextlib.suppress(NoNameServer):
                assert (await servers.fetch()).warm
                break


async def test_no_name_server_at_the_start_or_later_is_survived() -> None:
    """A checker starts without one, finds the brokers when one answers, and goes on with what it knows when none does."""
    key = bytes(range(32))
    broker = ScriptedChecks(key)
    producer = await ScriptedProducer(says("commit")).start()
    await broker.server.start()
    broker.add_group("pg0", producer.url)
    try:
        async with checking(broker, route_interval_ms=10) as checker:
            routing = checker.links._routing
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
    key = bytes(range(32))
    first, later = ScriptedChecks(key), ScriptedChecks(key, broker_group="broker-b", node="broker-b-0")
    producer = await ScriptedProducer(says("rollback")).start()
    for broker in (first, later):
        await broker.server.start()
        broker.add_group("pg0", producer.url)
    try:
        async with checking(first, route_interval_ms=10) as checker:
            await eventually(lambda: first.parked, "the first group's poll")
            checker.links._routing.brokers = (first, later)  # type: ignore[attr-defined]
            one = later.begin("pg0")
            await eventually(lambda: one.state == "rolled-back", "the verdict")
            assert checker.readiness()[1]["leaders"] == {"broker-a": "broker-a-0", "broker-b": "broker-b-0"}
    finally:
        await producer.stop()
        for broker in (first, later):
            await broker.stop()


async def slow_routes(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """A large document in many pieces."""
    body = routes()[:-1] + b" " * 300_000 + b"}"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
    for at in range(0, len(body), 50_000):
        writer.write(body[at : at + 50_000])
        await writer.drain()
    return True


async def test_a_large_document_is_read_whole() -> None:
    """Twenty thousand topics are some megabytes at the first question."""
    async with name_servers(slow_routes) as (servers, _):
        assert (await servers.fetch()).warm
