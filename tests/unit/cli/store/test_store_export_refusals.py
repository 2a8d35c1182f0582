"""What `ternmq store export` refuses: one sentence that says what to do, an exit code, and nothing left behind."""

from pathlib import Path

import pytest

from tern_store.directory_lock import DirectoryLock
from tern_store.errors import LogRot
from tern_store.files import REAL_FILES
from tern_store.small_files import quarantine
from tests.support.files.rocketmq_reading import SEGMENT_SIZE_BYTES, export
from tests.support.files.store_builder import StoreBuilder, message


def small_node(tmp_path: Path, *, clean: bool = True) -> Path:
    """A stopped node with three messages."""
    builder = StoreBuilder(tmp_path / "node")
    builder.topic("t")
    builder.send("t", 0, *(message("t", b"body-%d" % number) for number in range(3)))
    return builder.save(clean=clean)


def test_a_running_node_is_refused_by_its_pid(tmp_path: Path) -> None:
    """One sentence, and nothing is written."""
    directory = small_node(tmp_path)
    lock = DirectoryLock.acquire(directory)
    try:
        result = export(directory, tmp_path / "out")
    finally:
        lock.release()
    pid = (directory / "lock").read_text().strip()
    assert result.exit_code == 1
    assert f"in use by process {pid}" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_crashed_node_must_be_started_first(tmp_path: Path) -> None:
    """The tails of its queues are in the log only."""
    result = export(small_node(tmp_path, clean=False), tmp_path / "out")
    assert result.exit_code == 1
    assert "not stopped cleanly" in result.stderr
    assert "ternmq up, ternmq down" in result.stderr


def test_a_quarantined_node_is_refused(tmp_path: Path) -> None:
    """Its log is known to be damaged: another node of the group has everything."""
    directory = small_node(tmp_path)
    quarantine(directory, LogRot(directory / "commitlog", 4096, "a bit has changed"), REAL_FILES)
    result = export(directory, tmp_path / "out")
    assert result.exit_code == 1
    assert "a bit has changed" in result.stderr
    (directory / "quarantine").unlink()
    assert export(directory, tmp_path / "out").exit_code == 0


def test_a_damaged_record_ends_the_export_and_leaves_nothing(tmp_path: Path) -> None:
    """One flipped bit in the log: RocketMQ would drop everything behind it."""
    directory = small_node(tmp_path)
    path = directory / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[data.index(b"body-1")] ^= 1
    path.write_bytes(data)
    result = export(directory, tmp_path / "out")
    assert result.exit_code == 1
    assert "damaged" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node"]


def test_a_wrong_body_checksum_ends_the_export(tmp_path: Path) -> None:
    """Sound in our log, but a broker would refuse it, and everything behind it."""
    builder = StoreBuilder(tmp_path / "node")
    builder.topic("t")
    bad = bytearray(message("t", b"bad"))
    bad[8] ^= 1
    builder.send("t", 0, message("t", b"good"), bytes(bad))
    result = export(builder.save(), tmp_path / "out")
    assert result.exit_code == 1
    assert "message 1 of t, queue 0" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node"]


def test_a_record_larger_than_a_file_is_said(tmp_path: Path) -> None:
    """Larger files are the way out."""
    builder = StoreBuilder(tmp_path / "node")
    builder.topic("t")
    builder.send("t", 0, message("t", bytes(SEGMENT_SIZE_BYTES)))
    result = export(builder.save(), tmp_path / "out")
    assert result.exit_code == 1
    assert "use larger files" in result.stderr


@pytest.mark.parametrize("taken", ["file", "folder"])
def test_a_target_in_use_is_refused(taken: str, tmp_path: Path) -> None:
    """Nothing is ever mixed with what is there; an empty directory will do."""
    directory, target = small_node(tmp_path), tmp_path / "out"
    if taken == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    assert export(directory, target).exit_code == 2
    assert (target if taken == "file" else target / "mine").read_text() == "mine"
    if taken == "folder":
        (target / "mine").unlink()
        assert export(directory, target).exit_code == 0


def test_a_directory_that_is_no_nodes_is_named(tmp_path: Path) -> None:
    """A whole mesh's directory holds several nodes: the answer names one of them."""
    (tmp_path / "data").mkdir()
    small_node(tmp_path)
    (tmp_path / "node").rename(tmp_path / "data" / "broker-a-0")
    result = export(tmp_path, tmp_path / "out")
    assert result.exit_code == 2
    assert str(tmp_path / "data" / "broker-a-0") in result.stderr
    missing = export(tmp_path / "nowhere", tmp_path / "out")
    assert missing.exit_code == 1
    assert "not the data directory of a node" in missing.stderr
    assert not (tmp_path / "nowhere").exists()
