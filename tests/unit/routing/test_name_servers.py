"""Routes from name servers over HTTP: what is asked, and what a warm, a cold and an odd one count for."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tern_routing import name_servers as subject
from tern_routing.name_servers import GroupRoutes, NameServers, read_group_routes
from tern_wire.errors import NoNameServer
from tests.support.checker.scripted_producer import Asked, ScriptedProducer, answers, hangs, sends

pytestmark = pytest.mark.anyio

GROUP = {"nodes": {"broker-a-0": {"link": "127.0.0.1:1", "http": "127.0.0.1:2"}}, "leader": "broker-a-0", "term": 3}


def routes(*, warm: bool = True, tag: str = "t1") -> bytes:
    """A whole document, with topics that whoever follows groups does not need."""
    topics = {"orders": {"broker-a": {"topic_id": 1, "queues": 8}}}
    return json.dumps(
        {"cluster": "dev", "warm": warm, "broker_groups": {"broker-a": GROUP}, "topics": topics, "topics_tag": tag}
    ).encode()


@asynccontextmanager
async def name_servers(*behaviours: object) -> AsyncIterator[tuple[NameServers[GroupRoutes], list[ScriptedProducer]]]:
    """A server for each of *behaviours*."""
    async with AsyncExitStack() as stack:
        made = []
        for behaviour in behaviours:
            server = await ScriptedProducer(behaviour).start()  # type: ignore[arg-type]
            stack.push_async_callback(server.stop)
            made.append(server)
        urls = tuple(f"http://127.0.0.1:{server.port}/" for server in made)
        servers = NameServers(urls, read_group_routes)
        stack.callback(servers.close)
        yield servers, made


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers is waited for, on however slow a machine."""
    monkeypatch.setattr(subject, "TIMEOUT_S", 30)
    monkeypatch.setattr(subject, "ANSWER_TIMEOUT_S", 60)


async def test_an_unchanged_answer_costs_neither_topics_nor_bytes() -> None:
    """The second question names the topics of the first, and its tag; 304 is the same again."""
    async with name_servers(answers(200, routes(), 'ETag: "v1"')) as (servers, (server,)):
        mark, first = await servers.fetch()
        assert (first.warm, first.broker_groups["broker-a"].leader, first.broker_groups["broker-a"].term) == (
            True,
            "broker-a-0",
            3,
        )
        server.behaviour = answers(304)
        assert await servers.fetch() == (mark, first)
        assert [asked.path for asked in server.asked] == ["/v1/routes?topics_tag=", "/v1/routes?topics_tag=t1"]
        assert server.asked[1].headers["if-none-match"] == '"v1"'
        assert server.connections == 1


async def test_a_warm_answer_is_preferred_and_its_server_asked_first_from_then_on() -> None:
    """A cold one is better than none."""
    cold, warm = answers(200, routes(warm=False)), answers(200, routes())
    async with name_servers(cold, warm) as (servers, (first, second)):
        assert (await servers.fetch())[1].warm
        assert (await servers.fetch())[1].warm
        assert (len(first.asked), len(second.asked)) == (1, 2)
        second.behaviour = answers(503)
        assert not (await servers.fetch())[1].warm


@pytest.mark.parametrize(
    "behaviour",
    [answers(500), answers(200, b"{"), answers(200, b'{"warm":1}'), sends(b""), sends(b"\x00"), answers(304), answers(302, b"", "Location: /")],
    ids=range(7),
)  # fmt: skip
async def test_whoever_answers_oddly_does_not_answer(behaviour: object) -> None:
    """NoNameServer, with the addresses; another one's answer counts."""
    async with name_servers(behaviour, answers(200, routes())) as (servers, _):
        assert (await servers.fetch())[1].warm
    async with name_servers(behaviour) as (servers, (server,)):
        with pytest.raises(NoNameServer, match=str(server.port)):
            await servers.fetch()


async def test_a_server_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is asked after a while."""
    monkeypatch.setattr(subject, "TIMEOUT_S", 0.05)
    async with name_servers(hangs, answers(200, routes())) as (servers, _), asyncio.timeout(30):
        while True:
            # On a slow machine the other one may take longer, too.
            with contextlib.suppress(NoNameServer):
                assert (await servers.fetch())[1].warm
                break


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
        assert (await servers.fetch())[1].warm


async def trickled_routes(asked: Asked, writer: asyncio.StreamWriter) -> bool:
    """A document whose end does not come, a byte after the other."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.001)


async def test_an_answer_that_goes_on_for_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However steadily its bytes come: the next one is asked."""
    monkeypatch.setattr(subject, "ANSWER_TIMEOUT_S", 0.05)
    async with name_servers(trickled_routes, answers(200, routes())) as (servers, _), asyncio.timeout(30):
        while True:
            with contextlib.suppress(NoNameServer):
                assert (await servers.fetch())[1].warm
                break


async def test_dead_broken_failing_and_cold_ones_are_passed_over() -> None:
    """In their order; and an error names them all when none answers."""
    behaviours = (answers(200), answers(200, b"<html>"), answers(500), answers(200, routes(warm=False)))
    async with name_servers(*behaviours, answers(200, routes())) as (servers, made):
        await made[0].stop()
        assert (await servers.fetch())[1].warm
        assert [len(server.asked) for server in made] == [0, 1, 1, 1, 1]
        await servers.fetch()
        assert [len(server.asked) for server in made] == [0, 1, 1, 1, 2]
        for server in made[1:]:
            server.behaviour = sends(b"")
        with pytest.raises(NoNameServer) as caught:
            await servers.fetch()
        assert all(str(server.port) in caught.value.detail for server in made)
        await made[0].start()


async def test_a_name_server_that_has_closed_its_connection_is_asked_on_a_new_one() -> None:
    """As after its restart: that alone is no failure."""
    async with name_servers(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")) as (servers, (server,)):

        async def says_and_leaves(asked: Asked, writer: asyncio.StreamWriter) -> bool:
            await answers(200, routes())(asked, writer)
            return False

        server.behaviour = says_and_leaves
        for _ in range(3):
            assert (await servers.fetch())[1].warm


async def test_an_address_that_nobody_could_have_does_not_answer() -> None:
    """It is passed over like any other."""
    servers = NameServers(("http://a..b:1", "http://127.0.0.1:99999", "http://[::1"), read_group_routes)
    with pytest.raises(NoNameServer):
        await servers.fetch()
    servers.close()
