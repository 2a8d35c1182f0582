"""`ternmq backup` and `ternmq restore`: what they copy, what interrupts them, what they refuse; a stand-in leader behind a real socket."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.backup.copying import PIECE_SIZE_BYTES, Rate, Waiting, copy_log
from tern_cli.backup.leader_client import Leader, NoAnswer
from tern_cli.failures import CommandFailed
from tern_store.backup.backup_directory import BackupDirectory
from tern_store.files import REAL_FILES
from tern_store.state.vote_file import require_votes
from tern_wire.errors import RebuildFileGone, RebuildNotNow
from tests.support.client.scripted_proxy import HANG_UP, Reply, refused
from tests.support.files.node_directory import GROUP, digest
from tests.support.raft.stand_in_leader import KEY, NODE, StandInLeader, standing_in

RUNNER = CliRunner()


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[StandInLeader]:
    """One whose log has some segments."""
    with standing_in(tmp_path / "node") as made:
        yield made


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The cluster's key."""
    (tmp_path / "cluster.key").write_bytes(KEY)
    return tmp_path / "cluster.key"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some pieces a segment."""
    assert PIECE_SIZE_BYTES == 1 << 20
    monkeypatch.setattr("tern_cli.backup.copying.PIECE_SIZE_BYTES", 10_000)


def run(*words: object) -> Result:
    """`ternmq WORDS`."""
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert "Traceback" not in result.output
    return result


def back_up(leader: StandInLeader, key_file: Path, directory: Path, *words: str) -> Result:
    """`ternmq backup DIRECTORY` of that leader."""
    return run("backup", directory, "--namesrv", leader.url, "--cluster-key-file", key_file, *words)


def facts_of(result: Result) -> dict[str, Any]:
    """What a command that worked said with -o json."""
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def failure_of(result: Result) -> tuple[int, str, str]:
    """Exit code, title and detail of a command that failed with -o json."""
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    return result.exit_code, error["title"], error["detail"]


@pytest.fixture
def backup(leader: StandInLeader, key_file: Path, tmp_path: Path) -> Path:
    """A complete one."""
    facts_of(back_up(leader, key_file, tmp_path / "backup", "-o", "json"))
    return tmp_path / "backup"


def test_a_backup_says_what_it_is_and_a_restored_node_is_the_log(
    leader: StandInLeader, backup: Path, tmp_path: Path
) -> None:
    """backup.json has all that a restore needs; both directories are found whole; they are for their owner alone."""
    note = json.loads((backup / "backup.json").read_text())
    mark = leader.store.log.mark(leader.store.log.end_index)
    assert note["cut"] == [mark.index, mark.position, mark.crc, mark.term]
    assert (note["cluster"], note["broker_group"], note["members"]) == ("tern", "broker-a", [NODE])
    assert (note["group_id"], note["segment_size_bytes"]) == (GROUP.group_id.hex(), GROUP.segment_size_bytes)
    assert note["size_bytes"] == mark.position
    assert note["made_at"].endswith("+00:00")
    assert backup.stat().st_mode & 0o777 == 0o700
    restored = facts_of(run("restore", backup, "--data-dir", tmp_path / "again", "--node", NODE, "-o", "json"))
    node = tmp_path / "again" / NODE
    assert restored["nodes"] == {NODE: str(node)}
    require_votes(node, GROUP, REAL_FILES)
    for directory in (backup, node):
        assert facts_of(run("store", "verify", "--data-dir", directory, "-o", "json"))["findings"] == []
        for segment in (leader.directory / "commitlog").glob("[0-9]*"):
            assert (directory / "commitlog" / segment.name).read_bytes() == segment.read_bytes()
            assert (directory / "commitlog" / segment.name).stat().st_nlink == 1


@pytest.mark.parametrize(
    "interruption",
    [
        HANG_UP,
        Reply(status=500),
        refused(RebuildNotNow(reason="a trim is on its way")),
        refused(RebuildFileGone(name="it")),
        Reply(body=b"bad bytes", headers={"MQ-Content-CRC32": "00000000"}),
    ],
    ids=["hang-up", "500", "not-now", "gone", "damaged"],
)
def test_what_interrupts_a_copy_costs_neither_the_cut_nor_what_is_there(
    leader: StandInLeader, key_file: Path, tmp_path: Path, interruption: Reply
) -> None:
    """The log grows meanwhile; the backup ends where it ended at the beginning."""
    leader.applied_index = cut = leader.store.log.end_index - 10

    def grow_and_fail(number: int, _: bytes) -> Reply | None:
        leader.applied_index = leader.store.log.end_index
        return interruption if number == 3 else None

    leader.instead = grow_and_fail
    facts = facts_of(back_up(leader, key_file, tmp_path / "backup", "-o", "json"))
    assert facts["cut"][0] == cut
    assert facts["copied_bytes"] == facts["size_bytes"], "no piece was written twice"


def test_what_was_acknowledged_before_is_in_the_backup_although_the_leader_s_own_disk_was_late(
    leader: StandInLeader, key_file: Path, tmp_path: Path
) -> None:
    """Two followers are a majority: an entry may be applied and acknowledged that the leader has not synced, and so does not offer."""
    applied = leader.applied_index
    leader.synced_late = 2
    facts = facts_of(back_up(leader, key_file, tmp_path / "backup", "-o", "json"))
    assert leader.synced_late == 0
    assert facts["cut"][0] == applied


def test_a_repeated_command_brings_a_backup_up_to_date_and_copies_only_what_is_new(
    leader: StandInLeader, key_file: Path, tmp_path: Path
) -> None:
    """And once more, when nothing is."""
    leader.applied_index -= 20
    directory = tmp_path / "backup"
    first = facts_of(back_up(leader, key_file, directory, "-o", "json"))
    leader.applied_index += 20
    second = facts_of(back_up(leader, key_file, directory, "-o", "json"))
    assert (first["updated"], second["updated"]) == (False, True)
    assert second["copied_bytes"] == second["cut"][1] - first["cut"][1] > 0
    assert facts_of(back_up(leader, key_file, directory, "-o", "json"))["copied_bytes"] == 0
    assert run("store", "verify", "--data-dir", directory).exit_code == 0


def test_a_stranger_s_key_ends_the_command_at_once(leader: StandInLeader, tmp_path: Path) -> None:
    """And leaves no backup; without a key nobody is asked."""
    (tmp_path / "wrong").write_bytes(bytes(32))
    code, title, _ = failure_of(back_up(leader, tmp_path / "wrong", tmp_path / "backup", "-o", "json"))
    assert (code, title) == (1, "Only nodes of the cluster may ask here")
    assert leader.pieces == 0
    assert not (tmp_path / "backup" / "backup.json").exists()
    code, _, detail = failure_of(back_up(leader, tmp_path / "none", tmp_path / "backup", "-o", "json"))
    assert code == 2
    assert "--cluster-key-file" in detail
    (tmp_path / "short").write_bytes(b"short")
    assert back_up(leader, tmp_path / "short", tmp_path / "backup").exit_code == 2


def test_a_directory_of_somebody_else_is_refused_and_left_alone(
    leader: StandInLeader, key_file: Path, tmp_path: Path
) -> None:
    """A folder with a letter in it, and a node's own directory."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter").write_text("dear")
    for directory in (tmp_path / "letters", leader.directory):
        before = digest(directory)
        code, title, _ = failure_of(back_up(leader, key_file, directory, "-o", "json"))
        assert (code, title) == (2, "The directory cannot be used")
        assert digest(directory) == before


def test_a_backup_without_its_note_or_with_a_bad_bit_is_not_restored(backup: Path, tmp_path: Path) -> None:
    """Nothing is made of it, not even a folder."""
    target = ("--data-dir", tmp_path / "again", "--node", NODE, "-o", "json")
    segment = backup / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[5_000] ^= 1
    segment.write_bytes(data)
    assert failure_of(run("restore", backup, *target))[:2] == (1, "The backup is damaged")
    (backup / "backup.json").unlink()
    assert failure_of(run("restore", backup, *target))[:2] == (2, "The directory cannot be used")
    assert not (tmp_path / "again").exists()


def test_targets_that_will_not_do_are_refused_before_anything_is_written(backup: Path, tmp_path: Path) -> None:
    """Somebody's files, a node that is no member, no place or two of them."""
    again = tmp_path / "again"
    (again / NODE).mkdir(parents=True)
    (again / NODE / "letter").write_text("dear")
    for words, needle in (
        (("--data-dir", again, "--node", NODE), "is not empty"),
        (("--data-dir", again, "--node", "broker-a-7"), "no member"),
        (("--data-dir", again), "--node"),
        (("--node", NODE), "--data-dir"),
        (("--dir", again, "--data-dir", again, "--node", NODE), "--dir"),
        ((), "--dir"),
    ):
        code, _, detail = failure_of(run("restore", backup, *words, "-o", "json"))
        assert code == 2
        assert needle in detail
    assert [path.name for path in again.rglob("*")] == [NODE, "letter"]


def test_a_mesh_is_restored_with_the_cluster_json_that_fits(backup: Path, tmp_path: Path) -> None:
    """Group id, members and segment size; a key that is there already stays; another group's directory is refused."""
    mesh = tmp_path / "mesh"
    mesh.mkdir()
    (mesh / "cluster.key").write_bytes(KEY)
    result = run("restore", backup, "--dir", mesh)
    assert result.exit_code == 0, result.output
    assert "must not run beside it" in result.stdout
    assert "ternmq up" in result.stdout
    cluster = json.loads((mesh / "cluster.json").read_text())
    assert (cluster["group_id"], cluster["members"], cluster["born"]) == (GROUP.group_id.hex(), [NODE], False)
    shape = cluster["shape"]
    assert (shape["cluster"], shape["brokers"], shape["segment_size_bytes"]) == ("tern", 1, GROUP.segment_size_bytes)
    assert (mesh / "cluster.key").read_bytes() == KEY
    assert run("restore", backup, "--dir", mesh).exit_code == 2
    other = tmp_path / "other"
    other.mkdir()
    (other / "cluster.json").write_text(json.dumps(cluster | {"group_id": "0" * 32}))
    assert (
        failure_of(run("restore", backup, "--dir", other, "-o", "json"))[1] == "The directory belongs to another mesh"
    )


class VirtualTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, pause_s: float) -> None:
        self.now_s += pause_s

    def waiting(self) -> Waiting:
        return Waiting(monotonic=lambda: self.now_s, sleep=self.sleep, patience_s=30.0)


def nobody() -> Leader:
    raise NoAnswer("nobody leads now")


def test_a_group_without_a_leader_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    """The failure says that the same command goes on."""
    clock, copy = VirtualTime(), BackupDirectory.open(tmp_path / "backup")
    with pytest.raises(CommandFailed, match="the same command goes on"):
        copy_log(copy, nobody, rate_max_bytes_per_s=1, waiting=clock.waiting())
    copy.close()
    assert 30.0 < clock.now_s < 40.0


def test_no_more_is_asked_for_than_the_rate_allows() -> None:
    """Ten pieces of a second each; what an idle time would have allowed is not made up for."""
    clock = VirtualTime()
    rate = Rate(1_000, clock.waiting())
    waits: list[float] = []
    take: Callable[[int], None] = rate.take
    for _ in range(10):
        take(1_000)
        waits.append(clock.now_s)
    assert waits == [float(number) for number in range(10)]
    clock.now_s = 100.0
    take(1_000)
    take(1_000)
    assert clock.now_s == 101.0
