"""`ternmq topic`, `ternmq group`, `ternmq offsets`: what they ask a proxy, and what they show."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_wire.errors import TopicNotFound
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, refused, said

RUNNER = CliRunner()
TOPIC: dict[str, Any] = {
    "topic": "demo",
    "type": "FIFO",
    "permission": "r",
    "queues": 8,
    "broker_groups": {"broker-a": 8},
    "when_full": "refuse",
    "attributes": {"owner": "billing"},
    "created_at": 1,
}
GROUP: dict[str, Any] = {
    "group": "g",
    "invisible_ms": 60_000,
    "start": "earliest",
    "max_attempts": 16,
    "fifo": True,
    "consume": True,
    "retry": {"policy": "custom", "delays_ms": [1_000, 500]},
    "broadcast": False,
    "attributes": {},
}


def run(answers: dict[str, Any], *words: str) -> tuple[Result, list[Asked]]:
    """A command at a proxy that answers by method; and what it was asked."""

    def answer(asked: Asked) -> Reply:
        return said(answers[asked.method])

    with blocking_proxy(answer) as made:
        done = RUNNER.invoke(app, [*words, "--endpoint", made.url])
    return done, made.asked


def test_a_topic_is_created_with_what_is_named_and_nothing_else() -> None:
    """So that a declaration leaves the rest as it is."""
    done, asked = run({"PUT": {**TOPIC, "created": True}}, "topic", "create", "demo")
    assert "demo is there, 8 queues, type FIFO" in done.stdout
    assert asked[0].document == {}
    words = (
        "-q",
        "4",
        "--type",
        "fifo",
        "--permission",
        "rw",
        "--when-full",
        "drop-oldest",
        "-a",
        "owner=billing",
        "-a",
        "old=",
        "--new",
    )
    done, asked = run({"PUT": {**TOPIC, "created": True}}, "topic", "create", "demo", *words)
    assert done.exit_code == 0, done.output
    attributes = {"owner": "billing", "old": None}
    named = {"queues": 4, "type": "FIFO", "permission": "rw", "when_full": "drop-oldest"}
    assert asked[0].document == {**named, "attributes": attributes}
    assert asked[0].headers["if-none-match"] == "*"


def test_alterations_are_patches() -> None:
    """Of topics and of groups."""
    done, asked = run(
        {"PATCH": {**TOPIC, "created": False}}, "topic", "alter", "demo", "--permission", "r", "-o", "json"
    )
    assert (asked[0].method, asked[0].document) == ("PATCH", {"permission": "r"})
    assert json.loads(done.stdout)["permission"] == "r"
    done, asked = run(
        {"PATCH": {**GROUP, "created": False}}, "group", "alter", "g", "--no-consume", "--max-attempts", "3"
    )
    assert (asked[0].method, asked[0].document) == ("PATCH", {"consume": False, "max_attempts": 3})


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("table", {"policy": "table"}),
        ("1s,10s,1m", {"policy": "custom", "delays": [1_000, 10_000, 60_000]}),
        ("5s*2..2h", {"policy": "exponential", "initial": 5_000, "multiplier": 2.0, "max": 7_200_000}),
    ],
)
def test_retry_policies_are_written_as_help_says(text: str, policy: dict[str, Any]) -> None:
    """Three ways."""
    done, asked = run({"PUT": {**GROUP, "created": True}}, "group", "create", "g", "--retry", text)
    assert done.exit_code == 0, done.output
    assert asked[0].document == {"retry": policy}


def test_a_group_is_created_with_what_is_named() -> None:
    """Durations become milliseconds; a start is passed on as it is."""
    words = ("--invisible", "5m", "--start", "2026-01-31T12:00:00Z", "--fifo", "--broadcast")
    done, asked = run({"PUT": {**GROUP, "created": True}}, "group", "create", "g", *words)
    assert "Group g is there" in done.stdout
    wanted = {"invisible": 300_000, "start": "2026-01-31T12:00:00Z", "fifo": True, "broadcast": True}
    assert asked[0].document == wanted


def test_lists_are_read_to_their_end() -> None:
    """Page by page, with the same words."""
    row = {"type": "MIXED", "permission": "rw", "queues": 8, "broker_groups": ["broker-a"]}

    def answer(asked: Asked) -> Reply:
        last = "cursor=" in asked.path
        name = "order-2" if last else "order-1"
        return said({"topics": [{"topic": name, **row}], "next_cursor": "" if last else "there"})

    with blocking_proxy(answer) as made:
        table = RUNNER.invoke(app, ["topic", "ls", "order", "--sort=-queues", "--endpoint", made.url])
        shown = RUNNER.invoke(app, ["topic", "ls", "order", "-o", "json", "--endpoint", made.url])
    assert "order-1" in table.stdout
    assert "order-2" in table.stdout
    assert [each["topic"] for each in json.loads(shown.stdout)] == ["order-1", "order-2"]
    assert "q=order" in made.asked[0].path
    assert "sort=-queues" in made.asked[1].path


def test_groups_are_listed_and_described() -> None:
    """Flags, attempts and the first rests; progress by topic."""
    done, _ = run({"GET": {"groups": [GROUP], "next_cursor": ""}}, "group", "ls")
    assert "earliest" in done.stdout
    progress = [{"topic": "demo", "lag": 7, "leased": 2, "available": 5, "committed": {}}]
    done, asked = run(
        {"GET": {**GROUP, "topics": progress, "truncated": False}}, "group", "describe", "g", "--topic", "demo"
    )
    assert "16 attempts, rests 1 s, 500 ms; fifo" in done.stdout
    assert "demo" in done.stdout
    assert asked[0].path == "/v1/groups/g?topic=demo"


def test_a_topic_is_described_with_its_queues_and_groups() -> None:
    """In words beside the table."""
    offsets = [{"queue": "broker-a:0", "min_offset": 1, "max_offset": 5}]
    done, _ = run({"GET": {**TOPIC, "offsets": offsets, "groups": ["g"]}}, "topic", "describe", "demo")
    assert "4 messages in 1 queues" in done.stdout
    assert "Type FIFO, permission r, when full refuse, attributes owner=billing" in done.stdout
    assert "Groups: g" in done.stdout


@pytest.mark.parametrize("what", ["topic", "group"])
def test_nothing_is_deleted_without_a_yes(what: str) -> None:
    """Where nobody can answer --yes is needed; then the name is repeated to the proxy."""
    done, asked = run({}, what, "rm", "demo")
    assert (done.exit_code, asked) == (2, [])
    assert "--yes" in done.stderr
    done, asked = run({"DELETE": {what: "demo", "deleted": True}}, what, "rm", "demo", "--yes")
    assert "is deleted" in done.stdout
    assert asked[0].path == f"/v1/{what}s/demo?confirm=demo"


def test_what_is_not_there_is_said() -> None:
    """Exit 1 and the fix."""
    with blocking_proxy(lambda _: refused(TopicNotFound(topic="none"))) as made:
        done = RUNNER.invoke(app, ["topic", "describe", "none", "--endpoint", made.url])
    assert done.exit_code == 1
    assert "ternmq topic create none" in done.stderr


def test_offsets_with_a_group_show_how_far_it_is_behind() -> None:
    """Lag counts from the oldest message kept."""

    def answer(asked: Asked) -> Reply:
        if "/groups/" in asked.path:
            return said({"offsets": {"broker-a:0": 3}})
        return said({"queues": [{"queue": "broker-a:0", "min_offset": 1, "max_offset": 5}]})

    with blocking_proxy(answer) as made:
        shown = RUNNER.invoke(app, ["offsets", "demo", "-g", "g", "-o", "json", "--endpoint", made.url]).stdout
    row = {"queue": "broker-a:0", "min_offset": 1, "max_offset": 5, "messages": 4, "committed": 3, "lag": 2}
    assert json.loads(shown) == [row]
