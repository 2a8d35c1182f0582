"""How a worker ends: what runs may finish, what has not begun goes back, and an attempt counts exactly when a handler has begun."""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable

import pytest

from tern_client import BatchFailed, Producer, ReceivedMessage, RetryPolicy, TernError, Worker
from tests.support.client.group_proxy import GroupProxy
from tests.support.client.scripted_proxy import HANG_UP, Asked, Reply, ScriptedProxy
from tests.unit.client.worker.running_worker import QUICK, proxy_of, until, working


async def test_a_stop_lets_handlers_finish_and_gives_back_what_has_not_begun() -> None:
    """Uncounted, at once; nothing is received after it."""
    group, go_on, begun = GroupProxy(), asyncio.Event(), list[str]()
    group.send("t", *([b"x"] * 50))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=2)
        async def handle(message: ReceivedMessage) -> None:
            begun.append(message.message_id)
            if len(begun) > 20:
                await go_on.wait()

        async with working(worker) as serving:
            await until(lambda: len(begun) == 22)
            waiting = worker.stats().subscriptions[0].in_flight_messages - 2
            worker.stop()
            await until(lambda: worker.stats().state == "stopping" and len(group.leased) == 2)
            assert not serving.done()
            go_on.set()
            await serving
    assert sorted(group.acked) == sorted(begun)
    assert group.attempts == dict.fromkeys(begun, 1)
    assert len(group.released) >= waiting
    assert worker.stats().subscriptions[0].released == len(group.released)


@pytest.mark.parametrize("shell", ["async", "thread"])
@pytest.mark.parametrize("end", ["grace", "at once", "cancelled"])
async def test_handlers_that_do_not_end_are_ended_and_their_messages_are_visible_at_once(shell: str, end: str) -> None:
    """After the grace, by a stop at once, and when `serve` is cancelled. A thread is left behind."""
    group, begun, go_on, cancelled = GroupProxy(retry_ms=60_000), list[str](), threading.Event(), list[str]()
    group.send("t", *([b"x"] * 5))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK, grace="50ms" if end == "grace" else "1h")

        async def handle(message: ReceivedMessage) -> None:
            begun.append(message.message_id)
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(message.message_id)

        def handle_in_thread(message: ReceivedMessage) -> None:
            begun.append(message.message_id)
            go_on.wait(20)

        worker.on("t", group="g", concurrency=2)(handle if shell == "async" else handle_in_thread)
        async with working(worker) as serving:
            await until(lambda: len(begun) == 2)
            if end == "cancelled":
                serving.cancel()
            else:
                worker.stop()
                if end == "at once":
                    worker.stop(at_once=True)
            await asyncio.wait({serving}, timeout=10)
            assert serving.cancelled() == (end == "cancelled")
            go_on.set()
    assert sorted(group.nacks) == [("m0", 0), ("m1", 0)]
    assert group.attempts == {"m0": 1, "m1": 1}
    assert cancelled == (begun if shell == "async" else [])
    assert group.acked == []


# A table: attempts that count are handlers that have begun ------------------------------------------
Table = Callable[[GroupProxy, list[str]], Awaitable[None]]


async def ended_by_exceptions(group: GroupProxy, begun: list[str]) -> None:
    """Every handler raises, twice for each message."""
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=4)
        async def handle(message: ReceivedMessage) -> None:
            begun.append(message.message_id)
            if message.attempt < 3:
                raise ZeroDivisionError

        async with working(worker):
            await until(lambda: len(group.acked) == 40)


async def ended_by_deadlines(group: GroupProxy, begun: list[str]) -> None:
    """Every handler is too slow the first time."""
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=20, deadline="20ms")
        async def handle(message: ReceivedMessage) -> None:
            begun.append(message.message_id)
            if message.attempt == 1:
                await asyncio.Event().wait()

        async with working(worker):
            await until(lambda: len(group.acked) == 40)


async def ended_by_a_stop_in_the_middle(group: GroupProxy, begun: list[str]) -> None:
    """Workers one after the other, each stopped at its tenth message."""
    async with proxy_of(group) as proxy:
        while len(group.acked) < 40:
            worker, here = Worker(proxy.url, policy=QUICK), list[str]()
            worker.on("t", group="g", concurrency=3)(noting(worker, begun, here, 10))
            await asyncio.wait_for(worker.serve(), 20)
            await until(lambda: not group.leased)


def noting(worker: Worker, begun: list[str], here: list[str], at: int) -> Callable[[ReceivedMessage], Awaitable[None]]:
    """A handler that stops its worker at the *at*th message."""

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.message_id)
        here.append(message.message_id)
        if len(here) == at or len(set(begun)) == 40:
            worker.stop()
        await asyncio.sleep(0)

    return handle


async def ended_by_cancellation(group: GroupProxy, begun: list[str]) -> None:
    """Tasks that are cancelled while handlers run, one after the other."""
    async with proxy_of(group) as proxy:
        for _ in range(3):
            worker, reached = Worker(proxy.url, policy=QUICK), asyncio.Event()
            worker.on("t", group="g", concurrency=5)(reaching(reached, begun, len(begun) + 10))
            serving = asyncio.create_task(worker.serve())
            await asyncio.wait_for(reached.wait(), 20)
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            await until(lambda: not group.leased)
    await ended_by_a_stop_in_the_middle(group, begun)


def reaching(reached: asyncio.Event, begun: list[str], at: int) -> Callable[[ReceivedMessage], Awaitable[None]]:
    """A handler that waits for ever from the *at*th message on."""

    async def handle(message: ReceivedMessage) -> None:
        begun.append(message.message_id)
        if len(begun) >= at:
            reached.set()
            await asyncio.Event().wait()

    return handle


async def ended_by_a_lost_proxy(group: GroupProxy, begun: list[str]) -> None:
    """Every third answer is lost on its way: the message is leased, and the client knows of nothing."""
    await lose_answers(group, begun, QUICK)


async def ended_by_a_lost_proxy_and_calls_that_give_up(group: GroupProxy, begun: list[str]) -> None:
    """The same, where no call is repeated by itself."""
    await lose_answers(group, begun, RetryPolicy(deadline_ms=1, first_delay_ms=1), proxies=1)


async def lose_answers(group: GroupProxy, begun: list[str], policy: RetryPolicy, proxies: int = 2) -> None:
    """Proxies that answer two of three requests."""
    asked_count = 0

    def answer(asked: Asked) -> Reply | Awaitable[Reply]:
        nonlocal asked_count
        asked_count += 1
        found = group.answer(asked)
        return HANG_UP if asked_count % 3 == 0 and isinstance(found, Reply) else found

    async with ScriptedProxy(answer=answer) as proxy, ScriptedProxy(answer=answer) as other:
        worker = Worker([proxy.url, other.url][:proxies], policy=policy)

        @worker.on("t", group="g", concurrency=4)
        async def handle(message: ReceivedMessage) -> None:
            begun.append(message.message_id)

        async with working(worker):
            await until(lambda: len(group.acked) == 40)


async def ended_by_failed_batches(group: GroupProxy, begun: list[str]) -> None:
    """Half of each batch fails at first."""
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=2, batch_max=5, batch_wait="20ms")
        def handle(messages: list[ReceivedMessage]) -> None:
            begun.extend(message.message_id for message in messages)
            raise BatchFailed({each: ZeroDivisionError() for each in messages[::2] if each.attempt == 1})

        async with working(worker):
            await until(lambda: len(group.acked) == 40)


@pytest.mark.parametrize(
    "end",
    [
        ended_by_exceptions,
        ended_by_deadlines,
        ended_by_a_stop_in_the_middle,
        ended_by_cancellation,
        ended_by_a_lost_proxy,
        ended_by_a_lost_proxy_and_calls_that_give_up,
        ended_by_failed_batches,
    ],
    ids=lambda end: end.__name__,
)
async def test_attempts_that_count_are_handlers_that_have_begun(end: Table) -> None:
    """For each message; 40 of them, and leases that last for the whole test. tests/mesh has the rows with signals."""
    group, begun = GroupProxy(), list[str]()
    group.send("t", *(b"%d" % number for number in range(40)))
    await end(group, begun)
    assert group.attempts == {each: begun.count(each) for each in sorted(set(begun), key=lambda name: int(name[1:]))}
    assert not group.leased
    assert len(begun) >= 40


async def test_a_receive_that_a_stop_cuts_off_gives_back_what_it_had_leased() -> None:
    """Its answer is on the way when the worker stops: it is requested once more, and released."""
    group, lost = GroupProxy(), asyncio.Event()
    group.send("t", b"x")

    def answer(asked: Asked) -> Reply | Awaitable[Reply]:
        found = group.answer(asked)
        if asked.path.endswith("/receive") and not lost.is_set():
            lost.set()
            return asyncio.get_running_loop().create_future()  # leased, and never answered
        return found

    async with ScriptedProxy(answer=answer) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g")
        async def handle(_body: bytes) -> None:
            raise AssertionError("it has not begun")

        async with working(worker):
            await lost.wait()
            assert group.leased == {"m0"}
    assert (group.released, group.attempts, group.leased) == (["m0"], {}, set())


# Errors and programs ---------------------------------------------------------------------------------
async def test_a_topic_that_there_is_not_ends_the_worker_with_its_error() -> None:
    """At its first receive, with the other subscriptions closed in order."""
    group = GroupProxy("t")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g")
        async def handle(_body: bytes) -> None:
            """Does nothing."""

        worker.on("nowhere", group="g")(handle)
        with pytest.raises(TernError) as caught:
            await asyncio.wait_for(worker.serve(), 20)
    assert caught.value.code == "topic-not-found"
    assert worker.stats().state == "stopped"


async def test_a_worker_whose_proxy_is_away_says_so_and_receives_again() -> None:
    """Its problem is what `/health` tells with a 503; no handler is told."""
    group = GroupProxy()
    impatient = RetryPolicy(first_delay_ms=1, max_delay_ms=2, deadline_ms=20, attempt_timeout_ms=1_000)
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=impatient, health_port=0)

        @worker.on("t", group="g")
        async def handle(_body: bytes) -> None:
            """Does nothing."""

        async with working(worker):
            await until(lambda: len(group.receives["t"]) == 1)
            proxy.answer = lambda _asked: HANG_UP
            proxy.drop_connections()
            await until(lambda: worker.stats().problem)
            assert worker.stats().problem.startswith("t/g: ")
            proxy.answer = group.answer
            group.send("t", b"x")
            await until(lambda: group.acked == ["m0"])
            assert worker.stats().problem == ""


async def test_a_worker_within_an_application_stops_with_its_block() -> None:
    """`async with worker:` beside a producer, say."""
    group = GroupProxy()
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g")
        async def handle(_body: bytes) -> None:
            """Does nothing."""

        async with worker, Producer(proxy.url):
            await until(lambda: group.acked == ["m0"])
            assert worker.stats().state == "running"
        assert worker.stats().state == "stopped"
        with pytest.raises(RuntimeError, match="make a new one"):
            await worker.serve()
        with pytest.raises(RuntimeError, match="subscribe before it starts"):
            worker.on("t", group="h")(handle)


async def test_a_worker_without_a_handler_says_what_is_missing() -> None:
    """Not a process that does nothing."""
    with pytest.raises(ValueError, match=r"add one with @worker\.on"):
        await Worker("http://127.0.0.1:9").serve()


async def test_health_and_metrics_are_served_while_it_runs() -> None:
    """Over a real socket; garbage does no harm."""
    group = GroupProxy()
    group.send("t", b"x")
    async with proxy_of(group) as proxy, ScriptedProxy() as free:
        port = int(free.url.rpartition(":")[2])
        await free.__aexit__(None, None, None)
        worker = Worker(proxy.url, policy=QUICK, health_port=port)

        @worker.on("t", group="g")
        async def handle(_body: bytes) -> None:
            """Does nothing."""

        async with working(worker):
            await until(lambda: worker.stats().subscriptions[0].acked == 1)
            assert (await asked(port, b"GET /health HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await asked(port, b"\x00\r\n\r\n")
            metrics = await asked(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b'ternmq_worker_acked_total{topic="t",group="g"} 1\n' in metrics


async def asked(port: int, request: bytes) -> bytes:
    """All that the port answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    found = await reader.read()
    writer.close()
    return found


async def test_a_block_with_a_worker_that_cannot_begin_raises_at_once() -> None:
    """Its body does not run."""
    with pytest.raises(ValueError, match="no handler"):
        async with Worker("http://127.0.0.1:9"):
            raise AssertionError("the body runs")


async def test_a_stop_twice_is_a_stop_in_order() -> None:
    """A handler's own stop, and the end of the block: what runs finishes."""
    group, ended = GroupProxy(), list[bytes]()
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker, begun = Worker(proxy.url, policy=QUICK, health_port=0), asyncio.Event()

        @worker.on("t", group="g")
        async def handle(body: bytes) -> None:
            begun.set()
            worker.stop()
            await until(lambda: worker.stats().state == "stopping")
            ended.append(body)

        async with worker:
            await begun.wait()
    assert (ended, group.acked) == ([b"x"], ["m0"])


def test_run_restores_the_signal_handlers_that_were_there() -> None:
    """Of a program that goes on after it."""
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValueError, match="no handler"):
        Worker("http://127.0.0.1:9").run()
    assert signal.getsignal(signal.SIGTERM) is before
