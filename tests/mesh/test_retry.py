"""What becomes of a message that was received and not acked: when it comes back, as which attempt, and to whom."""

import secrets
import time
from functools import partial
from typing import Any

import pytest

from tern_client import BlockingConsumer, BlockingProducer, OutgoingMessage, ReceivedMessage
from tests.support.mesh.mesh import Mesh, eventually


def both(mesh: Mesh) -> list[str]:
    """The endpoints of both proxies."""
    return [mesh.endpoint, f"http://127.0.0.1:{mesh.port_base + 1}"]


def consumer_of(mesh: Mesh, topic: str, group: str = "workers", **options: Any) -> BlockingConsumer:
    """A consumer through any proxy."""
    return BlockingConsumer(both(mesh), topic, group, wait_ms=5_000, **options)


def prepare(mesh: Mesh, topic: str, count: int, group: str = "workers", **settings: Any) -> None:
    """Topic, group with *settings*, and messages 0 ... in one queue."""
    mesh.create(topic, group)
    if settings:
        changed = mesh.settled("PATCH", f"/v1/groups/{group}", json=settings)
        assert changed.status_code == 200, changed.text
    with BlockingProducer(both(mesh)) as producer:
        messages = [OutgoingMessage(body=b"%d" % number, queue="broker-a:0") for number in range(count)]
        producer.send_batch(topic, messages).confirmed()


def taken(consumer: BlockingConsumer, count: int = 0, wait_ms: int | None = None) -> list[ReceivedMessage]:
    """One receive; with an id of its own, so that it has the same messages when its leader dies and it is repeated."""
    return consumer.receive(count, wait_ms, secrets.token_hex(8))


def test_a_nack_with_a_delay_brings_the_message_back_after_it_and_not_before(mesh: Mesh) -> None:
    """Not early by this machine's clock; a parked poll is woken by it; the other messages are not held up."""
    prepare(mesh, "nacked", 3)
    with consumer_of(mesh, "nacked") as consumer:
        received = taken(consumer)
        assert [message.body for message in received] == [b"0", b"1", b"2"]
        began = time.monotonic()
        assert consumer.nack(received[1], delay_ms=1_500) == {}
        assert consumer.ack(received[0], received[2]) == {}
        (again,) = eventually(partial(taken, consumer), within_s=20, what="the nacked message")
        assert time.monotonic() - began >= 1.4
        assert (again.body, again.attempt) == (b"1", 2)
        assert consumer.ack(again) == {}


def test_without_a_delay_the_group_s_policy_decides(mesh: Mesh) -> None:
    """Custom delays: 0.5 s after the first attempt, 1 s after every later one."""
    prepare(mesh, "policy", 1, "patient", retry={"policy": "custom", "delays": ["500ms", "1s"]})
    with consumer_of(mesh, "policy", "patient") as consumer:
        for attempt, delay_s in ((1, 0.5), (2, 1.0), (3, 1.0)):
            (message,) = eventually(partial(taken, consumer), within_s=20, what=f"attempt {attempt}")
            assert message.attempt == attempt
            began = time.monotonic()
            consumer.nack(message)
            assert taken(consumer, wait_ms=0) == []
            assert time.monotonic() - began < delay_s + 15
        (message,) = eventually(partial(taken, consumer), within_s=20, what="attempt 4")
        assert message.attempt == 4
        consumer.ack(message)


def test_a_nack_of_one_message_leaves_its_batch_to_the_consumer(mesh: Mesh) -> None:
    """The rest of the lease is still held, can be extended and acked; the handles stay what they were."""
    prepare(mesh, "batch", 8)
    with consumer_of(mesh, "batch") as consumer:
        received = taken(consumer, 8)
        assert consumer.nack(received[3], delay_ms=0) == {}
        (again,) = eventually(partial(taken, consumer), within_s=20, what="the nacked message")
        assert (again.body, again.attempt) == (b"3", 2)
        rest = [message for message in received if message is not received[3]]
        assert consumer.extend(60_000, *rest) == {}
        assert consumer.ack(*rest, again) == {}
        late = consumer.ack(received[3], return_errors=True)
        assert late == {}, "acked by its later holder: it is settled, whoever says so"


def test_one_settle_request_does_each_of_the_four_and_says_what_failed(mesh: Mesh) -> None:
    """Per-entry results in the order of the request; an over lease is 410, a forged handle 400; fields that do not belong are refused."""
    prepare(mesh, "settles", 4)
    with consumer_of(mesh, "settles") as consumer:
        handles = [message.receipt_handle for message in taken(consumer, 4)]
    path = "/v1/topics/settles/groups/workers/settle"
    entries: list[dict[str, Any]] = [
        {"receipt_handle": handles[0]},
        {"receipt_handle": handles[1], "action": "nack", "delay": "1h"},
        {"receipt_handle": "forged"},
        {"receipt_handle": handles[2], "action": "dead_letter", "reason": "no use"},
        {"receipt_handle": handles[3], "action": "extend", "invisible": "2m"},
        {"receipt_handle": handles[1], "action": "extend", "invisible": "2m"},
    ]
    answer = mesh.settled("POST", path, json={"entries": entries})
    assert answer.status_code == 207, answer.text
    results = answer.json()["results"]
    assert [result.get("status", result.get("error", {}).get("code")) for result in results][2] == "receipt-invalid"
    assert [result["receipt_handle"] for result in results] == [entry["receipt_handle"] for entry in entries]
    assert {result.get("status", "") for result in (results[0], results[3], results[4])} == {"ok"}
    for entry in (
        {"receipt_handle": handles[0], "action": "reject"},
        {"receipt_handle": handles[0], "action": "ack", "delay": "1s"},
        {"receipt_handle": handles[0], "action": "nack", "delay": "13h"},
        {"receipt_handle": handles[0], "action": "nack", "delay": "soon"},
        {"receipt_handle": handles[0], "action": "dead_letter", "reason": "x" * 1025},
    ):
        refused = mesh.settled("POST", path, json={"entries": [entry]})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-field"), entry


def test_a_receive_repeated_with_its_attempt_id_gets_the_same_messages_and_handles(mesh: Mesh) -> None:
    """Through another proxy as well; another id, or none, gets others; after the acks the id begins anew."""
    prepare(mesh, "repeated", 6)
    one, other = (BlockingConsumer([endpoint], "repeated", "workers", wait_ms=5_000) for endpoint in both(mesh))
    with one, other:
        first = one.receive(2, attempt_id="try-1")
        assert len(first) == 2
        again = other.receive(2, attempt_id="try-1")
        assert [(message.body, message.receipt_handle) for message in again] == [
            (message.body, message.receipt_handle) for message in first
        ]
        others = one.receive(2, attempt_id="try-2") + taken(other, 2)
        assert sorted(message.body for message in first + others) == [b"%d" % number for number in range(6)]
        assert one.ack(*first) == {}
        assert other.receive(2, wait_ms=0, attempt_id="try-1") == []
        assert one.ack(*others) == {}


@pytest.mark.parametrize("attempt_id", ["x" * 65])
def test_an_attempt_id_that_is_too_long_is_refused(mesh: Mesh, attempt_id: str) -> None:
    """A typed problem that says where."""
    mesh.create("repeated", "workers")
    path = "/v1/topics/repeated/groups/workers/receive"
    refused = mesh.settled("POST", path, json={"attempt_id": attempt_id})
    assert (refused.status_code, refused.json()["pointer"]) == (400, "/attempt_id")
