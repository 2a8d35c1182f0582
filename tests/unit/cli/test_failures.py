"""How commands fail: JSON for programs that asked for JSON, damaged files by name, words that are no text; never a traceback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.command_words import asks_for_json
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.start import stop_mesh
from tests.support.mesh.stand_in_mesh import mesh_document

RUNNER = CliRunner()
CLUSTER = {"version": 1, "group_id": "ab" * 16, "members": ["broker-a-0"], "shape": {"brokers": 1}, "born": True}


def commands_with_output(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that takes -o."""
    if isinstance(command, TyperGroup):
        for name in command.list_commands(None):  # type: ignore[arg-type]
            yield from commands_with_output(command.get_command(None, name), (*words, name))  # type: ignore[arg-type]
    elif any("-o" in parameter.opts for parameter in command.params):
        yield words


def run(*words: str) -> Result:
    """The command; it ended by itself, not by an exception that nobody expected."""
    done = RUNNER.invoke(app, words)
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    return done


def error_of(done: Result) -> dict[str, Any]:
    """What the last line on stderr says."""
    document = json.loads(done.stderr.splitlines()[-1])
    assert document.keys() == {"error"}
    assert document["error"]["title"]
    assert document["error"]["detail"]
    found: dict[str, Any] = document["error"]
    return found


@pytest.mark.parametrize("words", list(commands_with_output(get_command(app))), ids=" ".join)
def test_a_wrong_option_is_told_in_json_to_who_asked_for_json(words: tuple[str, ...]) -> None:
    """Every command that has -o; nothing on stdout, which is for results; the help says so."""
    failed = run(*words, "-o", "json", "--nonsense")
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "--nonsense" in error_of(failed)["detail"]


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (["up", "--brokers", "2"], 2),
        (["status", "--data-dir", "none"], 1),
        (["send", "demo", "x", "-p", "noequals"], 2),
        (["send", "demo", "@/does/not/exist"], 2),
        (["recv", "demo", "g", "-f", "%z"], 2),
        (["topic", "create", "bad name", "--endpoint", "http://127.0.0.1:1"], 2),
        (["topic", "create", "demo", "-q", "0"], 2),
        (["topic", "ls", "--endpoint", "http://127.0.0.1:1"], 1),
        (["topic", "alter", "demo", "-a", "no-pair", "--endpoint", "http://127.0.0.1:1"], 2),
        (["topic", "rm", "demo", "--endpoint", "http://127.0.0.1:1"], 2),
        (["group", "create", "g", "--retry", "5s*x..1h", "--endpoint", "http://127.0.0.1:1"], 2),
        (["topic", "describe", "demo", "--endpoint", "http://[x"], 2),
        (["group", "create", "g", "--invisible", "ever"], 2),
        (["offsets", "demo", "--endpoint", "ftp://x"], 2),
        (["store", "stat", "--data-dir", "none"], 2),
        (["up", "--data-dir", "file/x"], 2),
    ],
    ids=str,
)
def test_a_failure_is_json_with_the_same_exit_code(
    words: list[str], exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same title and sentence that people get."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    failed = run(*words, "-o", "json")
    plain = run(*words)
    assert (failed.exit_code, plain.exit_code, failed.stdout) == (exit_code, exit_code, "")
    said = error_of(failed)
    assert len(failed.stderr.splitlines()) == 1
    assert "error" not in plain.stdout
    if "Usage" not in plain.stderr:
        assert plain.stderr.splitlines()[:2] == [f"error: {said['title']}", f"  {said['detail']}"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("send t x -o json", True),
        ("send t x -ojson", True),
        ("send t x -lo json", True),
        ("send t x --output json", True),
        ("send t x --output=json", True),
        ("store dump -o ndjson", True),
        ("send t x -o table", False),
        ("send t x -o", False),
        ("send t json", False),
        ("send t -- -o json", False),
        ("", False),
    ],
)
def test_what_asks_for_json_is_seen_before_anything_is_parsed(words: str, expected: bool) -> None:
    """Else a wrong option could not be told in JSON."""
    assert asks_for_json(words.split()) is expected


BROKEN_CLUSTERS = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("\udcff", "not JSON"),
    ("[" * 200_000, "not JSON"),
    ("[]", "not an object"),
    ("{}", "'version' is missing"),
    (json.dumps({**CLUSTER, "version": 2}), "version 2"),
    (json.dumps({**CLUSTER, "group_id": 7}), "'group_id'"),
    (json.dumps({**CLUSTER, "group_id": "xyz"}), "'group_id'"),
    (json.dumps({**CLUSTER, "members": []}), "'members'"),
    (json.dumps({**CLUSTER, "members": [1]}), "'members[0]'"),
    (json.dumps({**CLUSTER, "born": 1}), "'born'"),
    (json.dumps({**CLUSTER, "shape": {"brokers": "1"}}), "'shape.brokers'"),
    (json.dumps({**CLUSTER, "shape": {"brokers": 2}}), "'shape.brokers'"),
    (json.dumps({**CLUSTER, "shape": {"proxy_port": 99_999}}), "'shape.proxy_port'"),
    (json.dumps({**CLUSTER, "shape": {"proxies": 0}}), "'shape.proxies'"),
    (json.dumps({**CLUSTER, "shape": {"colour": 1}}), "'shape.colour'"),
    (json.dumps({name: value for name, value in CLUSTER.items() if name != "shape"}), "'shape' is missing"),
]


@pytest.mark.parametrize(("text", "why"), BROKEN_CLUSTERS, ids=map(str, range(len(BROKEN_CLUSTERS))))
def test_a_damaged_cluster_json_is_named_and_nothing_starts(text: str, why: str, tmp_path: Path) -> None:
    """With what is wrong in it and what to do; the file stays as it is."""
    path = tmp_path / "cluster.json"
    path.write_text(text, errors="surrogateescape")
    try:
        failed = run("up", "--wait", "1", "--data-dir", str(tmp_path))
    finally:
        stop_mesh(MeshFiles(tmp_path))  # what must not have started must not stay either
    assert failed.exit_code == 1
    assert str(path) in failed.stderr
    assert why in failed.stderr
    assert "Restore it" in failed.stderr
    assert path.read_text(errors="surrogateescape") == text
    assert not (tmp_path / "mesh.json").exists()


BROKEN_MESHES = [
    ("{", "not JSON"),
    ("7", "not an object"),
    ("{}", "'version' is missing"),
    (json.dumps(mesh_document(processes=7)), "'processes'"),
    (json.dumps(mesh_document(processes=[])), "'processes'"),
    (json.dumps(mesh_document(processes=[{"name": "a"}])), "'processes[0].role' is missing"),
    (json.dumps(mesh_document(supervisor={"pid": "1", "start_ticks": 1})), "'supervisor.pid'"),
    (json.dumps(mesh_document(proxies=[None])), "'proxies[0]'"),
    (json.dumps(mesh_document(stopping="no")), "'stopping'"),
]


@pytest.mark.parametrize(("text", "why"), BROKEN_MESHES, ids=map(str, range(len(BROKEN_MESHES))))
@pytest.mark.parametrize("words", ["up", "down", "status", "send demo x", "topic ls"])
def test_a_damaged_mesh_json_is_named_by_every_command_that_reads_it(
    words: str, text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to do: it only says who runs now."""
    monkeypatch.setenv("TERNMQ_DATA_DIR", str(tmp_path))
    path = tmp_path / "mesh.json"
    path.write_text(text)
    failed = run(*words.split())
    assert failed.exit_code == 1
    assert str(path) in failed.stderr
    assert why in failed.stderr
    assert "remove it" in failed.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["send", "demo", "\udcff"],
        ["send", "\udcff", "x"],
        ["send", "demo", "@\udcff"],
        ["send", "demo", "x", "-p", "a=\udcff"],
        ["status", "--data-dir", "a\udcff"],
        ["topic", "create", "\udcff"],
        ["\udcff"],
        ["--\udcff"],
    ],
    ids=ascii,
)
@pytest.mark.parametrize("output", [[], ["-o", "json"]], ids=["table", "json"])
def test_a_word_that_is_no_text_is_shown_with_its_bytes(words: list[str], output: list[str]) -> None:
    """One sentence that says which word, and how bytes are sent."""
    failed = run(*words, *output)
    assert failed.exit_code == 2
    assert r"\xff" in (error_of(failed)["detail"] if output else failed.stderr)
    assert "@FILE" in failed.stderr


def test_bytes_from_a_real_shell_are_refused_too(tmp_path: Path) -> None:
    """And in a variable, where the word does not show it."""
    command: list[str | bytes] = [sys.executable, "-m", "tern_cli", "send", "demo"]
    for word, variables in ((b"\xff", {}), (b"x", {b"TERNMQ_ENDPOINT": b"http://\xff"})):
        environment = {**os.environb, **variables}
        failed = subprocess.run([*command, word], capture_output=True, cwd=tmp_path, env=environment, check=False)
        assert failed.returncode == 2
        assert b"Traceback" not in failed.stderr
        assert rb"\xff" in failed.stderr
    assert b"TERNMQ_ENDPOINT" in failed.stderr


def test_a_supervisor_with_a_damaged_cluster_json_never_bootstraps(tmp_path: Path) -> None:
    """In doubt the group is born: an empty directory is then a loss that is told, and not a new beginning."""
    files = MeshFiles(tmp_path)
    assert not files.is_born()
    files.write_cluster({**CLUSTER, "born": False})
    assert not files.is_born()
    files.cluster.write_text("{")
    assert files.is_born()
