"""`ternmq up`, `down` and the supervisor with real processes: stand-ins for the services, told to die, to be deaf or to be slow."""

import json
import os
import random
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tern_cli.mesh import readiness
from tern_cli.mesh.disk_budget import with_budget
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.plan import MeshShape, plan_mesh, shape_from_base
from tern_cli.mesh.process_table import boot_id, is_same, rss_bytes, start_ticks
from tern_cli.mesh.start import _is_hopeless, living, spawn_supervisor, stop_mesh
from tern_cli.mesh.supervisor import bound_log
from tests.support.mesh.mesh import free_port_base
from tests.support.mesh.stand_in_mesh import Home, eventually, mesh_document, stand_in_home

RSS_MAX_BYTES = 30 * 1024 * 1024


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose services are stand-ins."""
    with stand_in_home(tmp_path, monkeypatch) as made:
        yield made


def test_a_mesh_goes_up_once_and_down_within_its_deadline(home: Home) -> None:
    """Separate processes with their own logs; a second `up` changes nothing; after `down` nothing is left but data."""
    first = home.up()
    assert first.exit_code == 0, first.output
    assert "The mesh is up" in first.output
    mesh = home.files.read_mesh()
    assert len(living(mesh)) == 6
    assert rss_bytes(mesh["supervisor"]["pid"]) < RSS_MAX_BYTES
    assert "malloc arenas 2" in home.files.log("broker-a-1").read_text()
    assert home.files.key.stat().st_mode & 0o777 == 0o600
    assert home.files.key.stat().st_size == 32
    again = home.run("up")
    assert (again.exit_code, "already running" in again.output) == (0, True)
    assert home.files.read_mesh() == mesh
    down = home.run("down")
    assert down.exit_code == 0
    assert living(mesh) == []
    assert not is_same(mesh["supervisor"]["pid"], mesh["supervisor"]["start_ticks"])
    assert not home.files.mesh.exists()
    assert home.files.log("broker-a-0").read_text().splitlines()[-1] == "stopped"
    assert "No mesh was running" in home.run("down").output


def test_a_group_is_born_once(home: Home) -> None:
    """--bootstrap, group id and key are made at the first start; later starts, with other ports too, keep the id and leave it out."""
    home.up("--brokers", "1")
    key, known = home.files.key.read_bytes(), home.files.read_cluster()
    home.run("down")
    home.run("up")
    first, second = home.starts("broker-a-0")
    assert "--bootstrap" in first
    assert "--bootstrap" not in second
    assert f"--group-id {known['group_id']}" in second
    assert len(bytes.fromhex(known["group_id"])) == 16
    assert (home.files.key.read_bytes(), home.files.read_cluster()) == (key, known)
    home.run("down")
    other = home.up("--brokers", "3")
    assert (other.exit_code, "a group of 1 brokers, 3 were asked for" in other.output) == (2, True)


def test_a_killed_child_is_started_again(home: Home) -> None:
    """And mesh.json says how often; it is started without --bootstrap."""
    home.up()
    before = home.row("broker-a-1")
    os.kill(before["pid"], signal.SIGKILL)
    after = eventually(
        lambda: (row := home.row("broker-a-1"))["restarts"] == 1 and row["state"] == "running" and row, "a restart"
    )
    assert after["pid"] != before["pid"]
    assert after["exit_code"] == -signal.SIGKILL
    assert eventually(lambda: len(home.starts("broker-a-1")) == 2, "its second start")
    assert "--bootstrap" not in home.starts("broker-a-1")[1]


def test_a_broker_whose_fsync_failed_stays_down_and_status_says_why(home: Home) -> None:
    """Starting it again would trust pages that the kernel has dropped."""
    home.up()
    with home.files.log("broker-a-2").open("a") as log:
        log.write("error: a refusal of an earlier start\n")
    home.order("broker-a-2", "exit 74")
    os.kill(home.row("broker-a-2")["pid"], signal.SIGKILL)
    eventually(lambda: home.row("broker-a-2")["state"] == "failed", "the failure")
    status = home.run("status", "-o", "json")
    assert status.exit_code == 1
    rows = {row["name"]: row for row in json.loads(status.stdout)["processes"]}
    assert rows["broker-a-2"]["state"] == "failed: fsync failed; rebuild this node"
    assert rows["broker-a-2"]["last_line"] == "I was told to exit 74"
    assert rows["broker-a-0"]["state"] == "running"
    assert rows["broker-a-0"]["rss_bytes"] > 1_000_000


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({"broker": "rrr", "proxy": "r", "namesrv": "r"}, False),
        ({"broker": "frr", "proxy": "r", "namesrv": "r"}, False),
        ({"broker": "ffr", "proxy": "r", "namesrv": "r"}, True),
        ({"broker": "f", "proxy": "r", "namesrv": "r"}, True),
        ({"broker": "rrr", "proxy": "f", "namesrv": "r"}, True),
        ({"broker": "rrr", "proxy": "fr", "namesrv": "fr"}, False),
    ],
    ids=str,
)
def test_a_failed_minority_is_no_reason_to_stop_the_others(states: dict[str, str], expected: bool) -> None:
    """A mesh with a majority of its brokers and one of every other role accepts messages."""
    words = {"r": "running", "f": "failed"}
    rows = [{"role": role, "state": words[letter]} for role, letters in states.items() for letter in letters]
    assert _is_hopeless(rows) is expected


def test_an_up_that_fails_shows_the_last_lines_of_who_failed_and_leaves_nothing(home: Home) -> None:
    """At once when a process says that its configuration is wrong."""
    home.order("proxy-0", "exit 78")
    failed = home.up()
    assert failed.exit_code == 1
    assert "The mesh does not accept messages" in failed.output
    assert "I was told to exit 78" in failed.output
    assert not home.files.mesh.exists()
    for line in (home.orders / "starts").read_text().splitlines():
        assert start_ticks(int(line.split()[1])) == 0


def test_a_deaf_process_is_killed_and_the_others_still_stop_properly(home: Home) -> None:
    """By the supervisor itself. A tenth of the usual patience, so that the test does not wait for 8 s."""
    home.order("proxy-0", "deaf")
    home.files.make_folders()
    shape = MeshShape(**shape_from_base({}, home.port_base))
    plan = plan_mesh(shape, data_dir=str(home.files.root), group_id="ab", python=sys.executable)
    lock = home.files.try_lock()
    spawn_supervisor(home.files, replace(plan, stop_within_s=0.8), lock)
    os.close(lock)
    eventually(lambda: home.files.log("proxy-0").exists() and home.files.last_lines("proxy-0", 1), "the deaf one")
    eventually(lambda: home.files.last_lines("broker-a-0", 1), "a broker that hears")
    deaf = home.row("proxy-0")
    assert stop_mesh(home.files)
    assert not is_same(deaf["pid"], deaf["start_ticks"])
    assert home.files.last_lines("broker-a-0", 1) == ["stopped"]
    assert not home.files.mesh.exists()


def test_children_die_with_a_killed_supervisor_and_the_next_up_works(home: Home) -> None:
    """mesh.json of the dead supervisor is stale, and is not believed."""
    home.up("--brokers", "1")
    mesh = home.files.read_mesh()
    os.kill(mesh["supervisor"]["pid"], signal.SIGKILL)
    eventually(lambda: not living(mesh), "the end of the children")
    assert home.run("status").exit_code == 1
    assert home.run("up").exit_code == 0
    assert len(living(home.files.read_mesh())) == 4


def test_a_stray_of_a_dead_supervisor_is_ended_by_down(home: Home) -> None:
    """Known by pid and start time; a process that only has the same pid is left alone."""
    home.files.make_folders()
    stray = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "import signal; signal.pause()"])
    (some,) = mesh_document()["processes"]
    bystander = {**some, "name": "b", "pid": os.getpid(), "start_ticks": start_ticks(os.getpid()) + 1}
    row = {**some, "name": "a", "pid": stray, "start_ticks": start_ticks(stray)}
    home.files.write_mesh(mesh_document(boot_id=boot_id(), processes=[row, bystander]))
    assert home.run("down").exit_code == 0
    assert os.waitstatus_to_exitcode(os.waitpid(stray, 0)[1]) == -signal.SIGTERM
    assert not home.files.mesh.exists()


@pytest.mark.parametrize(
    ("offset", "option"), [(0, "--proxy-port"), (10, "--namesrv-port"), (31, "--broker-port"), (70, "--checker-port")]
)
def test_a_port_in_use_is_named_with_its_option_before_anything_starts(home: Home, offset: int, option: str) -> None:
    """Exit code 2: it was asked wrongly."""
    with socket.socket() as taken:
        # An earlier test's connections may still linger on this port.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", home.port_base + offset))
        taken.listen()
        refused = home.up()
    assert refused.exit_code == 2
    assert f"Port {home.port_base + offset}" in refused.output
    assert option in refused.output
    assert not (home.orders / "starts").exists()


def test_two_meshes_run_side_by_side(home: Home) -> None:
    """Directories and ports of their own; the end of one is not the other's."""
    assert home.up("--brokers", "1").exit_code == 0
    # Only now: ports that nobody listens on yet would count as free, those of the first mesh too.
    other = Home(MeshFiles(home.orders / "other"), home.orders, free_port_base(random.Random(home.port_base)))
    try:
        started = other.up("--brokers", "1")
        assert started.exit_code == 0, started.output
        assert home.run("down").exit_code == 0
        assert len(living(other.files.read_mesh())) == 4
        assert home.files.read_cluster()["group_id"] != other.files.read_cluster()["group_id"]
    finally:
        stop_mesh(other.files)


def test_a_log_is_cut_when_it_is_full_and_its_writer_goes_on(tmp_path: Path) -> None:
    """The writer keeps its descriptor; one older log is kept."""
    files = MeshFiles(tmp_path)
    files.make_folders()
    with files.log("x").open("ab", buffering=0) as log:
        log.write(b"a" * 100)
        bound_log(files, "x", size_max_bytes=100)
        assert files.log("x").stat().st_size == 100
        log.write(b"b")
        bound_log(files, "x", size_max_bytes=100)
        log.write(b"c")
    assert files.log("x").read_bytes() == b"c"
    assert (tmp_path / "logs" / "x.log.1").read_bytes() == b"a" * 100 + b"b"


@pytest.mark.parametrize(
    ("free_gib", "budget_gib", "segment_mib", "share_gib"),
    [(100, 20, 256, 20 / 3), (30, 15, 256, 5), (2, 1, 16, 1 / 3), (0.1, 0.05, 16, 1 / 16)],
)
def test_a_new_mesh_takes_a_budget_and_segments_that_suit_it(
    free_gib: float, budget_gib: float, segment_mib: int, share_gib: float
) -> None:
    """20 GiB or half of what is free, divided among the brokers; never fewer than four segments each."""
    gib = 1 << 30
    shape = with_budget(MeshShape(), free_bytes=int(free_gib * gib), is_new=True)
    assert shape.disk_budget_bytes == pytest.approx(budget_gib * gib, abs=2)
    assert shape.segment_size_bytes == segment_mib << 20
    plan = plan_mesh(shape, data_dir="/d", group_id="ab" * 16, python="python")
    argv = next(process.argv for process in plan.processes if process.role == "broker")
    assert int(argv[argv.index("--disk-budget-bytes") + 1]) == pytest.approx(share_gib * gib, abs=2)
    assert with_budget(shape, free_bytes=0, is_new=False) == shape


def test_no_budget_means_the_disk_itself() -> None:
    """0 is a decision; an old mesh keeps its segments."""
    shape = with_budget(MeshShape(disk_budget_bytes=0), free_bytes=1 << 40, is_new=True)
    assert (shape.disk_budget_bytes, shape.segment_size_bytes) == (0, 0)
    plan = plan_mesh(shape, data_dir="/d", group_id="ab" * 16, python="python")
    assert all("--disk-budget-bytes" not in process.argv for process in plan.processes)
    assert with_budget(MeshShape(), free_bytes=1 << 40, is_new=False).segment_size_bytes == 0


def test_a_checker_that_is_not_ready_in_time_stops_nobody(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mesh accepts messages without it: `up` waits for it, no longer than for the whole mesh, says so, and leaves the mesh up."""
    assert home.up().exit_code == 0
    monkeypatch.setattr(readiness, "why_not_ready", lambda row, _: f"{row['name']} stands still")
    again = home.run("up", "--wait", "1")
    assert again.exit_code == 0, again.output
    assert "already running" in again.output
    assert "txn-checker-0 stands still" in again.output
    assert len(living(home.files.read_mesh())) == 6
