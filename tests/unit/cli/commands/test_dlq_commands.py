"""`ternmq dlq`: what it asks a proxy, and what it shows."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, packed, said

RUNNER = CliRunner()
LETTER: dict[str, Any] = {
    "message_id": "m1",
    "topic": "orders",
    "queue": "broker-a:3",
    "offset": 42,
    "body": b"hello",
    "born_at": 1,
    "stored_at": 2,
    "dlq": {
        "offset": "broker-a:17",
        "origin": {"topic": "orders", "queue": "broker-a:3", "offset": 42},
        "attempts": 16,
        "cause": "rejected",
        "reason": "no such shop",
        "dead_at": 3,
    },
}
TASK: dict[str, Any] = {
    "task": "5b1f0c9a7e2d4c3b8a190f6e",
    "type": "redrive",
    "group": "g",
    "state": "running",
    "dry_run": False,
    "total": 3,
    "examined": 2,
    "redriven": 1,
    "skipped": 0,
    "failed": 1,
    "started_at": 1,
    "finished_at": None,
    "failures": [{"offset": "broker-a:4", "error": {"detail": "It was purged.", "code": "dead-letter-gone"}}],
}


def run(answer: Reply, *words: str) -> tuple[Result, list[Asked]]:
    """A command at a proxy that always says *answer*; and what it was asked."""
    with blocking_proxy(lambda _: answer) as made:
        done = RUNNER.invoke(app, ["dlq", *words, "--endpoint", made.url])
    return done, made.asked


def test_dead_letters_are_listed_with_their_origin_and_reason() -> None:
    """The conditions travel as they are; a page that is not the last says how to go on."""
    page = packed({"group": "g", "messages": [LETTER], "next_cursor": "broker-a:18"})
    done, asked = run(page, "ls", "g", "--topic", "orders", "--reason", "no such", "--from", "5", "-n", "1")
    assert done.exit_code == 0, done.output
    for text in ("broker-a:17", "orders", "16", "rejected", "--cursor broker-a:18"):
        assert text in done.stdout
    assert asked[0].path == "/v1/groups/g/dlq?topic=orders&reason=no+such&from=5&limit=1"
    done, _ = run(packed({"group": "g", "messages": [LETTER]}), "ls", "g", "-o", "json")
    assert json.loads(done.stdout)["messages"][0]["body"] == "hello"
    done, _ = run(packed({"group": "g", "messages": []}), "ls", "g")
    assert "No dead letters of g" in done.stdout


def test_a_list_of_letters_is_redriven_group_by_group(tmp_path: Path) -> None:
    """1,030 letters of one group and one of another: three tasks, each awaited, whose next look finds it done. A doubled
    line counts once, an empty one is none.
    """
    file = tmp_path / "letters.ndjson"
    lines = [f'{{"group": "g", "offset": "broker-a:{number}"}}' for number in range(1_030)]
    file.write_text("\n".join([*lines, "", lines[3], '{"group": "h", "offset": "broker-a:1", "more": 1}']))
    polls: list[str] = []

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            return said(TASK, 202)
        polls.append(asked.path)
        return said(TASK | {"state": "done"})

    with blocking_proxy(answer) as made:
        done = RUNNER.invoke(app, ["dlq", "redrive", "--file", str(file), "--rate", "7", "--endpoint", made.url])
    assert done.exit_code == 0, done.output
    sent = [(asked.path, json.loads(asked.body)) for asked in made.asked if asked.method == "POST"]
    assert [(path, len(body["offsets"]), body["rate"]) for path, body in sent] == [
        ("/v1/groups/g/dlq/redrive", 1_024, 7),
        ("/v1/groups/g/dlq/redrive", 6, 7),
        ("/v1/groups/h/dlq/redrive", 1, 7),
    ]
    assert len(polls) == 3 and done.stdout.count("done") == 3
    with blocking_proxy(lambda _: said(TASK | {"state": "done"}, 202)) as made:
        done = RUNNER.invoke(app, ["dlq", "redrive", "h", "--file", str(file), "-o", "json", "--endpoint", made.url])
    assert json.loads(done.stdout)["state"] == "done"
    assert [json.loads(asked.body)["offsets"] for asked in made.asked] == [["broker-a:1"]]


@pytest.mark.parametrize(
    ("content", "words", "says"),
    [
        ("broker-a:1", (), "line 1"),
        ('{"group": "g"}', (), "offset"),
        ('{"group": "g", "offset": "broker-a:1"}', ("--all",), "leave the rest out"),
        ('{"group": "g", "offset": "broker-a:1"}', ("h",), "nothing to redrive"),
        ("", (), "nothing to redrive"),
    ],
)
def test_a_list_that_says_nothing_asks_for_nothing(
    content: str, words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    """A bad line, a condition beside the list, or no letters."""
    file = tmp_path / "letters.ndjson"
    file.write_text(content)
    done, asked = run(said(TASK, 202), "redrive", *words, "--file", str(file))
    assert done.exit_code != 0 and says in done.output
    assert asked == []


def test_one_dead_letter_is_shown_with_its_body_or_said_to_be_gone() -> None:
    """The page that begins there begins with another one: it is gone."""
    binary = {**LETTER, "body": b"\xff"}
    done, asked = run(packed({"group": "g", "messages": [binary]}), "show", "g", "broker-a:17", "-o", "json")
    assert json.loads(done.stdout)["body_base64"] == "/w=="
    assert asked[0].path == "/v1/groups/g/dlq?limit=1&cursor=broker-a%3A17"
    done, _ = run(packed({"group": "g", "messages": [LETTER]}), "show", "g", "broker-a:16")
    assert done.exit_code == 1
    assert "no such dead letter" in done.output


def test_a_redrive_says_what_and_shows_its_task() -> None:
    """By offset, by condition, all; a failure is told with its remedy."""
    done, asked = run(said(TASK, 202), "redrive", "g", "broker-a:4", "broker-a:5", "--rate", "10")
    assert done.exit_code == 0, done.output
    assert asked[0].document == {"offsets": ["broker-a:4", "broker-a:5"], "rate": 10, "dry_run": False}
    assert "running" in done.stdout
    assert "broker-a:4: It was purged." in done.stdout
    done, asked = run(
        said(TASK, 202), "redrive", "g", "--all", "--dry-run", "--to", "2026-01-31T12:00:00Z", "-o", "json"
    )
    assert asked[0].document == {"all": True, "rate": 0, "dry_run": True, "to": "2026-01-31T12:00:00Z"}
    assert json.loads(done.stdout) == TASK
    done, asked = run(said(TASK, 202), "redrive", "g", "--to", "origin")
    assert done.exit_code == 0, done.output
    assert asked[0].document == {"rate": 0, "dry_run": False, "to": "origin"}


@pytest.mark.parametrize(
    ("words", "method", "path"),
    [
        (("task", TASK["task"]), "GET", f"/v1/tasks/{TASK['task']}"),
        (("cancel", TASK["task"]), "DELETE", f"/v1/tasks/{TASK['task']}"),
        (("purge", "g", "--confirm", "g"), "DELETE", "/v1/groups/g/dlq?confirm=g"),
    ],
)
def test_the_others_ask_what_they_say(words: tuple[str, ...], method: str, path: str) -> None:
    """One request each."""
    done, asked = run(said({**TASK, "purged": 7}), *words)
    assert done.exit_code == 0, done.output
    assert [(each.method, each.path) for each in asked] == [(method, path)]


@pytest.mark.parametrize(
    "words", [("redrive", "g"), ("purge", "g"), ("purge", "g", "--confirm", "h"), ("ls", "g", "-n", "0")]
)
def test_what_would_be_too_much_or_nothing_is_not_asked(words: tuple[str, ...]) -> None:
    """Exit code 2, and the proxy hears nothing."""
    done, asked = run(said(TASK), *words)
    assert done.exit_code == 2, done.output
    assert asked == []
