"""`ternmq context`, and how a command chooses its mesh."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_client.settings.contexts import read_contexts
from tern_wire.principals.client_keys import KID_LENGTH, bearer_text
from tests.support.client.scripted_proxy import ScriptedProxy, blocking_proxy, said

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts, in an empty folder; the contexts' file."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "contexts.json"
    monkeypatch.setenv("TERNMQ_CONTEXTS_FILE", str(file))
    for name in ("ENDPOINT", "CONTEXT", "NAMESPACE", "KEY_FILE", "CA_FILE", "DATA_DIR"):
        # Set before deleted, so that what a command sets is removed behind the test.
        monkeypatch.setenv(f"TERNMQ_{name}", "")
        monkeypatch.delenv(f"TERNMQ_{name}")
    return file


def run(*words: str) -> tuple[int, str]:
    """The exit code and all output of a command."""
    done = RUNNER.invoke(app, list(words))
    return done.exit_code, done.output


def asked(proxy: ScriptedProxy) -> list[tuple[str, str, str]]:
    """Path, namespace and authorization of the requests."""
    return [
        (each.path, each.headers.get("mq-namespace", ""), each.headers.get("authorization", "")) for each in proxy.asked
    ]


def test_contexts_are_added_listed_shown_used_and_removed(user: Path) -> None:
    """The first one is current; none is replaced unasked."""
    assert run("context", "add", "local", "--endpoint", "http://127.0.0.1:8080") == (
        0,
        "Context local added. It is the current one.\n",
    )
    code, output = run(
        "context", "add", "prod", "--endpoint", "https://mq.example.com", "--namespace", "shop", "--key-file", "p.key"
    )
    assert code == 0
    assert "p.key, does not exist yet" in output.replace("\n", "")
    code, output = run("context", "add", "prod", "--endpoint", "https://other.example.com")
    assert code == 1
    assert "--replace" in output
    code, output = run("context", "ls", "-o", "json")
    assert code == 0
    assert [(row["context"], row["current"]) for row in json.loads(output)] == [("local", True), ("prod", False)]
    code, output = run("context", "ls")
    assert output.splitlines()[3].split()[:3] == ["*", "local", "http://127.0.0.1:8080"]
    assert run("context", "use", "prod")[0] == 0
    assert ["endpoints", "https://mq.example.com"] in map(str.split, run("context", "show")[1].splitlines())
    code, output = run("context", "show", "-o", "json")
    row = json.loads(output)
    assert (row["context"], row["namespace"], row["endpoints"]) == ("prod", "shop", ["https://mq.example.com"])
    assert row["key_file"] == str(user.with_name("p.key"))
    assert run("context", "rm", "prod") == (0, "Context prod removed. No context is current.\n")
    assert run("context", "show")[0] == 1
    assert list(read_contexts(user).contexts) == ["local"]


def test_a_command_uses_the_endpoint_namespace_and_key_of_its_context(user: Path) -> None:
    """Named by option, by variable, or current."""
    key = user.with_name("app.key")
    key.write_text(bearer_text("k" * KID_LENGTH, bytes(32)))
    with blocking_proxy(lambda _: said({"topics": [], "next_cursor": ""})) as proxy:
        words = ("--endpoint", proxy.url, "--namespace", "shop", "--key-file", str(key))
        assert run("context", "add", "first", "--endpoint", "http://127.0.0.1:9")[0] == 0
        assert run("context", "add", "here", *words)[0] == 0
        for command in (("topic", "ls", "--context", "here"), ("--context=here", "topic", "ls"), ("topic", "ls")):
            assert run(*command)[0] == 0
            os.environ.pop("TERNMQ_KEY_FILE")  # which a command sets for its process
            assert run("context", "use", "here")[0] == 0
    assert [found[1:] for found in asked(proxy)] == [("shop", f"Bearer {key.read_text()}")] * 3


def test_an_endpoint_of_the_environment_gets_nothing_of_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a context on the command line precedes that variable."""
    with blocking_proxy(lambda _: said({"topics": [], "next_cursor": ""})) as proxy:
        assert run("context", "add", "here", "--endpoint", proxy.url, "--namespace", "shop")[0] == 0
        monkeypatch.setenv("TERNMQ_ENDPOINT", proxy.url)
        assert run("topic", "ls")[0] == 0
        monkeypatch.setenv("TERNMQ_ENDPOINT", "http://127.0.0.1:9")
        monkeypatch.setenv("TERNMQ_NAMESPACE", "test")
        assert run("topic", "ls", "--context", "here")[0] == 0
        assert run("topic", "ls", "--context", "here", "--namespace", "mine")[0] == 2  # before the command only
        assert run("--namespace", "mine", "topic", "ls", "--context", "here")[0] == 0
    assert [namespace for _, namespace, _ in asked(proxy)] == ["", "shop", "mine"]


def test_an_endpoint_and_a_context_on_one_line_are_refused() -> None:
    """One of them would be ignored."""
    assert run("context", "add", "here", "--endpoint", "http://127.0.0.1:9")[0] == 0
    code, output = run("topic", "ls", "--endpoint", "http://127.0.0.1:10", "--context", "here")
    assert code == 2
    assert "not both" in output


def test_an_unknown_context_ends_with_the_known_ones() -> None:
    """As wrong usage, in JSON too."""
    assert run("context", "add", "prod", "--endpoint", "http://127.0.0.1:9")[0] == 0
    code, output = run("topic", "ls", "--context", "pord", "-o", "json")
    assert code == 2
    assert json.loads(output.splitlines()[-1])["error"]["code"] == "context-unusable"
    assert "known: prod" in output
