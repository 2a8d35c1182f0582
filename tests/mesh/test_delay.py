"""Delayed messages: when they come, which wait, how one is taken back; and message groups as a send says them."""

import asyncio
import json
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_client import Admin, BlockingAdmin, BlockingProducer, OutgoingMessage, Producer
from tern_wire.errors import AlreadyDelivered, NotScheduled, OutcomeUnknown
from tests.mesh.test_groups import receive as one_receive
from tests.support.mesh.mesh import Mesh, eventually

HOUR_MS = 3_600_000


def now_ms() -> int:
    """By this machine's clock, which the brokers use, too."""
    return time.time_ns() // 1_000_000


def create(mesh: Mesh, topic: str, group: str = "", kind: str = "DELAY") -> None:
    """A topic of a type, and a group."""
    assert mesh.settled("PUT", f"/v1/topics/{topic}", json={"queues": 4, "type": kind}).status_code in {200, 201}
    if group:
        assert mesh.settled("PUT", f"/v1/groups/{group}", json={}).status_code in {200, 201}


def ask(mesh: Mesh, method: str, path: str, **options: Any) -> httpx.Response:
    """As settled, repeated also while the outcome is unknown: what is asked here may be done twice."""

    def attempt() -> httpx.Response | None:
        answer = mesh.settled(method, path, **options)
        return None if answer.status_code == 504 else answer

    found: httpx.Response = eventually(attempt, within_s=20, what=f"{method} {path} answered")
    return found


def send(mesh: Mesh, topic: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The receipts of a batch, every message stored once."""
    keyed = [{"idempotency_key": f"{topic}-{message['body']}", **message} for message in messages]
    answer = ask(mesh, "POST", f"/v1/topics/{topic}/messages/batch", json={"messages": keyed})
    assert answer.json()["failed"] == 0, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def receive(
    mesh: Mesh, topic: str, group: str, count: int, *, within_s: float = 30
) -> list[tuple[int, dict[str, Any]]]:
    """*count* messages, each with the time at which it was there, in the order of coming; all are acked."""
    got: dict[str, tuple[int, dict[str, Any]]] = {}
    path = f"/v1/topics/{topic}/groups/{group}"

    def some() -> bool:
        messages = one_receive(mesh, topic, group, wait="2s", max_messages=32)
        for message in messages:
            got.setdefault(message["message_id"], (now_ms(), message))
        handles = [message["receipt_handle"] for message in messages]
        if handles:
            ask(mesh, "POST", f"{path}/ack", json={"receipt_handles": handles})
        return len(got) >= count

    eventually(some, within_s=within_s, what=f"{count} messages of {topic}")
    return list(got.values())


def waiting(mesh: Mesh, topic: str, query: str = "") -> list[dict[str, Any]]:
    """All pages of the list."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        path = f"/v1/topics/{topic}/scheduled?limit=3{query}" + (f"&cursor={cursor}" if cursor else "")
        answer = mesh.settled("GET", path)
        assert answer.status_code == 200, answer.text
        found += answer.json()["messages"]
        cursor = answer.json().get("next_cursor", "")
        if not cursor:
            return found


def recall(mesh: Mesh, topic: str, handle: str) -> httpx.Response:
    """One recall; after an outcome that is not known, what the next one says."""
    return ask(mesh, "DELETE", f"/v1/topics/{topic}/scheduled/{handle}")


def test_delayed_messages_come_when_their_time_comes_and_not_before(mesh: Mesh) -> None:
    """By delay, time and level, by header, query and batch: each once, none early."""
    create(mesh, "delay-times", "delay-times-readers")
    at_ms = now_ms() + 2_500
    receipts = send(
        mesh,
        "delay-times",
        {"body": "level", "delay_level": 1},
        {"body": "delay", "delay": "1500ms"},
        {"body": "time", "deliver_at": at_ms},
        {"body": "text", "deliver_at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()},
    )
    path = "/v1/topics/delay-times/messages"
    headers = {"Idempotency-Key": "delay-times-header", "MQ-Delay": "2s"}
    header = ask(mesh, "POST", path, content=b"header", headers=headers)
    query = ask(mesh, "POST", path + "?delay_level=1&idempotency_key=delay-times-query", content=b"query")
    for receipt in (*receipts, header.json(), query.json()):
        assert receipt["offset"] == -1
        assert receipt["recall_handle"]
    assert receipts[2]["deliver_at"] == at_ms
    assert receipts[0]["deliver_at"] == receipts[0]["born_at"] + 1_000
    got = receive(mesh, "delay-times", "delay-times-readers", 6)
    assert sorted(message["body"] for _, message in got) == ["delay", "header", "level", "query", "text", "time"]
    for came_ms, message in got:
        assert came_ms >= message["deliver_at"], "never early"
    assert waiting(mesh, "delay-times") == []


def test_a_time_that_is_over_is_at_once(mesh: Mesh) -> None:
    """As RocketMQ: the receipt has an offset, there is nothing to recall."""
    create(mesh, "delay-past", "delay-past-readers")
    receipts = send(mesh, "delay-past", {"body": "past", "deliver_at": 1_000}, {"body": "now", "delay": 0})
    for receipt in receipts:
        assert receipt["offset"] >= 0
        assert "recall_handle" not in receipt
    assert len(receive(mesh, "delay-past", "delay-past-readers", 2)) == 2


def test_a_parked_receive_is_woken_when_a_delay_is_over(mesh: Mesh) -> None:
    """It waits for one message that is not visible yet, and gets it long before its own end."""
    create(mesh, "delay-wake", "delay-wake-readers")
    (receipt,) = send(mesh, "delay-wake", {"body": "soon", "delay": "1s"})
    (message,) = eventually(
        lambda: one_receive(mesh, "delay-wake", "delay-wake-readers", wait="25s"), within_s=30, what="the message"
    )
    assert (message["body"], message["deliver_at"]) == ("soon", receipt["deliver_at"])
    assert now_ms() >= message["deliver_at"]


def test_what_waits_is_listed_and_can_be_taken_back(mesh: Mesh) -> None:
    """By time, in pages, of this topic only; a recalled message is gone for good, and a second recall says so."""
    create(mesh, "delay-list", "delay-list-readers")
    create(mesh, "delay-other")
    base_ms = now_ms() + HOUR_MS
    messages = [{"body": f"{n}", "deliver_at": base_ms + n * 60_000, "tag": "T", "keys": [f"k{n}"]} for n in range(7)]
    receipts = send(mesh, "delay-list", *messages[::-1])[::-1]
    send(mesh, "delay-other", {"body": "other", "deliver_at": base_ms})
    (soon,) = send(mesh, "delay-list", {"body": "soon", "delay": "1s"})
    got = receive(mesh, "delay-list", "delay-list-readers", 1)
    assert got[0][1]["body"] == "soon"
    listed = waiting(mesh, "delay-list")
    assert [(row["deliver_at"], row["message_id"], row["queue"]) for row in listed] == [
        (receipt["deliver_at"], receipt["message_id"], receipt["queue"]) for receipt in receipts
    ]
    assert [row["recall_handle"] for row in listed] == [receipt["recall_handle"] for receipt in receipts]
    assert (listed[3]["tag"], listed[3]["keys"], listed[3]["body_size"]) == ("T", ["k3"], 1)
    some = waiting(mesh, "delay-list", f"&from={base_ms + 60_000}&to={base_ms + 240_000}")
    assert [row["keys"] for row in some] == [["k1"], ["k2"], ["k3"]]
    first = recall(mesh, "delay-list", receipts[2]["recall_handle"])
    assert first.status_code in {204, 404}, first.text  # 404: after a broken attempt that had worked
    again = recall(mesh, "delay-list", receipts[2]["recall_handle"])
    assert (again.status_code, again.json()["code"]) == (404, "not-scheduled")
    late = recall(mesh, "delay-list", soon["recall_handle"])
    assert (late.status_code, late.json()["code"]) == (409, "already-delivered")
    assert [row["keys"] for row in waiting(mesh, "delay-list")] == [[f"k{n}"] for n in (0, 1, 3, 4, 5, 6)]
    assert mesh.settled("GET", "/v1/topics/delay-list/stats").json()["scheduled"] == 6
    for topic, handle in (
        ("delay-other", receipts[0]["recall_handle"]),
        ("delay-list", "AQ" + "A" * 60),
        ("delay-list", "x"),
    ):
        forged = mesh.settled("DELETE", f"/v1/topics/{topic}/scheduled/{handle}")
        assert (forged.status_code, forged.json()["code"]) == (400, "recall-handle-invalid"), handle


def test_a_repeated_send_gets_the_first_receipt_while_it_waits_and_afterwards(mesh: Mesh) -> None:
    """Recall handle, time and birth are the first one's, though the delay is counted from each attempt anew."""
    create(mesh, "delay-twice", "delay-twice-readers")
    path = "/v1/topics/delay-twice/messages"
    headers = {"Idempotency-Key": "delay-twice", "MQ-Delay": "2s"}
    first = ask(mesh, "POST", path, content=b"once", headers=headers).json()
    again = ask(mesh, "POST", path, content=b"once", headers=headers)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == first
    other = ask(mesh, "POST", path, content=b"another body", headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-key-reused")
    got = receive(mesh, "delay-twice", "delay-twice-readers", 1)
    assert got[0][1]["message_id"] == first["message_id"]
    assert ask(mesh, "POST", path, content=b"once", headers=headers).json() == first
    offsets = mesh.settled("GET", "/v1/topics/delay-twice/offsets").json()["queues"]
    assert sum(queue["max_offset"] for queue in offsets) == 1


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"delay": "41d"}, "illegal-delivery-time", "/delay"),
        ({"delay": -1}, "illegal-delivery-time", "/delay"),
        ({"delay": "soon"}, "illegal-delivery-time", "/delay"),
        ({"delay": ""}, "illegal-delivery-time", "/delay"),
        ({"deliver_at": "tomorrow"}, "illegal-delivery-time", "/deliver_at"),
        ({"deliver_at": -5}, "illegal-delivery-time", "/deliver_at"),
        ({"deliver_at": 99_999_999_999_999}, "illegal-delivery-time", "/deliver_at"),
        ({"delay_level": 0}, "illegal-delivery-time", "/delay_level"),
        ({"delay": "1s", "delay_level": 1}, "illegal-delivery-time", "/delay_level"),
        ({"delay": "1s", "deliver_at": 1}, "illegal-delivery-time", "/deliver_at"),
        ({"message_group": "g", "delay": "1s"}, "property-conflicts-with-type", "/message_group"),
        ({"message_group": "g", "queue": "broker-a:0"}, "property-conflicts-with-type", "/message_group"),
        ({"message_group": "g" * 64}, "illegal-message-group", "/message_group"),
        ({"message_group": "a\x01b"}, "illegal-message-group", "/message_group"),
        ({"delay": True}, "invalid-field", None),
        ({"properties": {"__SHARDINGKEY": "x"}}, "illegal-property", "/properties/__SHARDINGKEY"),
    ],
)
def test_what_is_not_allowed_is_refused(mesh: Mesh, fields: dict[str, Any], code: str, pointer: str | None) -> None:
    """400 with the place, and nothing is stored."""
    create(mesh, "delay-bad", kind="MIXED")
    answer = mesh.settled("POST", "/v1/topics/delay-bad/messages/batch", json={"messages": [{"body": "x", **fields}]})
    assert answer.status_code == 400, answer.text
    if pointer is not None:
        assert (answer.json()["code"], answer.json()["pointer"]) == (code, f"/messages/0{pointer}")
    assert mesh.settled("GET", "/v1/topics/delay-bad/scheduled?limit=1").json()["messages"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=257", "from=x", "from=2&to=1", "cursor=AAAA", "cursor=%F0%9F", "no=1"]
)
def test_bad_lists_are_problems(mesh: Mesh, query: str) -> None:
    """400 each."""
    create(mesh, "delay-bad", kind="MIXED")
    assert mesh.settled("GET", f"/v1/topics/delay-bad/scheduled?{query}").status_code == 400


def test_a_message_group_travels_with_its_messages(mesh: Mesh) -> None:
    """All in one queue, in the order of sending, and the consumer sees the name."""
    create(mesh, "delay-group", "delay-group-readers", kind="MIXED")
    receipts = send(mesh, "delay-group", *({"body": f"{n}", "message_group": "user-7"} for n in range(6)))
    assert len({receipt["queue"] for receipt in receipts}) == 1
    got = receive(mesh, "delay-group", "delay-group-readers", 6)
    assert {message["message_group"] for _, message in got} == {"user-7"}


def test_the_clients_say_when_a_message_comes(mesh: Mesh) -> None:
    """Delay, time and level as Python has them; what waits is listed and taken back; both clients."""
    create(mesh, "delay-sdk", "delay-sdk-readers")
    later = datetime.now(UTC) + timedelta(hours=2)
    with BlockingProducer(mesh.endpoint) as producer, BlockingAdmin(mesh.endpoint) as admin:
        far = producer.send("delay-sdk", b"far", deliver_at=later, keys=["far"])
        near = producer.send("delay-sdk", b"near", delay=timedelta(seconds=1))
        level = producer.send_message("delay-sdk", OutgoingMessage(body=b"level", delay_level=18))
        assert (far.offset, far.deliver_at) == (-1, round(later.timestamp() * 1000))
        assert near.deliver_at == near.born_at + 1_000
        assert level.deliver_at == level.born_at + 2 * HOUR_MS
        (_, message), *_ = receive(mesh, "delay-sdk", "delay-sdk-readers", 1)
        assert message["message_id"] == near.message_id
        page = admin.scheduled("delay-sdk", limit=1)
        assert page.next_cursor
        rest = admin.scheduled("delay-sdk", cursor=page.next_cursor)
        assert {row.message_id for row in (*page.messages, *rest.messages)} == {far.message_id, level.message_id}
        with suppress(OutcomeUnknown, NotScheduled):
            admin.recall("delay-sdk", far.recall_handle)
        with pytest.raises(AlreadyDelivered):
            repeated(lambda: admin.recall("delay-sdk", near.recall_handle))

    async def again() -> None:
        async with Producer(mesh.endpoint) as producer, Admin(mesh.endpoint) as admin:
            receipt = await producer.send("delay-sdk", b"async", delay="1h")
            left = await admin.scheduled("delay-sdk")
            assert receipt.message_id in {row.message_id for row in left.messages}
            with pytest.raises(NotScheduled):
                for _ in range(20):
                    try:
                        await admin.recall("delay-sdk", receipt.recall_handle)
                    except OutcomeUnknown:
                        continue

    asyncio.run(again())


def repeated(call: Any) -> None:
    """Until it is known what became of it."""
    for _ in range(20):
        try:
            call()
        except OutcomeUnknown:
            continue
        return


def test_the_command_line_sends_lists_and_cancels(mesh: Mesh) -> None:
    """`send --delay`, `--at`, `--delay-level`, `-g`, `scheduled ls`, `scheduled cancel`, as tables and as JSON."""
    create(mesh, "delay-words", kind="MIXED")

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, [*arguments, "--endpoint", mesh.endpoint])

    sent = json.loads(run("send", "delay-words", "hello", "--delay", "1h", "-t", "T", "-o", "json").stdout)
    assert sent["offset"] == -1
    at = (datetime.now(UTC) + timedelta(hours=2)).isoformat()
    assert run("send", "delay-words", "at", "--at", at).exit_code == 0
    assert run("send", "delay-words", "level", "--delay-level", "18").exit_code == 0
    assert run("send", "delay-words", "grouped", "-g", "user-7").exit_code == 0
    rows = json.loads(run("scheduled", "ls", "delay-words", "-o", "json").stdout)
    assert rows[0]["message_id"] == sent["message_id"]
    assert len(rows) == 3
    assert "3 messages wait." in run("scheduled", "ls", "delay-words").stdout
    cancelled = run("scheduled", "cancel", "delay-words", sent["recall_handle"])
    assert cancelled.exit_code == 0 or "not known" in cancelled.stderr or "recalled before" in cancelled.stderr
    again = run("scheduled", "cancel", "delay-words", sent["recall_handle"])
    assert again.exit_code == 1, again.stdout
    assert "2 messages wait." in run("scheduled", "ls", "delay-words").stdout
    assert run("send", "delay-words", "x", "--delay", "soon").exit_code == 2
    assert run("scheduled", "ls", "delay-words", "--from", "soon").exit_code == 2
