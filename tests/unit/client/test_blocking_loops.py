"""Loops over a blocking consumer: they wait without end, and end when they are told to."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tern_client import BlockingConsumer, ClientClosed
from tern_client.transport.blocking_transport import PlainTransport
from tests.support.client.leasing_proxy import LeasingProxy
from tests.support.client.scripted_proxy import SILENT, Asked, Reply, ScriptedProxy, blocking_proxy, said
from tests.unit.client.deliveries import delivered

ROOT = Path(__file__).resolve().parents[3]


def script(*replies: Reply) -> Callable[[Asked], Reply]:
    """Receives get *replies*, then wait for ever; all settles are fine."""
    left = list(replies)

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/settle"):
            return said({"results": []})
        return left.pop(0) if left else SILENT

    return answer


def polled(proxy: ScriptedProxy, count: int) -> None:
    """Return when *proxy* has got *count* requests."""
    for _ in range(2_000):
        if len(proxy.asked) >= count:
            return
        threading.Event().wait(0.005)
    raise AssertionError(f"not asked {count} times within 10 s: {proxy.asked}")


def test_a_loop_goes_on_after_an_empty_receive_and_polls_for_as_long_as_the_async_one() -> None:
    """A worker that ends when its queue is empty for a moment does nothing from then on."""
    seen: list[str] = []
    with (
        blocking_proxy(script(delivered(), delivered(0), delivered(), delivered(1))) as proxy,
        BlockingConsumer(proxy.url, "t", "g") as consumer,
    ):
        for message in consumer:
            seen.append(message.message_id)
            if len(seen) == 2:
                break
        assert seen == ["m0", "m1"]
        assert {asked.document["wait"] for asked in proxy.asked} == {20_000}


def test_a_loop_until_idle_ends_when_nothing_has_come_for_so_long() -> None:
    """And begins anew with every message."""
    now_ms = [0]

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/receive"):
            now_ms[0] += 900 if len(proxy.asked) != 3 else asked.document["wait"]
        return script(*([delivered(len(proxy.asked))] if len(proxy.asked) in {2, 4} else [delivered()]))(asked)

    with (
        blocking_proxy(answer) as proxy,
        BlockingConsumer(proxy.url, "t", "g", clock=lambda: now_ms[0]) as consumer,
    ):
        seen = [message.message_id for message in consumer.until_idle(1_000)]
        waits = [asked.document["wait"] for asked in proxy.asked]
    assert (seen, waits) == (["m2"], [1_000, 100, 1_000])


@pytest.mark.parametrize("way", ["stop", "close"])
@pytest.mark.parametrize("use", ["loop", "receive"])
def test_another_thread_ends_a_wait_at_once(use: str, way: str) -> None:
    """`stop` ends a loop in order; who closes a consumer that is in use tells its loop so. What was confirmed is acked in either case."""
    ended: list[object] = []
    with blocking_proxy(script(delivered(0))) as proxy:
        consumer = BlockingConsumer(proxy.url, "t", "g")

        def work() -> None:
            try:
                if use == "loop":
                    for message in consumer:
                        consumer.confirm(message)
                else:
                    while messages := consumer.receive():
                        consumer.confirm(*messages)
                ended.append(None)
            except ClientClosed as error:
                ended.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        polled(proxy, 2)
        getattr(consumer, way)()
        worker.join(10)
        assert not worker.is_alive()
        consumer.close()
        assert [isinstance(one, ClientClosed) for one in ended] == [way == "close"]
        assert proxy.asked[-1].document["entries"] == [{"receipt_handle": "h0", "action": "ack"}]


def test_a_stopped_consumer_receives_no_more_and_settles_what_it_has() -> None:
    """Also what was there when it was stopped."""
    with blocking_proxy(script(delivered(0), delivered(1))) as proxy, BlockingConsumer(proxy.url, "t", "g") as consumer:
        (message,) = consumer.receive()
        consumer.stop()
        assert consumer.receive() == []
        assert list(consumer) == []
        assert consumer.ack(message) == {}
        assert [asked.path.rpartition("/")[2] for asked in proxy.asked] == ["receive", "settle"]


UNCLOSED = """
import sys
from tern_client import BlockingConsumer
handled = 0
consumer = BlockingConsumer(sys.argv[1], "t", "g", clock=lambda: 0)
for message in consumer:
    handled += 1
    if handled == 5:
        raise ValueError("database down")
    consumer.confirm(message)
"""


def test_a_program_that_ends_by_an_exception_gives_back_what_nobody_saw() -> None:
    """No `with`, no `close`: at Python's exit. What it had confirmed is acked as well."""
    leasing = LeasingProxy(100)
    with blocking_proxy(leasing.answer) as proxy:
        command = [sys.executable, "-c", UNCLOSED, proxy.url]
        worker = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    leasing.expire()
    assert worker.stderr.endswith("ValueError: database down\n"), worker.stderr
    assert leasing.counted == dict.fromkeys([f"m{number}" for number in range(5)], 1)
    assert (leasing.released, leasing.acked) == ([5, 6], {0, 1, 2, 3})


def test_messages_that_come_when_another_thread_has_closed_go_back() -> None:
    """They were under way: whoever closed could not know of them, and the loop does not hand them out."""
    leasing = LeasingProxy(3)
    closed, asked = threading.Event(), threading.Event()

    def answer(request: Asked) -> Reply:
        if request.path.endswith("/receive"):
            asked.set()
            assert closed.wait(10)
        return leasing.answer(request)

    class Patient(PlainTransport):
        """Its polls cannot be ended, as behind a forward proxy."""

        def abandon(self) -> None:
            return

    with blocking_proxy(answer) as proxy:
        consumer = BlockingConsumer(proxy.url, "t", "g", transport=Patient())
        ended: list[type[BaseException]] = []

        def work() -> None:
            try:
                list(consumer)
            except ClientClosed as error:
                ended.append(type(error))

        worker = threading.Thread(target=work)
        worker.start()
        assert asked.wait(10)
        consumer.close()
        closed.set()
        worker.join(10)
    assert (ended, leasing.counted, leasing.released) == ([ClientClosed], {}, [0])


FORKING = """
import contextlib, os, sys
from tern_client import BlockingConsumer
consumer = BlockingConsumer(sys.argv[1], "t", "g", clock=lambda: 0)
with consumer if sys.argv[2] == "with" else contextlib.nullcontext():
    for handled, message in enumerate(consumer, 1):
        if handled == 5 and not os.fork():
            sys.exit()
        if handled == 5:
            os.wait()
        consumer.confirm(message)
        if handled == 7:
            break
"""


@pytest.mark.parametrize("way", ["with", "without"])
def test_the_end_of_a_forked_child_gives_nothing_back_that_its_parent_holds(way: str) -> None:
    """It has a copy of what the parent has received ahead, and is going to hand out."""
    leasing = LeasingProxy(100)
    with blocking_proxy(leasing.answer) as proxy:
        command = [sys.executable, "-c", FORKING, proxy.url, way]
        worker = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert (worker.returncode, worker.stderr) == (0, "")
    assert (leasing.released, leasing.acked) == ([], set(range(7)))
