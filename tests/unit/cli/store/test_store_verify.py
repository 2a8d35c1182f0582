"""`ternmq store verify`: exit codes, tables and JSON, and that it leaves a running node alone."""

import fcntl
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.store.verify_commands import REMEDIES
from tern_store.checks.finding import FindingKind
from tests.support.files.node_directory import NodeDirectory, digest, filled

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> NodeDirectory:
    """A directory with some of everything, stopped in order."""
    return filled(tmp_path_factory.mktemp("verify") / "node")


@pytest.fixture
def copy(sound: NodeDirectory, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(sound.directory, tmp_path / "node"))


def verify(directory: Path, *words: str) -> Result:
    """What `ternmq store verify` does; it changes nothing."""
    before = digest(directory)
    result = RUNNER.invoke(app, ["store", "verify", "--data-dir", str(directory), *words])
    assert digest(directory) == before
    assert "Traceback" not in result.output
    return result


def damage(path: Path, at: int) -> None:
    """One flipped bit."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_sound_directory_is_said_to_be_sound(sound: NodeDirectory) -> None:
    """Exit code 0, and how much was read."""
    result = verify(sound.directory)
    assert result.exit_code == 0
    assert "No damage" in result.stdout
    facts = json.loads(verify(sound.directory, "-o", "json").stdout)
    assert facts["findings"] == []
    assert facts["checked_bytes"] > sum(one.size for one in sound.stored)


def test_findings_come_with_file_byte_reason_and_remedy(copy: Path, sound: NodeDirectory) -> None:
    """Exit code 1; the log's damage is not to be healed here, that of a queue is."""
    damage(copy / "commitlog" / ("0" * 20), sound.stored[3].position + 20)
    damage(copy / "consumequeue/2/0" / ("0" * 20), 5)
    result = verify(copy)
    assert result.exit_code == 1
    for words in (
        "commitlog/00000000000000000000",
        "consumequeue/2/0",
        REMEDIES["log"],
        REMEDIES["derived"],
        "2 damaged",
    ):
        assert words in result.stdout, words
    result = verify(copy, "-o", "json")
    assert result.exit_code == 1
    found = {row["kind"]: row for row in json.loads(result.stdout)["findings"]}
    assert found["log"]["file"] == f"commitlog/{0:020d}"
    assert found["log"]["position"] <= sound.stored[3].position
    assert found["log"]["damage"]
    assert set(found["derived"]) == {"file", "position", "kind", "damage", "reason", "remedy"}


def test_what_a_crash_leaves_is_a_note(copy: Path) -> None:
    """Listed, but exit code 0: the next start puts it in order."""
    (copy / "abort").write_text("1 b00t\n")
    shutil.rmtree(copy / "entryindex")
    result = verify(copy, "-o", "json")
    assert result.exit_code == 0
    assert [row["damage"] for row in json.loads(result.stdout)["findings"]] == [False]
    result = verify(copy)
    assert "next start" in result.stdout
    assert "No damage" in result.stdout


def test_a_running_node_is_left_alone(copy: Path) -> None:
    """Refused, with the process id, in both forms of output; and no node can start while a check runs."""
    with (copy / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = verify(copy)
        assert result.exit_code == 1
        assert "4711" in result.stderr
        facts = json.loads(verify(copy, "-o", "json").stdout)
    assert "4711" in facts["error"]["detail"]
    (copy / "lock").unlink()
    assert verify(copy).exit_code == 0, "a copy that no node ever had open"


def test_another_directory_is_a_wrong_question(tmp_path: Path) -> None:
    """Exit code 2, for an empty directory and for none."""
    for path in (tmp_path, tmp_path / "nowhere"):
        result = verify(path, "-o", "json")
        assert result.exit_code == 2
        assert json.loads(result.stdout)["error"]["title"] == "Not the data directory of a node"


def test_every_kind_of_finding_has_a_remedy() -> None:
    """A new kind must say what to do."""
    assert REMEDIES.keys() == {kind.value for kind in FindingKind}
