"""An attempt counts when its message is handed to a handler: however a consumer ends, what it has received ahead goes back uncounted."""

import asyncio
import contextlib
import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tern_client import BlockingConsumer, ClientClosed, Consumer
from tests.support.client.leasing_proxy import LeasingProxy
from tests.support.client.scripted_proxy import ScriptedProxy, blocking_proxy

# Some of these consumers are never closed, and their sockets neither: that is the test.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROOT = Path(__file__).resolve().parents[3]
# Loops receive 1, 2, 4 and 8 messages: at the fifth, two are here that nobody has seen; at the ninth, six.
FIFTH, NINTH = 5, 9


@pytest.fixture(autouse=True)
def _nothing_is_left_for_later_tests() -> Iterator[None]:
    """What is never closed is collected here, under this file's filters: not in whichever test comes later."""
    yield
    gc.collect()


def standing() -> int:
    """A clock by which every handler is quick."""
    return 0


class HandlerFailed(Exception):
    """What a handler raises."""


async def handle(consumer: Consumer, seen: list[str], at: int, then: Callable[[], object]) -> None:
    """Handle messages; at the *at*th one do *then* instead of confirming it."""
    async for message in consumer:
        seen.append(message.message_id)
        if len(seen) == at:
            outcome = then()
            if asyncio.isfuture(outcome) or asyncio.iscoroutine(outcome):
                await outcome
        else:
            consumer.confirm(message)


def fail() -> None:
    """As handlers do when their database is down."""
    raise HandlerFailed


async def ended_by_close(url: str, seen: list[str], at: int) -> None:
    """Another task closes the consumer while the handler works."""
    consumer = Consumer(url, "t", "g", clock=standing)
    with pytest.raises(ClientClosed):
        await handle(consumer, seen, at, consumer.close)


async def ended_by_exception(url: str, seen: list[str], at: int) -> None:
    """The handler fails, within `async with`."""
    with contextlib.suppress(HandlerFailed):
        async with Consumer(url, "t", "g", clock=standing) as consumer:
            await handle(consumer, seen, at, fail)


async def ended_by_exception_unclosed(url: str, seen: list[str], at: int) -> None:
    """The handler fails, and nobody closes the consumer: the event loop closes what was left in the middle."""
    with contextlib.suppress(HandlerFailed):
        await handle(Consumer(url, "t", "g", clock=standing), seen, at, fail)
    gc.collect()


async def ended_by_break(url: str, seen: list[str], at: int) -> None:
    """The loop is left; its consumer stays open and is not used again."""
    consumer = Consumer(url, "t", "g", clock=standing)
    async for message in consumer:
        seen.append(message.message_id)
        if len(seen) == at:
            break
        consumer.confirm(message)


async def ended_by_cancellation(url: str, seen: list[str], at: int) -> None:
    """The task is cancelled while its handler works, as asyncio.run does at Ctrl-C."""
    reached = asyncio.Event()

    async def wait_for_ever() -> None:
        reached.set()
        await asyncio.Event().wait()

    async def work() -> None:
        async with Consumer(url, "t", "g", clock=standing) as consumer:
            await handle(consumer, seen, at, wait_for_ever)

    working = asyncio.create_task(work())
    await reached.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.mark.parametrize("at", [1, FIFTH, NINTH])
@pytest.mark.parametrize(
    "end",
    [ended_by_close, ended_by_exception, ended_by_exception_unclosed, ended_by_break, ended_by_cancellation],
    ids=lambda end: end.__name__,
)
def test_what_an_async_consumer_counts_is_what_it_has_handed_out(end: Callable[..., object], at: int) -> None:
    """In an event loop of its own, as a program has it."""
    leasing, seen = LeasingProxy(100), list[str]()
    with blocking_proxy(leasing.answer) as proxy:
        asyncio.run(end(proxy.url, seen, at))  # type: ignore[arg-type]
    leasing.expire()
    assert seen == [f"m{number}" for number in range(at)]
    assert leasing.counted == dict.fromkeys(seen, 1)
    assert bool(leasing.released) == (at > 1)


def work_on(consumer: BlockingConsumer, seen: list[str], at: int, then: Callable[[], object]) -> None:
    """As `handle`."""
    for message in consumer:
        seen.append(message.message_id)
        if len(seen) == at:
            then()
        else:
            consumer.confirm(message)


def in_a_thread(work: Callable[[], object]) -> Callable[[], None]:
    """*work*, done by another thread."""

    def done() -> None:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)

    return done


def blocking_close(url: str, seen: list[str], at: int) -> None:
    """Another thread closes the consumer while the handler works."""
    consumer = BlockingConsumer(url, "t", "g", clock=standing)
    with pytest.raises(ClientClosed):
        work_on(consumer, seen, at, in_a_thread(consumer.close))


def blocking_stop(url: str, seen: list[str], at: int) -> None:
    """Another thread stops it: the loop ends after the message in hand."""
    with BlockingConsumer(url, "t", "g", clock=standing) as consumer:
        work_on(consumer, seen, at, in_a_thread(consumer.stop))


def blocking_exception(url: str, seen: list[str], at: int) -> None:
    """The handler fails, within `with`."""
    with contextlib.suppress(HandlerFailed), BlockingConsumer(url, "t", "g", clock=standing) as consumer:
        work_on(consumer, seen, at, fail)


def blocking_exception_unclosed(url: str, seen: list[str], at: int) -> None:
    """The handler fails, and nobody closes the consumer."""
    with contextlib.suppress(HandlerFailed):
        work_on(BlockingConsumer(url, "t", "g", clock=standing), seen, at, fail)
    gc.collect()


def blocking_break(url: str, seen: list[str], at: int) -> None:
    """The loop is left; its consumer stays open and is not used again."""
    consumer = BlockingConsumer(url, "t", "g", clock=standing)
    for message in consumer:
        seen.append(message.message_id)
        if len(seen) == at:
            break
        consumer.confirm(message)


@pytest.mark.parametrize("at", [1, FIFTH, NINTH])
@pytest.mark.parametrize(
    "end",
    [blocking_close, blocking_stop, blocking_exception, blocking_exception_unclosed, blocking_break],
    ids=lambda end: end.__name__,
)
def test_what_a_blocking_consumer_counts_is_what_it_has_handed_out(
    end: Callable[[str, list[str], int], None], at: int
) -> None:
    """The same table for threads."""
    leasing, seen = LeasingProxy(100), list[str]()
    with blocking_proxy(leasing.answer) as proxy:
        end(proxy.url, seen, at)
    leasing.expire()
    assert seen == [f"m{number}" for number in range(at)]
    assert leasing.counted == dict.fromkeys(seen, 1)
    assert bool(leasing.released) == (at > 1)


@pytest.mark.parametrize("at", [1, NINTH])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("shell", ["async", "blocking"])
def test_a_signal_ends_a_program_quietly_and_only_what_it_has_handed_out_counts(
    shell: str, number: signal.Signals, at: int
) -> None:
    """A killed one gives nothing back: of the first message it costs nothing more, later at most what it had asked for last."""
    leasing = LeasingProxy(100)
    with blocking_proxy(leasing.answer) as proxy:
        command = [sys.executable, "-m", "tests.support.client.consuming_worker", shell, proxy.url, str(at)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            try:
                seen = [worker.stdout.readline().strip() for _ in range(at)]
                worker.send_signal(number)
                out, err = worker.communicate(timeout=30)
            finally:
                worker.kill()
    leasing.expire()
    assert (seen, out, err) == ([f"m{each}" for each in range(at)], "", "")
    unseen = set(leasing.counted) - set(seen)
    if number == signal.SIGKILL:
        assert worker.returncode == -signal.SIGKILL
        assert len(unseen) < leasing.receives[-1]
        assert bool(unseen) <= (at > 1)
    else:
        assert worker.returncode == 128 + number
        assert (leasing.counted, unseen) == (dict.fromkeys(seen, 1), set())


@pytest.mark.parametrize("shell", ["async", "blocking"])
def test_a_crash_loop_costs_nobody_but_the_messages_that_were_handed_out(shell: str) -> None:
    """22 starts, each of which fails at its first message while the leases of the ones before last: no other message has an attempt."""
    leasing, seen = LeasingProxy(100), list[str]()
    with blocking_proxy(leasing.answer) as proxy:
        for _ in range(22):
            this: list[str] = []
            if shell == "async":
                asyncio.run(ended_by_exception(proxy.url, this, 1))
            else:
                blocking_exception(proxy.url, this, 1)
            seen += this
        assert leasing.counted == dict.fromkeys(seen, 1)
        leasing.expire()
    assert len(seen) == 22


async def test_a_proxy_of_an_earlier_release_gets_what_it_knows() -> None:
    """Visible in a second, and counted, as before."""
    leasing = LeasingProxy(100, knows_release=False)
    async with ScriptedProxy(answer=leasing.answer) as proxy:
        await ended_by_break(proxy.url, [], FIFTH)
        async with asyncio.timeout(30):
            while len(leasing.shortened) < 2:
                await asyncio.sleep(0)
    assert (leasing.released, leasing.shortened) == ([], [5, 6])


def test_so_does_the_blocking_one() -> None:
    """And a suspect is not given back there, where that would count."""
    leasing = LeasingProxy(100, knows_release=False, attempts_before=dict.fromkeys(range(3, 100), 5))
    with blocking_proxy(leasing.answer) as proxy:
        seen: list[str] = []
        blocking_break(proxy.url, seen, FIFTH)
    assert seen == [f"m{number}" for number in range(FIFTH)]
    assert (leasing.released, leasing.shortened) == ([], [5, 6])


async def test_two_loops_over_one_consumer_share_what_is_there() -> None:
    """The first one to end takes nothing away from the other."""
    leasing = LeasingProxy(40)
    async with ScriptedProxy(answer=leasing.answer) as proxy, Consumer(proxy.url, "t", "g", clock=standing) as consumer:
        one, other = aiter(consumer), aiter(consumer)
        for _ in range(FIFTH):
            await anext(one)
        await anext(other)
        await one.aclose()
        assert leasing.released == []
        assert (await anext(other)).message_id == "m6"
        await anext(other)
        await other.aclose()
        assert leasing.released == list(range(8, 15))


def test_a_message_that_kills_its_handlers_takes_none_with_it_that_comes_for_the_third_time_as_well() -> None:
    """What is killed gives nothing back, so others of its batch have counted with it, twice. From then on it is handed out alone."""
    leasing, seen = LeasingProxy(40, attempts_before=dict.fromkeys(range(10, 40), 2)), list[str]()
    with blocking_proxy(leasing.answer) as proxy, BlockingConsumer(proxy.url, "t", "g", clock=standing) as consumer:
        for message in consumer:
            seen.append(message.message_id)
            if message.message_id == "m10":
                break  # here it dies
            consumer.confirm(message)
        assert leasing.leased - {int(one[1:]) for one in seen} == set()
    assert leasing.released == [11, 12, 13, 14]
    assert seen == [f"m{number}" for number in range(11)]
