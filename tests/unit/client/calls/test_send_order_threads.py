"""Message groups in the blocking client, and in requests that wait for a reply: the same law, also between threads that share a producer."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tern_client import BlockingProducer, OutgoingMessage, Producer, RetryPolicy
from tern_client.calls.turns import TurnNotReached
from tern_client.transport.exchange import ProxyUnreachable, Request, Response, lost_connection
from tern_wire.errors import NoLeader, TernError
from tests.support.client.shaky_brokers import Arrived, read_messages, refusal, said

EAGER = RetryPolicy(first_delay_ms=0, max_delay_ms=0)
Fate = Callable[[], Response]


def _raise(error: Exception) -> Response:
    raise error


FATES: dict[str, Fate] = {
    "refused": lambda: refusal(NoLeader(broker_group="broker-a")),
    "lost": lambda: _raise(lost_connection("http://127.0.0.1:1", "no answer")),
    "unreachable": lambda: _raise(ProxyUnreachable(endpoint="http://127.0.0.1:1", reason="connection refused")),
}


class HeldTransport:
    """The first request of message group a is held until `go` is set, and then meets *fate*; all others are stored when they come."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate
        self._lock = threading.Lock()
        self._held = False
        self.here, self.go, self.second = threading.Event(), threading.Event(), threading.Event()
        self.stored: list[bytes] = []

    def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As BlockingTransport."""
        _, messages = read_messages(request)
        with self._lock:
            is_first = messages[0].message_group == "a" and not self._held
            self._held |= is_first
        if is_first:
            self.here.set()
            assert self.go.wait(20)
            return self._fate()
        with self._lock:
            if messages[0].message_group == "a":
                self.second.set()
            return answer(request, messages, self.stored)

    def abandon(self) -> None:
        """As BlockingTransport."""

    def close(self) -> None:
        """As BlockingTransport."""


def answer(request: Request, messages: list[Arrived], stored: list[bytes]) -> Response:
    """All of *messages* are stored now."""
    receipts = []
    for message in messages:
        receipts.append({"message_id": "m", "queue": "broker-a:0", "offset": len(stored), "born_at": 0})
        stored.append(message.body)
    return said({"results": receipts}) if request.path.endswith("/batch") else said(receipts[0])


def until(is_so: Callable[[], bool]) -> None:
    """Polled, for at most 20 s."""
    deadline_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)


def call_of(kind: str, producer: BlockingProducer, body: bytes) -> Callable[[], object]:
    """A send of *kind* to message group a."""
    message = OutgoingMessage(body=body, message_group="a")
    return {
        "send": lambda: producer.send("t", body, message_group="a"),
        "send_message": lambda: producer.send_message("t", message),
        "send_batch": lambda: producer.send_batch("t", [message], return_errors=True).confirmed(),
    }[kind]


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("kind", ["send", "send_message", "send_batch"])
def test_threads_that_share_a_message_group_take_turns(kind: str, fate: str) -> None:
    """The second thread calls while the first one's request is held and fails; another message group is not kept."""
    transport = HeldTransport(FATES[fate])
    with BlockingProducer(["http://127.0.0.1:1", "http://127.0.0.1:2"], transport=transport, policy=EAGER) as producer:
        first = threading.Thread(target=call_of(kind, producer, b"first"))
        first.start()
        assert transport.here.wait(20)
        second = threading.Thread(target=call_of("send", producer, b"second"))
        second.start()
        producer.send("t", b"other", message_group="b")
        # Without turns it is stored at once; with them it never comes before the first one has ended.
        transport.second.wait(0.1)
        transport.go.set()
        for thread in (first, second):
            thread.join(20)
            assert not thread.is_alive()
    assert transport.stored == [b"other", b"first", b"second"]


def test_threads_that_wait_a_whole_deadline_behind_an_outage_send_nothing() -> None:
    """All of them, as soon as the first has failed; who comes later is sent."""
    transport = HeldTransport(FATES["refused"])
    policy = RetryPolicy(first_delay_ms=0, max_delay_ms=0, deadline_ms=50)
    with BlockingProducer("http://127.0.0.1:1", transport=transport, policy=policy) as producer:

        def first_of_all() -> None:
            with pytest.raises(NoLeader):
                producer.send("t", b"first", message_group="a")

        first = threading.Thread(target=first_of_all)
        first.start()
        assert transport.here.wait(20)
        told: list[TernError] = []

        def behind() -> None:
            with pytest.raises(TurnNotReached) as error:
                producer.send("t", b"behind", message_group="a")
            told.append(error.value)

        threads = [threading.Thread(target=behind) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: len(tuple(producer._turns.of(("t", "a")))) == 3)
        since_s = time.monotonic()
        until(lambda: time.monotonic() > since_s + 0.06)
        transport.go.set()
        for thread in (first, *threads):
            thread.join(20)
        assert [error.retryable for error in told] == [True, True]
        producer.send("t", b"fourth", message_group="a")
    assert transport.stored == [b"fourth"]


async def test_requests_of_one_message_group_are_sent_in_turn() -> None:
    """The next one when its predecessor has its reply; others at once."""
    gate, asked = asyncio.Event(), list[bytes]()

    class Replying:
        async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
            _, messages = read_messages(request)
            asked.append(messages[0].body)
            if asked == [b"1"]:
                await gate.wait()
            reply: dict[str, Any] = {"message_id": "m", "topic": "t", "queue": "broker-a:0", "offset": 0}
            return said({**reply, "body": "ok", "born_at": 0, "stored_at": 0, "correlation_id": "c"})

        async def close(self) -> None:
            pass

    async with Producer("http://127.0.0.1:1", transport=Replying(), policy=EAGER) as producer:
        one, two = (asyncio.create_task(producer.request("t", body, message_group="a")) for body in (b"1", b"2"))
        while not asked:
            await asyncio.sleep(0)
        await producer.request("t", b"free")
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked == [b"1", b"free"]
        gate.set()
        await asyncio.gather(one, two)
    assert asked == [b"1", b"free", b"2"]
