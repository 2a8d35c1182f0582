"""What `ternmq up` says: options that a running mesh does not have, a key that was lost, nodes that take no part, what to try next."""

import json
import os
import random
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.endpoint import endpoints
from tern_cli.mesh.hints import try_it
from tern_cli.variables import mesh_directory
from tests.support.mesh.mesh import free_port_base
from tests.support.mesh.stand_in_mesh import Home, eventually, stand_in_home

QUARANTINED = {"role": "quarantined", "quarantined": {"file": "/d/commitlog/0", "position": 4711, "reason": "bad CRC"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose services are stand-ins."""
    with stand_in_home(tmp_path, monkeypatch) as made:
        yield made


def test_options_that_a_running_mesh_does_not_have_are_named(home: Home) -> None:
    """Each one with what runs, exit code 2, and nothing is changed; the same options again are no failure."""
    same = ["--brokers", "1", "--disk-budget", "1000000000", "--cluster", "mine"]
    assert home.up(*same).exit_code == 0
    mesh, cluster = home.files.read_mesh(), home.files.read_cluster()
    again = home.up(*same)
    assert (again.exit_code, "already running" in again.output) == (0, True)
    other = free_port_base(random.Random(home.port_base))
    asked: dict[str, object] = {"--brokers": 3, "--proxies": 2, "--namesrvs": 2, "--disk-budget": 0}
    asked |= {"--port-base": other, "--segment-size-bytes": 65_536, "--cluster": "other"}
    asked |= {"--checkers": 0, "--check-hosts": "*.example.com"}
    failed = home.run(
        "up", "--proxy-port", str(home.port_base), *(str(word) for pair in asked.items() for word in pair)
    )
    assert failed.exit_code == 2
    for option, value in asked.items():
        assert f"{option} {value} (" in failed.stderr
    assert "--proxy-port" not in failed.stderr
    assert "Nothing was changed" in failed.stderr
    assert "ternmq down --data-dir" in failed.stderr
    for option, value in {"--proxy-port": other, "--namesrv-port": 1, "--broker-port": 1, "--checker-port": 1}.items():
        assert f"{option} {value} (" in home.run("up", option, str(value)).stderr
    assert home.run("up", "--foreground").exit_code == 2
    assert (home.files.read_mesh(), home.files.read_cluster()) == (mesh, cluster)


def test_a_lost_key_is_told(home: Home) -> None:
    """The mesh starts with a new one; what that means stands on stderr. A new mesh has lost nothing."""
    first = home.up("--brokers", "1")
    assert "cluster.key" not in first.output
    key = home.files.key.read_bytes()
    home.run("down")
    home.files.key.unlink()
    second = home.run("up", "-o", "json")
    assert second.exit_code == 0, second.output
    assert home.files.key.read_bytes() != key
    assert str(home.files.key) in second.stderr
    assert "receipt handles" in second.stderr
    assert json.loads(second.stdout)["warnings"] == [second.stderr.removeprefix("warning: ").strip()]
    home.run("down")
    assert home.run("up").stderr == ""


def test_a_mesh_with_a_quarantined_node_is_up_and_says_so(home: Home) -> None:
    """With file, position and reason; `status` says it too, with exit code 1: somebody should look."""
    home.order("broker-a-1", f"say {json.dumps(QUARANTINED)}")
    up = home.up()
    assert up.exit_code == 0, up.output
    for shown in (up, home.run("status")):
        assert "broker-a-1 is quarantined" in shown.stdout
        for fact in ("/d/commitlog/0", "4711", "bad CRC"):
            assert fact in shown.stdout
    status = home.run("status", "-o", "json")
    rows = {row["name"]: row for row in json.loads(status.stdout)["processes"]}
    assert (status.exit_code, rows["broker-a-1"]["state"]) == (1, "quarantined")
    assert rows["broker-a-1"]["quarantined"] == QUARANTINED["quarantined"]
    assert (rows["broker-a-0"]["quarantined"], rows["broker-a-0"]["state"]) == (None, "running")
    assert "broker-a-1 is quarantined" in json.loads(home.run("up", "-o", "json").stdout)["notes"][0]


def test_a_node_that_makes_files_again_or_refuses_sends_or_lacks_something_is_shown(home: Home) -> None:
    """It runs: exit code 0, and a line that says what it does."""
    home.order("broker-a-0", 'say {"role": "leader", "rebuilding": "", "refuses_sends": true}')
    home.order("broker-a-1", 'say {"role": "follower", "rebuilding": "the index was damaged", "refuses_sends": false}')
    home.order("broker-a-2", 'say {"role": "follower", "lacks": "Too many open files: raise the limit"}')
    home.up()
    status = home.run("status")
    assert status.exit_code == 0, status.output
    assert "broker-a-0 refuses sends" in status.stdout
    assert "broker-a-1 is rebuilding" in status.stdout
    assert "the index was damaged" in status.stdout
    assert "broker-a-2 is refused something by its operating system, and tries again: Too many open" in status.stdout
    rows = {row["name"]: row for row in json.loads(home.run("status", "-o", "json").stdout)["processes"]}
    assert rows["broker-a-0"]["refuses_sends"] is True
    assert rows["broker-a-1"]["rebuilding"] == "the index was damaged"
    assert (rows["broker-a-2"]["refuses_sends"], rows["broker-a-2"]["rebuilding"]) == (False, "")
    assert [row["lacks"] for row in rows.values() if row["lacks"]] == ["Too many open files: raise the limit"]


def test_whose_messages_hold_the_space_and_what_was_dropped_unread_is_shown(home: Home) -> None:
    """The topic, the group, and the command that lets it go."""
    held = '{"topic": "orders", "group": "billing", "messages": 12345}'
    lost = '[{"topic": "clicks", "group": "web", "messages": 7}]'
    home.order(
        "broker-a-0",
        f'say {{"role": "leader", "refuses_sends": true, "space_held": {held}, "dropped_unread": {lost}}}',
    )
    home.up()
    status = home.run("status", "-o", "json")
    rows = {row["name"]: row for row in json.loads(status.stdout)["processes"]}
    assert rows["broker-a-0"]["space_held"]["group"] == "billing"
    shown = " ".join(home.run("status").stdout.split())
    assert "group billing has not read 12,345 messages of topic orders" in shown
    assert "ternmq topic alter orders --when-full drop-oldest" in shown
    assert rows["broker-a-0"]["dropped_unread"] == [{"topic": "clicks", "group": "web", "messages": 7}]


def test_a_node_that_cannot_apply_an_entry_is_shown(home: Home) -> None:
    """With the command that says more."""
    home.order("broker-a-1", 'say {"role": "follower", "blocked": {"index": 48211, "error": "AssertionError"}}')
    home.up()
    status = home.run("status")
    assert status.exit_code == 0, status.output
    assert "broker-a-1 cannot apply entry 48211 of its log" in status.stdout
    assert "ternmq raft blocked" in status.stdout
    rows = {row["name"]: row["blocked"] for row in json.loads(home.run("status", "-o", "json").stdout)["processes"]}
    assert (rows["broker-a-0"], rows["broker-a-1"]) == (None, 48211)


def test_checkers_are_as_many_as_asked_and_may_be_none(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory remembers it. Each has its own name and port; whom they may call, the variable says, too, for proxies and checkers alike."""
    monkeypatch.setenv("TERNMQ_CHECK_HOSTS", "hooks.example.com,10.1.0.0/16")
    assert home.up("--brokers", "1", "--checkers", "2").exit_code == 0
    rows = [row for row in home.files.read_mesh()["processes"] if row["role"] == "txn-checker"]
    ports = [row["ports"]["http"] for row in rows]
    assert ([row["name"] for row in rows], ports) == (
        ["txn-checker-0", "txn-checker-1"],
        [home.port_base + 70, home.port_base + 71],
    )
    for name in ("txn-checker-0", "txn-checker-1", "proxy-0"):
        assert "--check-hosts hooks.example.com,10.1.0.0/16" in home.starts(name)[0]
        assert "--check-http" not in home.starts(name)[0]
    home.run("down")
    assert home.run("up").exit_code == 0
    assert home.row("txn-checker-1")["state"] == "running"
    home.run("down")
    monkeypatch.setenv("TERNMQ_CHECK_HTTP", "true")
    assert home.run("up").exit_code == 0
    assert all("--check-http" in home.starts(name)[-1] for name in ("txn-checker-0", "proxy-0"))
    assert "--check-http False (it runs with True)" in home.run("up", "--no-check-http").stderr
    home.run("down")
    assert home.run("up", "--checkers", "0").exit_code == 0
    assert not [row for row in home.files.read_mesh()["processes"] if row["role"] == "txn-checker"]


def test_a_list_of_hosts_that_cannot_be_one_is_refused_before_anything_starts(home: Home) -> None:
    """With the entry, exit code 2."""
    refused = home.up("--check-hosts", "hooks.example.com,169.254.169.254")
    assert (refused.exit_code, "169.254.169.254" in refused.stderr) == (2, True)
    assert not (home.orders / "starts").exists()


def test_hosts_that_do_not_answer_checks_are_shown(home: Home) -> None:
    """By `status` and `up`, with what came of the last call; hosts that answer are not."""
    silent = [{"host": f"h{at}.example.com", "port": 443, "circuit": "open", "last": "timeout"} for at in range(5)]
    well = {"host": "well.example.com", "port": 443, "circuit": "closed", "last": "commit"}
    home.order("txn-checker-0", f"say {json.dumps({'hosts': [*silent, well]})}")
    home.up("--brokers", "1")
    status = home.run("status")
    assert status.exit_code == 0, status.output
    note = "txn-checker-0 asks about open transactions and gets no answer from h0.example.com:443 (timeout), "
    shown = " ".join(status.stdout.split())
    assert note in shown
    assert "and 2 more" in shown
    assert "well.example.com" not in shown
    rows = {row["name"]: row for row in json.loads(home.run("status", "-o", "json").stdout)["processes"]}
    assert len(rows["txn-checker-0"]["silent_hosts"]) == 5
    assert rows["broker-a-0"]["silent_hosts"] == []


def test_a_node_that_cannot_start_sends_the_reader_to_its_log(home: Home) -> None:
    """78 may be a setting, a directory or a lost disk: the label leaves that to the log, whose last line it shows."""
    home.order("broker-a-2", "exit 78")
    up = home.up()
    assert up.exit_code == 0, up.output
    with home.files.log("broker-a-2").open("a") as log:
        log.write("error: the directory is empty\nsomething behind it\n")
    eventually(lambda: home.row("broker-a-2")["state"] == "failed", "the failure")
    status = home.run("status")
    assert status.exit_code == 1
    assert "failed: cannot start so; see its log" in status.stdout
    assert "configuration" not in status.stdout
    assert "ends with: error: the directory is empty" in status.stdout
    assert str(home.files.log("broker-a-2")) in status.stdout
    rows = {row["name"]: row for row in json.loads(home.run("status", "-o", "json").stdout)["processes"]}
    assert rows["broker-a-2"]["last_line"] == "error: the directory is empty"
    assert "broker-a-2 failed" in home.run("up").stdout


def test_what_up_prints_to_try_works_as_printed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder: another directory and other ports are exported first."""
    up = home.up("--brokers", "1")
    tried = [line.strip() for line in up.stdout.partition("Try:\n")[2].splitlines()]
    assert len(tried) == 6
    monkeypatch.chdir("/")
    words = shlex.split(tried[0])
    assert words[0] == "export"
    for word in words[1:]:
        monkeypatch.setenv(*word.split("=", 1))
    assert mesh_directory() == str(home.files.root)
    assert endpoints("") == [f"http://127.0.0.1:{home.port_base}"]
    for line in tried[1:]:
        assert f"http://127.0.0.1:{home.port_base}" in line or line.startswith("ternmq ")
    assert CliRunner().invoke(app, shlex.split(tried[-1])[1:]).exit_code == 0
    again = CliRunner().invoke(app, ["up"])
    assert "export" not in again.stdout


@pytest.mark.parametrize(
    ("environ", "root", "port", "exported"),
    [
        ({}, "/here/.tern", 8080, []),
        ({}, "/here/.tern", 18_000, ["TERNMQ_ENDPOINT=http://127.0.0.1:18000"]),
        ({}, "/else where/.tern", 8080, ["TERNMQ_DATA_DIR='/else where/.tern'"]),
        ({"TERNMQ_DATA_DIR": "/b", "TERNMQ_ENDPOINT": "http://127.0.0.1:18000"}, "/b", 18_000, []),
        ({"TERNMQ_ENDPOINT": "http://127.0.0.1:9"}, "/here/.tern", 8080, ["TERNMQ_ENDPOINT=http://127.0.0.1:8080"]),
        ({"TERNMQ_DATA_DIR": "/b"}, "/here/.tern", 8080, ["TERNMQ_DATA_DIR=/here/.tern"]),
    ],
)
def test_only_what_commands_would_not_find_is_exported(
    environ: dict[str, str], root: str, port: int, exported: list[str]
) -> None:
    """The usual mesh needs nothing."""
    lines = try_it(f"http://127.0.0.1:{port}", Path(root), folder=Path("/here"), environ=environ)
    found = [line for line in lines if line.startswith("export")]
    assert found == ([f"export {' '.join(exported)}"] if exported else [])
    assert re.search(rf"curl .*:{port}/", "\n".join(lines))


def test_what_a_secure_mesh_suggests_makes_a_key_first() -> None:
    """Its root key may not send, and curl without a key is refused: no line of the open mesh's would work."""
    lines = try_it("https://127.0.0.1:8080", Path("/here/.tern"), folder=Path("/here"), environ={})
    assert not any(line.startswith("curl") for line in lines)
    made = lines.index("ternmq key create app --out app.key")
    assert all(number > made for number, line in enumerate(lines) if " send " in line or " recv " in line)
    assert all("--key-file app.key" in line for line in lines if " send " in line or " recv " in line)


def test_a_mesh_json_that_was_removed_or_damaged_comes_back_while_the_mesh_runs(home: Home) -> None:
    """The supervisor looks every few seconds, so that `down` finds it again."""
    home.up("--brokers", "1")
    mesh = home.files.read_mesh()
    home.files.mesh.write_text("{")
    assert home.run("down").exit_code == 1
    eventually(lambda: home.files.mesh.read_text() != "{", "the file is written again")
    assert home.files.read_mesh() == mesh
    home.files.mesh.unlink()
    eventually(home.files.mesh.exists, "the file is there again")
    os.kill(home.row("broker-a-0")["pid"], signal.SIGTERM)
    assert home.run("down").exit_code == 0
