"""The command line: help that teaches, exit codes, JSON for programs, and errors as two lines without a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.endpoint import endpoints
from tern_cli.mesh.files import MeshFiles
from tern_wire.errors import ReceiptExpired, TopicNotFound
from tests.support.client.scripted_proxy import Asked, Reply, blocking_proxy, packed, refused, said
from tests.support.files.rocketmq_golden import golden_part
from tests.support.mesh.stand_in_mesh import mesh_document

RUNNER = CliRunner()
RECEIPT = {"message_id": "m1", "queue": "broker-a:1", "offset": 7, "born_at": 1}
DELIVERY = {
    **RECEIPT,
    "topic": "demo",
    "body": b"hello",
    "content_type": "",
    "tag": "A",
    "keys": ["k"],
    "properties": {},
    "stored_at": 2,
    "attempt": 1,
    "receipt_handle": "h1",
    "invisible_until": 3,
}


COMMANDS = [
    "",
    "up",
    "down",
    "status",
    "serve",
    "topic",
    "topic create",
    "topic ls",
    "topic describe",
    "group create",
    "topic alter",
    "topic rm",
    "group ls",
    "group rm",
]
COMMANDS += [
    "raft",
    "raft status",
    "raft transfer-leader",
    "raft digests",
    "raft choose",
    "raft blocked",
    "raft pass-over",
    "send",
    "recv",
    "request",
    "reply",
    "offsets",
]
COMMANDS += ["group members", "group assignments", "group locks", "group describe", "group alter"]
COMMANDS += ["namesrv", *(f"namesrv {name}" for name in ("status", "route", "wipe-write", "restore-write", "kv"))]
COMMANDS += ["dlq", *(f"dlq {name}" for name in ("ls", "show", "redrive", "task", "cancel", "purge"))]
COMMANDS += ["tx", *(f"tx {name}" for name in ("ls", "show", "commit", "rollback", "stats"))]
COMMANDS += ["producer-group", *(f"producer-group {name}" for name in ("create", "ls", "describe", "rm"))]
COMMANDS += ["broker-group", *(f"broker-group {name}" for name in ("ls", "show", "join", "drain", "restore"))]
COMMANDS += ["topic place", "topic placement"]
COMMANDS += ["demo", "demo flights", "demo transfer"]
COMMANDS += [f"namesrv kv {name}" for name in ("get", "put", "rm", "ls")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    """Groups list their commands instead."""
    shown = RUNNER.invoke(app, [*command.split(), "--help"])
    if command == "serve":
        # Its options are the service's: --help without a service asks for one.
        assert shown.exit_code == 2
        return
    assert shown.exit_code == 0
    assert f"ternmq {command}".strip() in shown.output or command in {"topic", "group", "raft"}


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["up", "--brokers", "2"],
        ["send", "demo", "x", "-p", "noequals"],
        ["send", "demo", "@/does/not/exist"],
        ["send", "demo", "x", "--lines", "--idempotency-key", "k"],
        ["send", "bad name", "x", "--endpoint", "http://127.0.0.1:1"],
        ["recv", "demo", "g", "-f", "%z"],
        ["recv", "demo", "g", "-w", "soon"],
        ["recv", "demo", "g", "-n", "0"],
        ["group", "create", "g", "--invisible", "ever"],
        ["offsets", "demo", "--endpoint", "ftp://x"],
        ["topic", "create", "demo", "-q", "0"],
        ["status", "-o", "yaml"],
    ],
)
def test_what_is_asked_wrongly_exits_with_2_and_no_traceback(words: list[str]) -> None:
    """Before anything is sent anywhere."""
    failed = RUNNER.invoke(app, words)
    assert failed.exit_code == 2, failed.output
    assert "Traceback" not in failed.output
    assert failed.output.strip()


def test_a_problem_is_shown_as_title_and_sentence() -> None:
    """What the proxy says is what the user reads."""
    with blocking_proxy(lambda _: refused(TopicNotFound(topic="demo"))) as made:
        failed = RUNNER.invoke(app, ["send", "demo", "hello", "--endpoint", made.url])
        as_json = RUNNER.invoke(app, ["send", "demo", "hello", "--endpoint", made.url, "-o", "json"])
    assert failed.exit_code == 1
    assert failed.stdout == ""
    assert failed.stderr.splitlines()[0] == "error: The topic does not exist"
    assert "ternmq topic create demo" in failed.stderr
    said_there = {
        "title": "The topic does not exist",
        "detail": TopicNotFound(topic="demo").detail,
        "code": "topic-not-found",
    }
    assert (as_json.exit_code, as_json.stdout, json.loads(as_json.stderr)) == (1, "", {"error": said_there})


def test_a_message_is_sent_with_all_its_metadata() -> None:
    """From an argument; the receipt comes as JSON."""
    with blocking_proxy(lambda _: said(RECEIPT, 201)) as made:
        words = ["send", "demo", "hello", "-t", "A", "-k", "k1", "-k", "k2", "-p", "a=b=c", "--idempotency-key", "once"]
        sent = RUNNER.invoke(app, [*words, "--endpoint", made.url, "-o", "json"])
        (asked,) = made.asked
    assert sent.exit_code == 0, sent.output
    assert json.loads(sent.stdout) == {"message_id": "m1", "queue": "broker-a:1", "offset": 7, "replayed": False}
    assert (asked.body, asked.headers["mq-tag"], asked.headers["mq-key"]) == (b"hello", "A", "k1\nk2")
    assert json.loads(asked.headers["mq-properties"]) == {"a": "b=c"}
    assert asked.headers["idempotency-key"] == "once"


def test_messages_come_from_files_and_pipes_byte_for_byte(tmp_path: Path) -> None:
    """@FILE, -, and one message per line."""
    (tmp_path / "body").write_bytes(b"\xff\x00 bytes\n")

    def store(asked: Asked) -> Reply:
        if not asked.path.endswith("/batch"):
            return said(RECEIPT, 201)
        results = [{**RECEIPT, "index": at} for at in range(len(asked.document["messages"]))]
        return packed({"results": results, "failed": 0})

    with blocking_proxy(store) as made:
        at = ["--endpoint", made.url]
        assert RUNNER.invoke(app, ["send", "demo", f"@{tmp_path / 'body'}", *at]).exit_code == 0
        assert RUNNER.invoke(app, ["send", "demo", "-", *at], input=b"from a pipe\n").exit_code == 0
        lines = RUNNER.invoke(app, ["send", "demo", "-", "--lines", *at], input=b"one\ntwo\n\nfour\n")
        assert "4 messages sent" in lines.output
        first, second, third = made.asked
    assert (first.body, second.body) == (b"\xff\x00 bytes\n", b"from a pipe\n")
    assert [one["body"] for one in third.document["messages"]] == [b"one", b"two", b"", b"four"]


def receiving(settle: dict[str, Any] | None = None) -> Callable[[Asked], Reply]:
    """A proxy with one message, which answers settles with *settle*."""
    left = [DELIVERY]

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/settle"):
            return said({"results": [settle or {"index": 0}]})
        return packed({"messages": [left.pop()] if left else [], "settled": []})

    return answer


def test_received_messages_are_written_as_asked_and_acked() -> None:
    """The ack follows the writing, so that a broken pipe loses nothing; fewer than -n is no failure."""
    with blocking_proxy(receiving()) as made:
        got = RUNNER.invoke(app, ["recv", "demo", "g", "-n", "5", "-f", r"%q|%v\n", "--endpoint", made.url])
        paths = [asked.path.rsplit("/", 1)[1] for asked in made.asked]
    assert (got.exit_code, got.stdout) == (0, "broker-a:1|hello\n")
    assert paths == ["receive", "settle", "receive"]


def test_without_ack_nothing_is_settled() -> None:
    """The message comes again after its lease."""
    with blocking_proxy(receiving()) as made:
        got = RUNNER.invoke(app, ["recv", "demo", "g", "--ack", "none", "-o", "json", "--endpoint", made.url])
        assert [asked.path.rsplit("/", 1)[1] for asked in made.asked] == ["receive"]
    assert [one["body"] for one in json.loads(got.stdout)] == ["hello"]


def test_what_is_only_looked_at_is_given_back_when_all_has_been_shown() -> None:
    """Before, the next receive would show it again. No attempt counts; Ctrl-C and errors give back, too."""
    with blocking_proxy(receiving()) as made:
        got = RUNNER.invoke(app, ["recv", "demo", "g", "--ack", "release", "-n", "2", "--endpoint", made.url])
        assert [asked.path.rsplit("/", 1)[1] for asked in made.asked] == ["receive", "receive", "settle"]
        assert [entry["action"] for entry in made.asked[-1].document["entries"]] == ["release"]
    assert (got.exit_code, got.stdout) == (0, "hello\n")


def test_an_ack_that_came_too_late_is_a_failure() -> None:
    """The message was shown, but will be shown again."""
    with blocking_proxy(receiving({"index": 0, "error": ReceiptExpired().problem()})) as made:
        got = RUNNER.invoke(app, ["recv", "demo", "g", "--endpoint", made.url])
    assert got.exit_code == 1
    assert "The lease is over" in got.stderr


def test_nothing_to_receive_exits_with_1() -> None:
    """A script can tell."""
    with blocking_proxy(lambda _: packed({"messages": [], "settled": []})) as made:
        got = RUNNER.invoke(app, ["recv", "demo", "g", "--endpoint", made.url])
        assert RUNNER.invoke(app, ["recv", "demo", "g", "-o", "json", "--endpoint", made.url]).stdout.strip() == "[]"
    assert (got.exit_code, got.stdout) == (1, "")


@pytest.mark.parametrize(
    "words",
    [
        "send demo x",
        "recv demo g",
        "offsets demo",
        "topic create demo",
        "topic describe demo",
        "topic ls",
        "topic alter demo",
        "topic rm demo --yes",
        "group create g",
        "group ls",
        "group describe g",
        "group alter g",
        "group rm g --yes",
        "tx ls",
        "tx show x",
        "tx commit x --reason y",
        "tx stats",
        "producer-group create g",
        "producer-group ls",
        "store import store",
    ],
)
def test_every_client_command_goes_where_the_variable_says(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERNMQ_ENDPOINT is stronger than the mesh in .tern, whose addresses nobody may ask here."""
    if words.startswith("store"):
        copytree(golden_part("v2").folder, tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    files = MeshFiles(tmp_path / ".tern")
    files.make_folders()
    with (
        blocking_proxy(lambda _: refused(TopicNotFound(topic="asked"))) as other,
        blocking_proxy(lambda _: refused(TopicNotFound(topic="demo"))) as made,
    ):
        monkeypatch.setenv("TERNMQ_ENDPOINT", f"{made.url}")
        files.write_mesh(mesh_document(proxies=[other.url], namesrvs=[other.url]))
        done = RUNNER.invoke(app, words.split())
        assert other.asked == []
        assert made.asked, done.output
    assert done.exit_code == 1
    assert "The topic does not exist" in done.stderr


def test_the_endpoint_is_found_in_the_order_that_help_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Option, then the mesh of this directory (or that of TERNMQ_DATA_DIR), then the default."""
    files = MeshFiles(tmp_path)
    assert endpoints("http://a:1, http://b:2", str(tmp_path)) == ["http://a:1", "http://b:2"]
    assert endpoints("", str(tmp_path)) == ["http://127.0.0.1:8080"]
    files.write_mesh(mesh_document(proxies=["http://127.0.0.1:18000"]))
    assert endpoints("", str(tmp_path)) == ["http://127.0.0.1:18000"]
    monkeypatch.chdir("/")
    monkeypatch.setenv("TERNMQ_DATA_DIR", str(tmp_path))
    assert endpoints("") == ["http://127.0.0.1:18000"]
