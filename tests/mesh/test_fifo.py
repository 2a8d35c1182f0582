"""Message groups: the order in which they come, what holds one up and what does not, through retries, dead letters and growth."""

import threading
import time
from collections import defaultdict
from functools import partial
from typing import Any

from tern_client import BlockingConsumer, BlockingProducer, OutgoingMessage, ReceivedMessage
from tests.mesh.test_retry import taken
from tests.support.mesh.mesh import Mesh, eventually

DRAIN_S = 60.0


def both(mesh: Mesh) -> list[str]:
    """The endpoints of both proxies."""
    return [mesh.endpoint, f"http://127.0.0.1:{mesh.port_base + 1}"]


def prepare(mesh: Mesh, topic: str, group: str, queues: int = 4, **settings: Any) -> None:
    """A topic, and an ordered group of its own."""
    mesh.create(topic, queues=queues)
    made = mesh.settled("PUT", f"/v1/groups/{group}", json={"invisible": "5s", "fifo": True, **settings})
    assert made.status_code in {200, 201}, made.text


def send(mesh: Mesh, topic: str, *message_groups: str, first: int = 0) -> list[tuple[str, str]]:
    """One message of each of *message_groups*, numbered from *first* on; (message group, body) in the order in which they are stored."""
    with BlockingProducer(both(mesh)) as producer:
        messages = [
            OutgoingMessage(body=b"%d" % number, message_group=name)
            for number, name in enumerate(message_groups, first)
        ]
        receipts = producer.send_batch(topic, messages).confirmed()
    homes: dict[str, set[str]] = defaultdict(set)
    for receipt, message in zip(receipts, messages, strict=True):
        homes[message.message_group].add(receipt.queue)
    assert all(len(queues) == 1 for queues in homes.values()), "a message group lies in one queue"
    order = sorted(zip(receipts, messages, strict=True), key=lambda pair: (pair[0].queue, pair[0].offset))
    return [(message.message_group, message.body.decode()) for _, message in order]


def by_message_group(sent: list[tuple[str, str]]) -> dict[str, list[str]]:
    """The bodies of each message group, in order."""
    found: dict[str, list[str]] = defaultdict(list)
    for message_group, body in sent:
        found[message_group].append(body)
    return dict(found)


class Receivers:
    """Threads that receive and ack until every message was acked; they note in which order each message was first seen."""

    def __init__(self, mesh: Mesh, topic: str, group: str, count: int = 2) -> None:
        self.seen: dict[str, list[str]] = defaultdict(list)
        self._wanted, self._topic, self._group, self._mesh = 1 << 62, topic, group, mesh
        self._lock = threading.Lock()
        self._in_hand: dict[str, str] = {}
        self.faults: list[str] = []
        self._until_s = time.monotonic() + DRAIN_S
        self._threads = [threading.Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def drain(self, messages: int) -> dict[str, list[str]]:
        """Wait until so many different messages were seen and acked."""
        self._wanted = messages
        for thread in self._threads:
            thread.join()
        assert not self.faults, self.faults
        assert sum(map(len, self.seen.values())) == messages
        return dict(self.seen)

    def _run(self) -> None:
        with BlockingConsumer(both(self._mesh), self._topic, self._group, wait_ms=1_000, max_messages=8) as consumer:
            while sum(map(len, self.seen.values())) < self._wanted:
                if time.monotonic() > self._until_s:
                    self.faults.append(f"after {DRAIN_S:.0f} s messages are missing")
                    return
                received = taken(consumer)
                for message in received:
                    self._note(message)
                consumer.ack(*received)

    def _note(self, message: ReceivedMessage) -> None:
        body = message.body.decode()
        with self._lock:
            line = self.seen[message.message_group]
            if body not in line:
                line.append(body)
            elif body != line[-1]:
                self.faults.append(f"{body} of {message.message_group} came again behind {line[-1]}")


def test_each_message_group_comes_in_its_order_to_several_receivers(mesh: Mesh) -> None:
    """Two receivers at two proxies, 30 message groups of 10 messages; a message comes again at most before its successor."""
    prepare(mesh, "ordered", "in-order")
    sent = send(mesh, "ordered", *(f"g{number % 30}" for number in range(300)))
    assert Receivers(mesh, "ordered", "in-order").drain(300) == by_message_group(sent)


def test_a_topic_of_type_fifo_is_delivered_in_order_to_every_group(mesh: Mesh) -> None:
    """Also to a group that does not ask for it; a message without a message group is refused."""
    made = mesh.settled("PUT", "/v1/topics/orders-fifo", json={"queues": 2, "type": "FIFO"})
    assert made.status_code in {200, 201}, made.text
    assert mesh.settled("PUT", "/v1/groups/any-order", json={"invisible": "5s"}).status_code in {200, 201}
    sent = send(mesh, "orders-fifo", *("a", "b", "a", "c", "a", "b"))
    assert Receivers(mesh, "orders-fifo", "any-order").drain(6) == by_message_group(sent)
    refused = mesh.settled("POST", "/v1/topics/orders-fifo/messages", json={"body": "x"})
    assert (refused.status_code, refused.json()["code"]) == (400, "property-conflicts-with-type"), refused.text


def test_a_nack_holds_up_its_own_message_group_only(mesh: Mesh) -> None:
    """The nacked one comes again before the next of its message group; all others go on meanwhile."""
    prepare(mesh, "nacked-fifo", "nackers", queues=1, invisible="30s")
    send(mesh, "nacked-fifo", "a", "b", "a", "b", "a", "b")
    with BlockingConsumer(both(mesh), "nacked-fifo", "nackers", wait_ms=5_000) as consumer:
        first = {message.message_group: message for message in taken(consumer)}
        assert {name: message.body for name, message in first.items()} == {"a": b"0", "b": b"1"}
        assert consumer.nack(first["a"], delay_ms=2_500) == {}
        assert consumer.ack(first["b"]) == {}
        bodies: list[tuple[bytes, int]] = []
        while len(bodies) < 5:
            for message in eventually(partial(taken, consumer), within_s=30, what="the rest"):
                bodies.append((message.body, message.attempt))
                assert consumer.ack(message) == {}
    assert [each for each in bodies if each[0] in {b"0", b"2", b"4"}] == [(b"0", 2), (b"2", 1), (b"4", 1)]
    assert bodies[:2] == [(b"3", 1), (b"5", 1)]


def test_a_long_poll_is_woken_when_a_message_group_is_unblocked(mesh: Mesh) -> None:
    """Somebody acks the one in hand: the poll of another receiver gets the next one, long before its deadline."""
    prepare(mesh, "woken-fifo", "waiters", queues=1, invisible="60s")
    send(mesh, "woken-fifo", "a", "a")
    with BlockingConsumer(both(mesh), "woken-fifo", "waiters") as one:
        (first,) = eventually(partial(taken, one), within_s=20, what="the first message")
        got: list[ReceivedMessage] = []

        def wait() -> None:
            with BlockingConsumer(both(mesh), "woken-fifo", "waiters", wait_ms=20_000) as other:
                got.extend(eventually(partial(taken, other), within_s=60, what="the next message"))

        thread = threading.Thread(target=wait)
        began = time.monotonic()
        thread.start()
        assert taken(one, wait_ms=500) == []
        one.ack(first)
        thread.join()
    assert [message.body for message in got] == [b"1"]
    assert time.monotonic() - began < 19


def test_after_a_dead_letter_the_message_group_goes_on(mesh: Mesh) -> None:
    """One attempt each: what is nacked goes to the dead letters, and its successor comes."""
    prepare(mesh, "dying-fifo", "strict", queues=1, max_attempts=1)
    send(mesh, "dying-fifo", "a", "a", "a")
    seen: list[bytes] = []
    with BlockingConsumer(both(mesh), "dying-fifo", "strict", wait_ms=5_000, invisible_ms=30_000) as consumer:
        while len(seen) < 3:
            (message,) = eventually(partial(taken, consumer), within_s=30, what="the next message")
            seen.append(message.body)
            consumer.nack(message, delay_ms=60_000)
    assert seen == [b"0", b"1", b"2"]


def test_a_topic_that_grows_keeps_the_order_of_every_message_group(mesh: Mesh) -> None:
    """Before, while and after it grows, with receivers at work all the time; and for a group that comes when all that is over."""
    prepare(mesh, "growing-fifo", "growers", queues=2)
    names = [f"g{number % 12}" for number in range(60)]
    sent = send(mesh, "growing-fifo", *names)
    receivers = Receivers(mesh, "growing-fifo", "growers")
    for round_, queues in enumerate((3, 5, 8), 1):
        grown = mesh.settled("PUT", "/v1/topics/growing-fifo", json={"queues": queues})
        assert grown.status_code == 200, grown.text
        sent += send(mesh, "growing-fifo", *names, first=round_ * 60)
    expected = by_message_group(sorted(sent, key=lambda each: int(each[1])))
    assert receivers.drain(240) == expected
    made = mesh.settled("PUT", "/v1/groups/late-growers", json={"invisible": "5s", "fifo": True})
    assert made.status_code in {200, 201}, made.text
    assert Receivers(mesh, "growing-fifo", "late-growers").drain(240) == expected
    used = mesh.settled("GET", "/v1/topics/growing-fifo/offsets").json()["queues"]
    assert len(used) == 8


def test_a_message_group_and_a_queue_exclude_each_other(mesh: Mesh) -> None:
    """The message group has a queue; to name another one is an error that says so."""
    prepare(mesh, "pinned-fifo", "pinners")
    message = {"body": "x", "message_group": "a", "queue": "broker-a:1"}
    refused = mesh.settled("POST", "/v1/topics/pinned-fifo/messages/batch", json={"messages": [message]})
    problem = refused.json()
    assert refused.status_code == 400, problem
    assert "queue" in refused.text
