"""What becomes of a message by what its handler does: async, in a thread, or with a batch."""

import asyncio
import logging
import threading
from datetime import timedelta

import pytest

from tern_client import BatchFailed, DeadLetter, ReceivedMessage, Retry, Worker
from tests.support.client.group_proxy import GroupProxy
from tests.unit.client.worker.running_worker import QUICK, proxy_of, until, working


async def test_a_handler_that_returns_acks() -> None:
    """The message as it came, once, and it is counted."""
    group, seen = GroupProxy(), list[ReceivedMessage]()
    group.send("t", b"one", b"two")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g")
        async def handle(message: ReceivedMessage) -> None:
            seen.append(message)

        async with working(worker):
            await until(lambda: len(group.acked) == 2)
    assert [(message.body, message.attempt) for message in seen] == [(b"one", 1), (b"two", 1)]
    (row,) = worker.stats().subscriptions
    assert (row.topic, row.group, row.received, row.acked, row.handled) == ("t", "g", 2, 2, 2)
    assert (row.in_flight_messages, row.in_flight_bytes, row.running, row.failed) == (0, 0, 0, 0)
    assert worker.stats().state == "stopped"


@pytest.mark.parametrize(
    "error, nacks, dead",
    [
        (ZeroDivisionError("no"), [("m0", 7_000)], {}),
        (SystemExit(1), [("m0", 7_000)], {}),
        (Retry(), [("m0", None)], {}),
        (Retry(after="30s"), [("m0", 30_000)], {}),
        (Retry(after=1_500), [("m0", 1_500)], {}),
        (Retry(after=timedelta(seconds=2)), [("m0", 2_000)], {}),
        (DeadLetter("no such shop"), [], {"m0": "no such shop"}),
    ],
    ids=repr,
)
@pytest.mark.parametrize("shell", ["async", "thread"])
async def test_what_a_handler_raises_decides(
    shell: str, error: BaseException, nacks: list[tuple[str, int | None]], dead: dict[str, str]
) -> None:
    """An exception takes the handler's own delay, Retry and DeadLetter what they say; the worker lives on."""
    group = GroupProxy(retry_ms=60_000)
    group.send("t", b"bad", b"good")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        def decide(message: ReceivedMessage) -> None:
            if message.body == b"bad":
                raise error

        async def handle(message: ReceivedMessage) -> None:
            decide(message)

        worker.on("t", group="g", retry_in="7s")(handle if shell == "async" else decide)
        async with working(worker) as serving:
            await until(lambda: group.acked == ["m1"] and len(group.nacks) + len(group.dead) == 1)
            assert not serving.done()
    assert (group.nacks, group.dead) == (nacks, dead)


async def test_an_exception_is_logged_once_with_what_names_its_message(caplog: pytest.LogCaptureFixture) -> None:
    """Topic, group, id and attempt, with the traceback; Retry and DeadLetter are no errors."""
    group = GroupProxy(retry_ms=0)
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g")
        async def handle(message: ReceivedMessage) -> None:
            if message.attempt == 1:
                raise Retry(after=0)
            if message.attempt == 2:
                raise ZeroDivisionError("of the test")

        with caplog.at_level(logging.ERROR, "tern_client.worker"):
            async with working(worker):
                await until(lambda: group.acked == ["m0"])
    (record,) = caplog.records
    assert "topic t for group g" in record.getMessage()
    assert "message m0, attempt 2: ZeroDivisionError: of the test" in record.getMessage()
    assert record.exc_info is not None
    (row,) = worker.stats().subscriptions
    assert (row.nacked, row.failed, row.acked) == (2, 1, 1)


async def test_plain_functions_run_side_by_side_in_threads() -> None:
    """As many as `concurrency` says, none of them the event loop's."""
    group, barrier, threads = GroupProxy(), threading.Barrier(3), set[int]()
    group.send("t", *([b"x"] * 3))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", concurrency=3)
        def handle(body: bytes) -> None:
            assert body == b"x"
            barrier.wait(10)
            threads.add(threading.get_ident())

        async with working(worker):
            await until(lambda: len(group.acked) == 3)
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_a_batch_is_acked_as_a_whole_or_by_what_its_error_says() -> None:
    """At most `batch_max` at a time; any other exception gives all of them back."""
    group, sizes = GroupProxy(retry_ms=60_000), list[int]()
    group.send("t", *(b"%d" % number for number in range(9)))
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", batch_max=3, batch_wait="100ms")
        async def handle(messages: list[ReceivedMessage]) -> None:
            sizes.append(len(messages))
            bodies = [message.body for message in messages]
            if b"0" in bodies:
                raise BatchFailed({messages[1]: DeadLetter("odd"), messages[2]: Retry(after="9s")})
            if b"3" in bodies:
                raise ZeroDivisionError

        async with working(worker):
            await until(lambda: len(group.acked) + len(group.nacks) + len(group.dead) == 9)
    assert sizes == [3, 3, 3]
    assert group.acked == ["m0", "m6", "m7", "m8"]
    assert group.dead == {"m1": "odd"}
    assert group.nacks == [("m2", 9_000), ("m3", None), ("m4", None), ("m5", None)]


async def test_a_batch_that_does_not_fill_begins_after_its_wait() -> None:
    """Two of three."""
    group, bodies = GroupProxy(), list[list[bytes]]()
    group.send("t", b"a", b"b")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", batch_max=3, batch_wait="150ms")
        def handle(batch: list[bytes]) -> None:
            bodies.append(batch)

        async with working(worker):
            await until(lambda: len(group.acked) == 2)
    assert bodies == [[b"a", b"b"]]


async def test_an_async_handler_is_cancelled_at_its_deadline() -> None:
    """Its message comes again, and the place is free."""
    group, ended = GroupProxy(retry_ms=0), list[str]()
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", deadline="50ms")
        async def handle(message: ReceivedMessage) -> None:
            if message.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("cancelled")

        async with working(worker):
            await until(lambda: group.acked == ["m0"])
    assert (ended, group.nacks) == (["cancelled"], [("m0", None)])
    (row,) = worker.stats().subscriptions
    assert (row.failed, row.deadline_passed, row.nacked, row.acked) == (1, 1, 1, 1)


async def test_a_timeout_of_the_handler_s_own_is_no_deadline() -> None:
    """It is an exception as any other."""
    group = GroupProxy(retry_ms=60_000)
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", deadline="10s")
        async def handle(body: bytes) -> None:
            raise TimeoutError(body)

        async with working(worker):
            await until(lambda: len(group.nacks) == 1)
    (row,) = worker.stats().subscriptions
    assert (row.failed, row.deadline_passed) == (1, 0)


async def test_a_thread_keeps_its_place_beyond_its_deadline_and_its_result_means_nothing() -> None:
    """Its message is given back at once and handled again only where there is a place; here there is none until it returns."""
    group, go_on, attempts = GroupProxy(retry_ms=0), threading.Event(), list[int]()
    group.send("t", b"x")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g", deadline="50ms")
        def handle(message: ReceivedMessage) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                assert go_on.wait(10)

        async with working(worker):
            await until(lambda: len(group.nacks) == 1 and worker.stats().subscriptions[0].nacked == 1)
            assert worker.stats().subscriptions[0].running == 1
            assert (attempts, group.acked) == ([1], [])
            go_on.set()
            await until(lambda: group.acked == ["m0"])
    assert (attempts, group.nacks) == ([1, 2], [("m0", None)])


async def test_a_task_of_the_handler_s_own_that_is_cancelled_fails_the_message_alone() -> None:
    """A CancelledError that nobody sent to the worker."""
    group = GroupProxy(retry_ms=60_000)
    group.send("t", b"x", b"y")
    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)

        @worker.on("t", group="g")
        async def handle(body: bytes) -> None:
            if body == b"x":
                raise asyncio.CancelledError

        async with working(worker) as serving:
            await until(lambda: group.acked == ["m1"] and len(group.nacks) == 1)
            assert not serving.done()


async def test_a_plain_function_that_returns_a_coroutine_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """It would be acked without having run."""
    group = GroupProxy(retry_ms=60_000)
    group.send("t", b"x")

    async def work() -> None:
        raise AssertionError("nobody awaits this")

    async with proxy_of(group) as proxy:
        worker = Worker(proxy.url, policy=QUICK)
        coroutine = work()
        worker.on("t", group="g")(lambda_of(coroutine))  # type: ignore[type-var]
        async with working(worker):
            await until(lambda: len(group.nacks) == 1)
        coroutine.close()
    assert "async def" in caplog.text


def lambda_of(result: object) -> object:
    """A plain function that returns *result*."""

    def handle(_body: bytes) -> object:
        return result

    return handle
