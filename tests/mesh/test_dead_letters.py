"""Dead letters through a proxy: how a message becomes one, how people look at them, and how it is delivered again or dropped."""

import time
from typing import Any

import pytest

from tern_client import BlockingAdmin, BlockingConsumer, BlockingProducer, OutgoingMessage
from tests.mesh.test_retry import taken
from tests.support.mesh.mesh import Mesh, eventually


def prepare(mesh: Mesh, topic: str, count: int, group: str, *, attempts: int = 1, tag: str = "") -> None:
    """Topic, group that tries so often, and messages 0 ... in queue 0."""
    mesh.create(topic, group)
    settings = {"max_attempts": attempts, "retry": {"policy": "custom", "delays": ["100ms"]}}
    changed = mesh.patient("PATCH", f"/v1/groups/{group}", json=settings)
    assert changed.status_code == 200, changed.text
    send(mesh, topic, range(count), tag)


def send(mesh: Mesh, topic: str, numbers: range, tag: str = "") -> None:
    """These messages to queue 0."""
    with BlockingProducer(mesh.endpoint) as producer:
        messages = [OutgoingMessage(body=b"%d" % number, queue="broker-a:0", tag=tag) for number in numbers]
        producer.send_batch(topic, messages).confirmed()


def kill_all(mesh: Mesh, topic: str, group: str, count: int, reason: str = "") -> None:
    """Receive *count* messages and reject them, or nack them when there is no reason."""
    with BlockingConsumer(mesh.endpoint, topic, group, wait_ms=2_000) as consumer:
        done = 0

        def kill_some() -> bool:
            nonlocal done
            messages = taken(consumer)
            if reason:
                errors = consumer.dead_letter(reason, *messages, return_errors=True)
            else:
                errors = consumer.nack(*messages, delay_ms=0, return_errors=True)
            done += len(messages) - len(errors)
            return done >= count

        eventually(kill_some, within_s=30, what=f"{count} messages that died")


def letters_of(mesh: Mesh, group: str, query: str = "") -> list[dict[str, Any]]:
    """All dead letters, page by page."""
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        part = f"&cursor={cursor}" if cursor else ""
        page = mesh.patient("GET", f"/v1/groups/{group}/dlq?limit=3{query}{part}")
        assert page.status_code == 200, page.text
        assert len(page.json()["messages"]) <= 3
        found += page.json()["messages"]
        cursor = page.json().get("next_cursor")
    return found


def wait_for_letters(mesh: Mesh, group: str, count: int) -> list[dict[str, Any]]:
    """As soon as there are *count*."""

    def all_there() -> list[dict[str, Any]] | None:
        found = letters_of(mesh, group)
        return found if len(found) >= count else None

    found: list[dict[str, Any]] = eventually(all_there, within_s=30, what=f"{count} dead letters of {group}")
    assert len(found) == count
    return found


def finished(mesh: Mesh, task: dict[str, Any]) -> dict[str, Any]:
    """The task when it is over."""

    def over() -> dict[str, Any] | None:
        known = mesh.patient("GET", f"/v1/tasks/{task['task']}", proxy=1).json()
        return known if known["state"] != "running" else None

    document: dict[str, Any] = eventually(over, within_s=30, what="the end of a task")
    return document


def received(mesh: Mesh, topic: str, group: str, count: int) -> list[Any]:
    """*count* messages, acked, by body."""
    with BlockingConsumer(mesh.endpoint, topic, group, wait_ms=2_000) as consumer:
        got: dict[bytes, Any] = {}

        def receive_some() -> bool:
            messages = taken(consumer)
            consumer.ack(*messages)
            got.update((message.body, message) for message in messages)
            return len(got) >= count

        eventually(receive_some, within_s=30, what=f"{count} messages of {topic}")
    return [got[body] for body in sorted(got, key=int)]


def test_after_the_last_attempt_a_message_is_a_dead_letter_with_its_origin_and_reason(mesh: Mesh) -> None:
    """Two attempts; browsing shows the message as it was, where it came from, and why it died; the group never sees it again."""
    prepare(mesh, "dying", 1, "mortals", attempts=2, tag="A")
    kill_all(mesh, "dying", "mortals", 2)
    send(mesh, "dying", range(1, 2))
    kill_all(mesh, "dying", "mortals", 1, "not \x02 ours")
    first, second = wait_for_letters(mesh, "mortals", 2)
    assert (first["body"], first["topic"], first["tag"], first["offset"]) == ("0", "dying", "A", 0)
    assert first["dlq"] == {
        "offset": "broker-a:0",
        "origin": {"topic": "dying", "queue": "broker-a:0", "offset": 0},
        "attempts": 2,
        "cause": "nacked",
        "reason": "",
        "dead_at": first["dlq"]["dead_at"],
    }
    assert abs(first["dlq"]["dead_at"] - time.time() * 1000) < 120_000
    assert (second["dlq"]["cause"], second["dlq"]["reason"], second["dlq"]["attempts"]) == ("rejected", "not   ours", 1)
    offsets = mesh.patient("GET", "/v1/groups/mortals/offsets?topic=dying").json()["offsets"]
    assert offsets["broker-a:0"] == 2
    with BlockingConsumer(mesh.endpoint, "dying", "mortals", wait_ms=0) as consumer:
        assert taken(consumer) == []
    topics = mesh.patient("GET", "/v1/cluster").json()["topics"]
    assert isinstance(topics, int)
    assert mesh.patient("GET", "/v1/topics/%25DLQ%25mortals/offsets").status_code in {400, 404}


def test_dead_letters_are_browsed_by_topic_tag_reason_and_time(mesh: Mesh) -> None:
    """Page by page; a condition that nothing fits gives nothing; a bad one is a problem that says where."""
    prepare(mesh, "browse", 5, "readers-of-browse", tag="red")
    kill_all(mesh, "browse", "readers-of-browse", 5, "broken line")
    middle = wait_for_letters(mesh, "readers-of-browse", 5)[-1]["dlq"]["dead_at"] + 1
    send(mesh, "browse", range(5, 7), "blue")
    kill_all(mesh, "browse", "readers-of-browse", 2, "no shop")
    everything = wait_for_letters(mesh, "readers-of-browse", 7)
    assert [letter["body"] for letter in everything] == [str(number) for number in range(7)]
    for query, count in (
        ("&tag=red", 5),
        ("&tag=green", 0),
        ("&reason=shop", 2),
        ("&topic=browse&tag=blue", 2),
        ("&topic=other", 0),
        (f"&to={middle}", 5),
        (f"&from={middle}", 2),
    ):
        assert len(letters_of(mesh, "readers-of-browse", query)) == count, query
    for query, pointer in (
        ("?limit=0", "query/limit"),
        ("?cursor=7", "query/cursor"),
        ("?from=yesterday", "query/from"),
    ):
        refused = mesh.patient("GET", f"/v1/groups/readers-of-browse/dlq{query}")
        assert (refused.status_code, refused.json()["pointer"]) == (400, pointer), query
    assert mesh.patient("GET", "/v1/groups/nobody-at-all/dlq").json()["code"] == "group-not-found"


def test_a_redrive_delivers_to_this_group_again_each_once(mesh: Mesh) -> None:
    """A dry run first; then a choice by offset; then the rest. Repeated with its key it is the same task; another group sees nothing."""
    prepare(mesh, "again", 6, "redriven")
    kill_all(mesh, "again", "redriven", 6, "later")
    letters = wait_for_letters(mesh, "redriven", 6)
    path = "/v1/groups/redriven/dlq/redrive"
    dry = mesh.patient("POST", path, json={"all": True, "dry_run": True}, headers={"Idempotency-Key": "dry"})
    assert dry.status_code == 202, dry.text
    assert dry.headers["location"] == f"/v1/tasks/{dry.json()['task']}"
    counted = finished(mesh, dry.json())
    assert (counted["redriven"], counted["failed"], counted["dry_run"], counted["total"]) == (6, 0, True, 6)
    assert len(letters_of(mesh, "redriven")) == 6
    offsets = [letters[at]["dlq"]["offset"] for at in (1, 4)]
    key = {"Idempotency-Key": "these two"}
    tasks = [mesh.patient("POST", path, json={"offsets": [*offsets, "broker-a:99"]}, headers=key) for _ in range(2)]
    assert tasks[0].json()["task"] == tasks[1].json()["task"]
    done = finished(mesh, tasks[0].json())
    assert (done["state"], done["redriven"], done["failed"]) == ("done", 2, 1)
    assert [(failure["offset"], failure["error"]["code"]) for failure in done["failures"]] == [
        ("broker-a:99", "dead-letter-gone")
    ]
    back = received(mesh, "again", "redriven", 2)
    assert [(message.body, message.attempt, message.offset) for message in back] == [(b"1", 1, 1), (b"4", 1, 4)]
    rest = mesh.patient("POST", path, json={"to": "origin"}, headers={"Idempotency-Key": "the rest"}).json()
    assert finished(mesh, rest)["redriven"] == 4
    assert [message.body for message in received(mesh, "again", "redriven", 4)] == [b"0", b"2", b"3", b"5"]
    assert letters_of(mesh, "redriven") == []


def test_a_redrive_at_a_rate_can_be_watched_and_cancelled(mesh: Mesh) -> None:
    """Through the other proxy. What was not redriven is still a dead letter."""
    prepare(mesh, "slowly", 40, "slow")
    kill_all(mesh, "slowly", "slow", 40)
    wait_for_letters(mesh, "slow", 40)
    key = {"Idempotency-Key": "slowly"}
    asked = {"topic": "slowly", "rate": 2}
    begun = mesh.patient("POST", "/v1/groups/slow/dlq/redrive", json=asked, headers=key).json()
    assert (begun["state"], begun["finished_at"]) == ("running", None)
    path = f"/v1/tasks/{begun['task']}"
    eventually(lambda: mesh.patient("GET", path, proxy=1).json()["redriven"], within_s=20, what="a first one")
    ended = mesh.patient("DELETE", path, proxy=1).json()
    assert ended["state"] == "cancelled"
    assert 0 < ended["redriven"] < 40
    assert len(letters_of(mesh, "slow")) == 40 - ended["redriven"]
    assert mesh.patient("GET", path).json() == ended
    unknown = mesh.patient("GET", "/v1/tasks/0123456789abcdef01234567")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "task-not-found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/"),
        ({"offsets": []}, "/offsets"),
        ({"offsets": ["7"]}, "/offsets/0"),
        ({"offsets": ["broker-z:7"]}, "/offsets/0"),
        ({"offsets": ["broker-a:7"], "all": True}, "/offsets"),
        ({"all": True, "rate": -1}, "/rate"),
        ({"from": "soon"}, "/from"),
        ({"to": "elsewhere"}, "/to"),
        ({"to": "origin", "topic": ""}, "/"),
        ({"all": "yes"}, "/all"),
        ({"everything": True}, "/everything"),
    ],
)
def test_a_redrive_that_does_not_say_what_is_refused(mesh: Mesh, body: dict[str, Any], pointer: str) -> None:
    """Nothing is redriven by mistake."""
    mesh.create("choice", "choosers")
    refused = mesh.patient("POST", "/v1/groups/choosers/dlq/redrive", json=body)
    assert (refused.status_code, refused.json().get("pointer", pointer)) == (400, pointer), refused.text


def test_a_purge_needs_the_group_s_name_and_drops_everything(mesh: Mesh) -> None:
    """Afterwards nothing is there, and a later dead letter goes on behind it."""
    prepare(mesh, "purged", 4, "purgers")
    kill_all(mesh, "purged", "purgers", 4)
    wait_for_letters(mesh, "purgers", 4)
    for query in ("", "?confirm=", "?confirm=purger"):
        refused = mesh.patient("DELETE", f"/v1/groups/purgers/dlq{query}")
        assert (refused.status_code, refused.json()["code"]) == (400, "confirmation-needed")
    with BlockingAdmin(mesh.endpoint) as admin:
        assert admin.purge_dead_letters("purgers") in {4, 0}  # 0: repeated, since the first answer was lost
        assert admin.dead_letters("purgers")["messages"] == []
        send(mesh, "purged", range(4, 5))
        kill_all(mesh, "purged", "purgers", 1)
        (letter,) = wait_for_letters(mesh, "purgers", 1)
        assert (letter["body"], letter["dlq"]["offset"]) == ("4", "broker-a:4")
        done = finished(mesh, admin.redrive("purgers", everything=True))
        assert done["redriven"] == 1
