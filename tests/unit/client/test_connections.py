"""Connections: clients that share sockets, whose ends do not touch each other."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tern_client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    ClientClosed,
    Consumer,
    Producer,
    RetryPolicy,
    connect,
    connect_blocking,
)
from tern_client.settings.contexts import change_contexts, context_of
from tern_client.settings.settings import Settings
from tests.support.client.leasing_proxy import LeasingProxy
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, said

TOPICS = said({"topics": [], "next_cursor": ""})
SENT = said({"message_id": "1", "queue": "broker-a:0", "offset": 0, "born_at": 1}, 201)


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user without contexts and variables; the contexts' file."""
    for name in ("ENDPOINT", "CONTEXT", "NAMESPACE", "KEY_FILE", "CA_FILE"):
        monkeypatch.delenv(f"TERNMQ_{name}", raising=False)
    monkeypatch.setenv("TERNMQ_CONTEXTS_FILE", str(tmp_path / "contexts.json"))
    yield tmp_path / "contexts.json"


async def test_clients_share_sockets_and_settings(user: Path) -> None:
    """A producer, an admin and a second producer use one socket, one after the other, in the
    namespace of the context.
    """
    async with ScriptedProxy(answer=lambda asked: SENT if asked.method == "POST" else TOPICS) as proxy:
        here = context_of((proxy.url,), namespace="shop")
        change_contexts(user, lambda before: before.with_context("here", here))
        async with connect() as mesh:
            await mesh.producer().send("orders", b"1")
            assert await mesh.admin().topics() == []
            await mesh.open(Producer, idempotent=False).send("orders", b"2")
            assert mesh.settings.source == "the current context here"
        assert {asked.headers["mq-namespace"] for asked in proxy.asked} == {"shop"}
        assert proxy.connections == 1


async def test_a_client_that_closes_leaves_the_others_their_sockets() -> None:
    """And the connection closes the rest, after which nothing is sent."""
    async with ScriptedProxy(answer=lambda _: SENT) as proxy:
        mesh = connect(proxy.url)
        first, second = mesh.producer(), mesh.producer()
        await first.send("orders", b"1")
        await first.close()
        await second.send("orders", b"2")
        assert proxy.connections == 1
        await mesh.close()
        with pytest.raises(ClientClosed):
            await second.send("orders", b"3")
        with pytest.raises(ClientClosed):
            mesh.producer()
        await mesh.close()
    assert len(proxy.asked) == 2


async def test_a_connection_forgets_closed_clients() -> None:
    """A program may open a client for each request."""
    async with ScriptedProxy(answer=lambda _: SENT) as proxy, connect(proxy.url) as mesh:
        for _ in range(100):
            async with mesh.producer():
                pass
        assert len(mesh._clients) == 0


async def test_every_client_is_closed_when_one_cannot_be() -> None:
    """The error comes when all are closed."""

    class Stubborn(Admin):
        async def _finish(self) -> None:
            raise RuntimeError("no")

    async with ScriptedProxy(answer=lambda _: SENT) as proxy:
        mesh = connect(proxy.url)
        producer = mesh.producer()
        mesh.open(Stubborn)
        last = mesh.producer()
        with pytest.raises(RuntimeError, match="no"):
            await mesh.close()
        for client in (producer, last):
            with pytest.raises(ClientClosed):
                await client.send("orders", b"1")


async def test_the_rest_of_a_consumer_is_released_at_the_end_of_its_connection() -> None:
    """A consumer closes while the sockets are open."""
    leasing = LeasingProxy(8)
    async with ScriptedProxy(answer=leasing.answer) as proxy:
        async with connect(proxy.url) as mesh:
            consumer = mesh.consumer("t", "g", max_messages=8)
            received = [message async for message in _first(consumer, 3)]
            consumer.confirm(*received)
        assert leasing.leased == set()
        assert leasing.acked == {0, 1, 2}


async def _first(consumer: Consumer, count: int):  # type: ignore[no-untyped-def]  # a generator of messages
    loop = aiter(consumer)
    for _ in range(count):
        yield await anext(loop)


def test_a_policy_of_the_connection_is_that_of_its_clients() -> None:
    """Unless one has its own."""
    short, long = RetryPolicy(deadline_ms=50), RetryPolicy(deadline_ms=70)
    with connect_blocking("http://127.0.0.1:9", policy=short) as mesh:
        assert mesh.admin()._course.policy is short
        assert mesh.admin(policy=long)._course.policy is long
        assert connect_blocking(["http://127.0.0.1:9"]).settings.source == "TERNMQ_ENDPOINT"


def test_stopping_one_blocking_consumer_does_not_end_the_polls_of_another() -> None:
    """Though they share their sockets."""
    polls = threading.Semaphore(0)
    leasing = LeasingProxy(0)

    def answer(asked: Asked) -> Reply:
        polls.release()
        return leasing.answer(asked)

    ended: list[str] = []

    def loop(name: str, consumer: BlockingConsumer) -> None:
        for _ in consumer:
            pass
        ended.append(name)

    with blocking_proxy(answer) as proxy, connect_blocking(proxy.url) as mesh:
        consumers = {name: mesh.consumer("t", "g") for name in ("one", "two")}
        threads = {name: threading.Thread(target=loop, args=(name, each)) for name, each in consumers.items()}
        for thread in threads.values():
            thread.start()
        for _ in threads:
            assert polls.acquire(timeout=60)
        consumers["one"].stop()
        threads["one"].join(60)
        assert ended == ["one"]
        assert threads["two"].is_alive()
        consumers["two"].stop()
        threads["two"].join(60)
        assert ended == ["one", "two"]


def test_blocking_clients_share_sockets() -> None:
    """One after the other use one."""
    with blocking_proxy(lambda asked: SENT if asked.method == "POST" else TOPICS) as proxy:
        with connect_blocking(proxy.url) as mesh:
            mesh.producer().send("orders", b"1")
            with mesh.admin() as admin:
                assert admin.topics() == []
            mesh.open(BlockingAdmin).topics()
        assert proxy.connections == 1
        with pytest.raises(ClientClosed):
            mesh.admin()


def test_settings_are_those_of_the_arguments() -> None:
    """A list of endpoints as well as one text."""
    assert connect_blocking(["http://127.0.0.1:9", "http://127.0.0.1:10"]).settings == Settings(
        endpoints=("http://127.0.0.1:9", "http://127.0.0.1:10"), source="TERNMQ_ENDPOINT"
    )
