"""Messages found by id and key, traces of where they are, and the numbers of topics and groups."""

import json
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tests.mesh.test_groups import receive
from tests.support.mesh.mesh import Mesh, eventually


def send(mesh: Mesh, topic: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The receipts of a batch, every message stored once."""
    keyed = [{"idempotency_key": f"{topic}-{message['body']}", **message} for message in messages]
    answer = mesh.patient("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": keyed})
    assert answer.json()["failed"] == 0, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    return results


def test_a_message_is_found_by_its_id(mesh: Mesh) -> None:
    """As a pull gives it; in the form that is asked for."""
    mesh.create("find-id", queues=4)
    receipts = send(mesh, "find-id", *({"body": f"{n}", "tag": "T", "keys": [f"k{n}"]} for n in range(8)))
    wanted = receipts[5]
    found = mesh.settled("GET", f"/v1/topics/find-id/messages/{wanted['message_id']}").json()
    assert (found["body"], found["queue"], found["offset"], found["tag"], found["keys"]) == (
        *("5", wanted["queue"], wanted["offset"]),
        *("T", ["k5"]),
    )
    missing = mesh.settled("GET", "/v1/topics/find-id/messages/" + "0" * 32)
    assert (missing.status_code, missing.json()["code"]) == (404, "message-not-found"), missing.text


def test_messages_are_found_by_key_in_pages_newest_first(mesh: Mesh) -> None:
    """Whole keys, never parts of them; nothing twice and nothing left out behind a cursor; bounded by time."""
    mesh.create("find-key", queues=3)
    for part in range(3):
        send(mesh, "find-key", *({"body": f"{part}-{n}", "keys": ["order", f"order{n}"]} for n in range(20)))
    path = "/v1/topics/find-key/messages"
    seen: list[str] = []
    cursor, pages = "", 0
    while True:
        query = {"key": "order", "limit": 7, **({"cursor": cursor} if cursor else {})}
        page = mesh.settled("GET", path, params=query).json()
        seen += [message["body"] for message in page["messages"]]
        assert page["truncated"] is False
        pages, cursor = pages + 1, page.get("next_cursor", "")
        if not cursor:
            break
    assert (len(seen), set(seen)) == (60, {f"{part}-{n}" for part in range(3) for n in range(20)})
    assert [body[0] for body in seen] == ["2"] * 20 + ["1"] * 20 + ["0"] * 20
    one = mesh.settled("GET", path, params={"key": "order7"}).json()["messages"]
    assert {message["body"] for message in one} == {"0-7", "1-7", "2-7"}
    times = [message["stored_at"] for message in one]
    early = mesh.settled("GET", path, params={"key": "order7", "to": min(times)}).json()["messages"]
    assert "0-7" in [message["body"] for message in early]
    assert all(message["stored_at"] <= min(times) for message in early)
    assert mesh.settled("GET", path, params={"key": "order7", "from": max(times) + 1}).json()["messages"] == []
    assert mesh.settled("GET", path, params={"key": "orde"}).json()["messages"] == []


def test_a_message_that_waits_for_its_time_has_no_offset_until_then(mesh: Mesh) -> None:
    """Found by id and key all the while; a message of a message group is found where its slot has put it."""
    mesh.create("find-late", "find-late-readers", queues=4)
    (late,) = send(mesh, "find-late", {"body": "late", "delay": "2s", "keys": ["k"]})
    grouped = send(mesh, "find-late", *({"body": f"{n}", "message_group": f"m{n}", "keys": ["k"]} for n in range(5)))

    def found(receipt: dict[str, Any]) -> dict[str, Any]:
        answer = mesh.settled("GET", f"/v1/topics/find-late/messages/{receipt['message_id']}")
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    assert "deliver_at" in found(late)
    for receipt in grouped:
        message = found(receipt)
        assert (message["queue"], message["offset"]) == (receipt["queue"], receipt["offset"])
    visible = eventually(lambda: (m := found(late)).get("offset") is not None and m, within_s=30, what="its time")
    path = f"/v1/topics/find-late/queues/{visible['queue']}/messages?offset={visible['offset']}&max_messages=1"
    assert mesh.settled("GET", path).json()["messages"][0]["message_id"] == late["message_id"]
    assert len(mesh.settled("GET", "/v1/topics/find-late/messages?key=k").json()["messages"]) == 6


def test_a_trace_follows_a_message_to_the_dead_letters(mesh: Mesh) -> None:
    """And says where among them it lies."""
    mesh.create("trace-dead", "trace-dead-readers", queues=1)
    (receipt,) = send(mesh, "trace-dead", {"body": "poison"})
    (got,) = receive(mesh, "trace-dead", "trace-dead-readers", wait="5s")
    entry = {"receipt_handle": got["receipt_handle"], "action": "dead_letter", "reason": "poison"}
    settled = mesh.patient("POST", "/v1/topics/trace-dead/groups/trace-dead-readers/settle", json={"entries": [entry]})
    assert settled.status_code == 200, settled.text
    one = receipt["message_id"]
    eventually(
        lambda: states(mesh, "trace-dead", one) == {"trace-dead-readers": "dead-lettered"},
        within_s=30,
        what="a dead letter",
    )
    assert trace(mesh, "trace-dead", one)["groups"][0]["dead_letter_offset"] == 0
    assert lag(mesh, "trace-dead-readers")["dead_letters"] == 1


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "invalid-field"),
        ("key=", "invalid-field"),
        ("key=a&limit=0", "invalid-field"),
        ("key=a&limit=65", "invalid-field"),
        ("key=a&from=x", "invalid-field"),
        ("key=a&from=2&to=1", "invalid-field"),
        ("key=a&cursor=AAAA", "invalid-field"),
        ("key=a&cursor=%F0%9F%98%80", "invalid-field"),
        ("key=a&encoding=hex", "invalid-field"),
        ("key=a&tag=b", "unknown-parameter"),
    ],
)
def test_bad_queries_are_problems(mesh: Mesh, query: str, code: str) -> None:
    """400 each."""
    mesh.create("find-bad", queues=1)
    answer = mesh.settled("GET", f"/v1/topics/find-bad/messages?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.text


def trace(mesh: Mesh, topic: str, message_id: str) -> dict[str, Any]:
    """The trace's document."""
    answer = mesh.settled("GET", f"/v1/messages/{message_id}/trace?topic={topic}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def states(mesh: Mesh, topic: str, message_id: str) -> dict[str, str]:
    """The message's state by group."""
    return {group["group"]: group["state"] for group in trace(mesh, topic, message_id)["groups"]}


def test_a_trace_says_where_a_message_is_for_each_group(mesh: Mesh) -> None:
    """Waiting, leased, returned, settled: each group on its own, from the replicated state."""
    mesh.create("trace", "trace-one", queues=1)
    mesh.create("trace", "trace-two", queues=1)
    first, second = (receipt["message_id"] for receipt in send(mesh, "trace", {"body": "a"}, {"body": "b"}))
    assert states(mesh, "trace", first) == {}
    got = receive(mesh, "trace", "trace-one", max_messages=1, invisible="3s")
    assert got[0]["message_id"] == first
    leased = trace(mesh, "trace", first)
    assert [(group["group"], group["state"], group["attempts"]) for group in leased["groups"]] == [
        ("trace-one", "leased", 1)
    ]
    assert leased["groups"][0]["until"] == got[0]["invisible_until"]
    assert (leased["offset"], leased["queue"], leased["visible_at"]) == (0, "broker-a:0", leased["stored_at"])
    assert states(mesh, "trace", second) == {"trace-one": "waiting"}
    both = receive(mesh, "trace", "trace-two", max_messages=2)
    handles = {"receipt_handles": [message["receipt_handle"] for message in both]}
    assert mesh.patient("POST", "/v1/topics/trace/groups/trace-two/ack", json=handles).status_code == 200
    assert states(mesh, "trace", second) == {"trace-one": "waiting", "trace-two": "settled"}
    eventually(
        lambda: states(mesh, "trace", first)["trace-one"] not in {"leased"}, within_s=30, what="the end of the lease"
    )
    unknown = mesh.settled("GET", f"/v1/messages/{'0' * 32}/trace?topic=trace")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "message-not-found")
    assert mesh.settled("GET", f"/v1/messages/{first}/trace").json()["code"] == "invalid-field"


def test_statistics_say_what_is_there_and_how_far_groups_are_behind(mesh: Mesh) -> None:
    """Counted, not scanned: messages, rates, lag in messages and in time, leases."""
    mesh.create("numbers", "numbers-readers", queues=2)
    send(mesh, "numbers", *({"body": f"{n}", "queue": f"broker-a:{n % 2}"} for n in range(10)))
    stats = mesh.settled("GET", "/v1/topics/numbers/stats").json()
    assert (stats["messages"], [queue["messages"] for queue in stats["queues"]]) == (10, [5, 5])
    assert stats["queues"][0]["last_visible_at"] > 1_600_000_000_000
    assert all(queue["in_messages_per_s"] > 0 for queue in stats["queues"])
    assert lag(mesh, "numbers-readers", "?topic=numbers")["lag"] == 10
    got = receive(mesh, "numbers", "numbers-readers", max_messages=4, invisible="60s")
    acked = {"receipt_handles": [message["receipt_handle"] for message in got[:2]]}
    assert mesh.patient("POST", "/v1/topics/numbers/groups/numbers-readers/ack", json=acked).status_code == 200
    behind = lag(mesh, "numbers-readers")
    (topic,) = behind["topics"]
    assert (behind["lag"], topic["leased"], topic["resting"], behind["dead_letters"]) == (8, 2, 0, 0)
    assert behind["lag_ms"] >= 0
    age_ms = time.time_ns() // 1_000_000 - stats["queues"][0]["last_visible_at"]
    assert behind["lag_ms"] <= age_ms + 60_000
    assert mesh.settled("GET", "/v1/topics/numbers/stats").json()["groups"] == ["numbers-readers"]
    unknown = mesh.settled("GET", "/v1/groups/numbers-unheard/lag")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "group-not-found")


def lag(mesh: Mesh, group: str, query: str = "") -> dict[str, Any]:
    """How far the group is behind."""
    answer = mesh.settled("GET", f"/v1/groups/{group}/lag{query}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_the_command_line_finds_traces_and_seeks(mesh: Mesh) -> None:
    """`msg get`, `msg find`, `msg trace`, `group lag`, `group seek`, `topic stats`, as tables and as JSON."""
    mesh.create("words", "words-readers", queues=1)
    (receipt,) = send(mesh, "words", {"body": "hello", "keys": ["word"]})

    def run(*arguments: str) -> Any:
        return json.loads(ternmq(mesh, *arguments, "-o", "json"))

    assert run("msg", "get", "words", receipt["message_id"])["body"] == "hello"
    assert [message["offset"] for message in run("msg", "find", "words", "word")["messages"]] == [0]
    assert run("group", "seek", "words-readers", "words", "--to", "latest", "--dry-run")["queues"][0]["after"] == 1
    assert run("group", "seek", "words-readers", "words", "--shift", "-1")["queues"][0]["after"] == 0
    assert run("msg", "trace", "words", receipt["message_id"])["groups"][0]["state"] == "waiting"
    assert run("group", "lag", "words-readers")["lag"] == 1
    assert run("topic", "stats", "words")["messages"] == 1
    assert "hello" in ternmq(mesh, "msg", "get", "words", receipt["message_id"])
    assert "1 messages behind" in ternmq(mesh, "group", "lag", "words-readers")


def ternmq(mesh: Mesh, *arguments: str) -> str:
    """What `ternmq ARGUMENTS` prints."""
    done = CliRunner().invoke(app, [*arguments, "--endpoint", mesh.endpoint])
    assert done.exit_code == 0, f"{arguments}: {done.stderr}"
    return done.stdout
