"""Request-reply over real processes: many at a time, too late, asked for again at another proxy, from the SDK and the command line."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tern_client import BlockingConsumer, BlockingProducer, Consumer, Producer, ReceivedMessage
from tern_wire.errors import NoReply, ReplyTimeout, TernError
from tests.support.mesh.mesh import Mesh

REQUESTS = 50
PATIENCE_S = 60


def other_proxy(mesh: Mesh) -> str:
    """The second proxy."""
    return f"http://127.0.0.1:{mesh.port_base + 1}"


@contextmanager
def answering(
    mesh: Mesh, topic: str, group: str, answer: Callable[[ReceivedMessage], bytes], proxies: tuple[str, ...]
) -> Iterator[list[str]]:
    """A consumer at each of *proxies* that replies to every request and acks it; the ids of what they answered."""
    is_over = threading.Event()
    answered: list[str] = []

    def consume(endpoint: str) -> None:
        with BlockingConsumer(endpoint, topic, group, wait_ms=500) as consumer:
            while not is_over.is_set():
                try:
                    for message in consumer.receive(8):
                        consumer.reply(message, answer(message), content_type="text/plain")
                        consumer.ack(message)
                        answered.append(message.correlation_id)
                except TernError as error:
                    assert error.retryable, error

    workers = [threading.Thread(target=consume, args=(endpoint,)) for endpoint in proxies]
    for worker in workers:
        worker.start()
    try:
        yield answered
    finally:
        is_over.set()
        for worker in workers:
            worker.join(PATIENCE_S)


def test_fifty_requests_at_a_time_get_each_its_own_reply(mesh: Mesh) -> None:
    """From two proxies to two consumers at two proxies: nobody gets another one's reply, and what a request says is in its reply."""
    # What a receive had leased whose answer a death took along comes again well before anybody gives up.
    mesh.create("prices", "brokers", invisible="5s")
    proxies = (mesh.endpoint, other_proxy(mesh))
    with (
        answering(mesh, "prices", "brokers", lambda message: b"re " + message.body, proxies) as answered,
        BlockingProducer(proxies[0]) as first,
        BlockingProducer(proxies[1]) as second,
        ThreadPoolExecutor(REQUESTS) as pool,
    ):

        def ask(number: int) -> tuple[bytes, str]:
            producer = (first, second)[number % 2]
            # Two clients use the same correlation ids.
            reply = producer.request(
                "prices", b"%d" % number, timeout="30s", correlation_id=f"c{number // 2}", client=f"shop-{number % 2}"
            )
            assert (reply.content_type, reply.correlation_id) == ("text/plain", f"c{number // 2}")
            return reply.body, reply.message_id

        replies = list(pool.map(ask, range(REQUESTS)))
    assert [body for body, _ in replies] == [b"re %d" % number for number in range(REQUESTS)]
    assert len({message_id for _, message_id in replies}) == REQUESTS
    # At least once: a consumer whose ack is lost in an election replies twice, and the first reply counts.
    assert {f"c{number // 2}" for number in range(REQUESTS)} == set(answered)


def test_a_late_reply_is_kept_and_found_through_the_other_proxy(mesh: Mesh) -> None:
    """504 says that the request is stored; nothing is there at first; a reply that comes after the wait is there for good."""
    mesh.create("late", "slow")
    with (
        BlockingProducer(mesh.endpoint) as producer,
        BlockingProducer(other_proxy(mesh)) as other,
        BlockingConsumer(other_proxy(mesh), "late", "slow", wait_ms=20_000) as consumer,
    ):
        with pytest.raises(ReplyTimeout) as caught:
            producer.request("late", b"how much?", timeout="200ms")
        correlation_id = caught.value.fields["correlation_id"]
        with pytest.raises(NoReply):
            other.find_reply("late", correlation_id)
        (request,) = consumer.receive(1)
        assert (request.correlation_id, request.body) == (correlation_id, b"how much?")
        assert request.expires_at == request.born_at + 200
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(producer.find_reply, "late", correlation_id, wait_ms=30_000)
            consumer.reply(request, b"42")
            consumer.reply(request, b"43")
            assert waiting.result().body == b"42"
        for asking in (producer, other):
            assert asking.find_reply("late", correlation_id).body == b"42"
        with pytest.raises(NoReply):
            other.find_reply("late", correlation_id, client="somebody-else")
        consumer.ack(request)


@pytest.mark.anyio
async def test_the_async_client_asks_and_replies(mesh: Mesh) -> None:
    """As the blocking one; a body of a megabyte goes both ways."""
    mesh.create("async-requests", "workers")
    body = bytes(range(256)) * 4_096
    async with (
        Producer(mesh.endpoint) as producer,
        Consumer(mesh.endpoint, "async-requests", "workers") as consumer,
    ):

        async def work() -> None:
            async for message in consumer:
                await consumer.reply(message, message.body[::-1], properties={"worker": "1"})
                consumer.confirm(message)
                return

        working = asyncio.create_task(work())
        reply = await producer.request("async-requests", body, timeout=30_000, tag="reverse")
        await working
        assert (reply.body, reply.properties) == (body[::-1], {"worker": "1"})
        assert (await producer.find_reply("async-requests", reply.correlation_id)).message_id == reply.message_id


def test_the_command_line_asks_and_replies(mesh: Mesh) -> None:
    """`ternmq request` prints the reply; `ternmq recv` shows what `ternmq reply` needs."""
    mesh.create("cli-requests", "clerks")
    command = [sys.executable, "-m", "tern_cli"]
    asking = subprocess.Popen(
        [*command, "request", "cli-requests", "how much?", "--timeout", "30s", "--endpoint", mesh.endpoint],
        stdout=subprocess.PIPE,
        text=True,
    )
    show = ["recv", "cli-requests", "clerks", "-w", "20s", "-f", "%c %r %v", "--endpoint", mesh.endpoint]
    shown = subprocess.run([*command, *show], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    correlation_id, reply_to, text = shown.split(" ", 2)
    assert text == "how much?"
    answer = ["reply", "cli-requests", "42", "--to", reply_to, "--correlation-id", correlation_id]
    subprocess.run([*command, *answer, "--endpoint", mesh.endpoint], timeout=PATIENCE_S, check=True)
    assert asking.communicate(timeout=PATIENCE_S)[0] == "42\n"
    assert asking.returncode == 0


def test_bad_requests_are_problems(mesh: Mesh) -> None:
    """Through real processes, too."""
    mesh.create("bad-requests", queues=1)
    path = "/v1/topics/bad-requests"
    for where, status, code in (
        ("requests?timeout=1h", 400, "illegal-timeout"),
        ("requests?correlation_id=a%20b", 400, "illegal-correlation-id"),
        ("replies?correlation_id=c1&reply_to=nobody", 400, "illegal-reply-address"),
        ("replies?correlation_id=c1&reply_to=broker-z:x", 404, "broker-group-not-found"),
    ):
        answer = mesh.settled("POST", f"{path}/{where}", content=b"x")
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
