"""The offline check: nothing on a sound directory, every damage on a damaged one, and not a byte changed on either."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tern_store.checks import verification
from tern_store.checks.finding import FINDINGS_MAX, Finding, FindingKind
from tern_store.checks.verification import verify_directory
from tern_store.errors import StoreError
from tern_store.files import REAL_FILES
from tern_store.log.commit_log import CommitLog
from tern_store.log.entry import EntryKind
from tern_store.state.vote_file import VoteFile
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import NO_KEY, QUEUE_ENTRIES, SEND_ROW
from tern_wire.records.write import encode_record
from tests.support.files.node_directory import GROUP, QUEUES, NodeDirectory, digest, filled

PAGE = 4096
SEEDS = range(2)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> NodeDirectory:
    """A directory with some of everything, stopped in order."""
    return filled(tmp_path_factory.mktemp("sound") / "node")


@pytest.fixture
def copy(sound: NodeDirectory, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(sound.directory, tmp_path / "node"))


def check(directory: Path) -> list[Finding]:
    """All findings; the directory is byte for byte what it was."""
    before = digest(directory)
    found = verify_directory(directory, REAL_FILES)
    assert digest(directory) == before, "a check changes nothing"
    return found


def flip(path: Path, at: int, bit: int = 0) -> None:
    """Another bit at one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def flip_one(path: Path, rng: random.Random) -> None:
    """One bit of a byte that is not zero: of an index file that still grows, nobody wrote the rest."""
    data = path.read_bytes()
    flip(path, rng.choice([at for at, byte in enumerate(data) if byte]), rng.randrange(8))


def zero_page(path: Path, rng: random.Random) -> None:
    """A page that the disk forgot."""
    data = bytearray(path.read_bytes())
    pages = [at for at in range(0, len(data), PAGE) if any(data[at : at + PAGE])]
    at = rng.choice(pages)
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))
    path.write_bytes(data)


def truncate(path: Path, rng: random.Random) -> None:
    """The end of the file is gone."""
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data))])


def delete(path: Path, rng: random.Random) -> None:
    """The file is gone."""
    del rng
    path.unlink()


DAMAGES = (flip_one, zero_page, truncate, delete)
FOLDERS = (
    "commitlog",
    "entryindex",
    "consumequeue",
    "index",
    "timers",
    "sentkeys",
    "state",
    "votes",
    "config",
    "checkpoint",
)
# What a text without a checksum, or one of two generations, cannot show.
UNSEEN = {
    ("config", flip_one),
    ("config", delete),
    ("checkpoint", delete),
    ("checkpoint", zero_page),
    ("state", delete),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("folder", "damage"),
    [(folder, damage) for folder in FOLDERS for damage in DAMAGES if (folder, damage) not in UNSEEN],
)
def test_damage_of_every_kind_of_file_is_found_and_its_file_named(
    copy: Path, folder: str, damage: Callable[[Path, random.Random], None], seed: int
) -> None:
    """A flipped bit, a zeroed page, a lost end, a lost file, anywhere in what was written."""
    rng = random.Random(f"{folder} {damage.__name__} {seed}")
    path = rng.choice(sorted(path for path in copy.rglob("*") if path.is_file() and folder in path.parts[-4:]))
    damage(path, rng)
    named = {finding.file for finding in check(copy) if finding.is_damage}
    # Checks beside the rows: whichever of both changed, the rows cannot be believed.
    assert {path, path.with_suffix("")} & named, (path, named)


@pytest.mark.parametrize("seed", range(3))
def test_a_sound_directory_has_no_findings(tmp_path: Path, seed: int) -> None:
    """Several segments and index files, late messages, timers, two saved states: all of it is read, nothing is complained of."""
    node = filled(tmp_path, seed=seed)
    told: list[tuple[int, int]] = []
    assert verify_directory(tmp_path, REAL_FILES, lambda done, total: told.append((done, total))) == []
    assert told == sorted(told)
    assert told[-1][0] >= sum(one.size for one in node.stored), "every record was read"
    assert len(list((tmp_path / "commitlog").iterdir())) > 2
    assert len(list((tmp_path / "index").iterdir())) > 4


def test_windows_and_second_passes_give_the_same_answer(sound: NodeDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that point back are looked up again; however small windows and spans are, none is missed and none accused."""
    for name, value in (("WINDOW_RECORDS", 7), ("KEPT_ASIDE_MAX", 1), ("_STRIDE_BYTES", 1), ("_READ_MAX_ENTRIES", 3)):
        monkeypatch.setattr(f"tern_store.checks.queue_check.{name}", value)
    monkeypatch.setattr("tern_store.checks.queue_check._READ_MIN_ENTRIES", 3)
    monkeypatch.setattr("tern_store.checks.log_check.SPAN_SIZE_BYTES", 1000)
    assert check(sound.directory) == []


@pytest.mark.parametrize(("column", "reason"), [("position", "no record"), ("size", "size"), ("tag", "tag")])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_queue_entry_that_is_written_whole_but_wrong_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, reason: str, is_late: bool
) -> None:
    """Its checks are right, since the node itself wrote it: only the record that it points at can convict it."""
    node = NodeDirectory(tmp_path)
    node.send(("orders", 0), ("orders", 0))
    (late,) = node.send(("orders", 0), visible=False)
    node.send(("orders", 0))
    wrong = np.array([(late.position, late.size, node.tag_code(late))], QUEUE_ENTRIES)
    wrong[column][0] += 1
    if is_late:  # its record has gone by in an earlier window
        monkeypatch.setattr("tern_store.checks.queue_check.WINDOW_RECORDS", 1)
        monkeypatch.setattr("tern_store.checks.log_check.SPAN_SIZE_BYTES", 1)
    node.deliver_entry("orders", 0, wrong)
    node.save()
    node.close()
    (finding,) = check(tmp_path)
    assert finding.kind is FindingKind.DERIVED
    assert (finding.file.parent, finding.position) == (tmp_path / "consumequeue/1/0", 60)
    assert "offset 3" in finding.reason
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("position", "no record begins there"),
        ("size", "another size"),
        ("tag", "another tag"),
        ("queue", "another queue"),
        ("topic_id", "another queue"),
        ("", ""),
    ],
)
def test_a_timer_that_points_at_something_else_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str, reason: str
) -> None:
    """Its message would not be delivered, or another one in its place: found long before its time comes."""
    monkeypatch.setattr("tern_store.checks.timer_check.KEPT_MAX", 2)
    monkeypatch.setattr("tern_store.checks.log_check.SPAN_SIZE_BYTES", 1)
    node = NodeDirectory(tmp_path)
    for _ in range(5):
        (late,) = node.send(("orders", 0), visible=False)
        node.send(("orders", 1))
    node.wait(late, **({column: 1} if column else {}))
    node.save()
    node.close()
    found = check(tmp_path)
    assert [finding.kind for finding in found] == ([FindingKind.DERIVED] if column else [])
    if column:
        assert found[0].file == tmp_path / "timers"
        assert "timer 9999" in found[0].reason
        assert reason in found[0].reason


def test_a_queue_entry_of_another_queue_is_found(tmp_path: Path) -> None:
    """A sound record, a sound entry, but they do not belong together."""
    node = NodeDirectory(tmp_path)
    (sent,) = node.send(("orders", 1))
    node.send(("orders", 0))
    node.deliver_entry("orders", 0, np.array([(sent.position, sent.size, node.tag_code(sent))], QUEUE_ENTRIES))
    node.save()
    node.close()
    (finding,) = check(tmp_path)
    assert "another queue" in finding.reason


@pytest.mark.parametrize("is_true", [True, False])
def test_a_message_that_was_copied_forward_is_compared_with_its_copy(tmp_path: Path, is_true: bool) -> None:
    """The queue's file still points at the old place; the saved state says where the message lies now."""
    node = NodeDirectory(tmp_path)
    sent, _ = node.send(("orders", 1), ("orders", 1))
    node.copy(sent if is_true else replace(sent, queue=0), 0)
    node.save()
    node.close()
    found = check(tmp_path)
    assert [finding.kind for finding in found] == ([] if is_true else [FindingKind.RECORD])
    assert is_true or "another queue" in found[0].reason


def test_records_and_rows_that_disagree_are_found(tmp_path: Path) -> None:
    """All of it under the entry's own checksum: a body without its CRC, rows of another size, queue, tag, CRC, topic, no record."""
    VoteFile.open(tmp_path, bootstrap=True, group=GROUP).close()
    log = CommitLog.open(tmp_path, group=GROUP)
    good = encode_record(b"t", 2, b"body", b"", born_ms=1)
    crc = int.from_bytes(good[8:12], "big")
    rotten = good.replace(b"body", b"bodx")
    row = (len(good), 5, 2, 0, 0, crc, 0, NO_KEY, 0, 0)
    sends = {
        "": (row, good),
        "does not have its CRC": (row, rotten),
        "another queue": ((row[0], 5, 3, *row[3:]), good),
        "another tag": ((*row[:4], 9, *row[5:]), good),
        "another body CRC": ((*row[:5], crc ^ 1, *row[6:]), good),
        "another topic": (row, good.replace(b"\x01t", b"\x01u")),
        "or of other sizes": ((len(good) + 1, *row[1:]), good),
        "magic": (row, good[:4] + b"\0" + good[5:]),
    }
    for values, record in sends.values():
        payload: list[bytes | bytearray | memoryview] = [SEND_HEAD.pack(1, 0), SEND_ROW.pack(*values), record]
        parts = entry_parts(1, [(CommandKind.SEND, payload)])
        log.append(EntryKind.COMMANDS, log.end_index + 1, 1, parts, 1)
    log.append(EntryKind.COMMANDS, log.end_index + 1, 1, [b"no commands at all"], 1)
    log.append(EntryKind.COMMANDS, log.end_index + 1, 1, entry_parts(1, [(CommandKind.SEND, [b"abc"])]), 1)
    log.close()
    reasons = [finding.reason for finding in check(tmp_path) if finding.kind is FindingKind.RECORD]
    assert len(reasons) == len(sends) + 1
    for words in [*sends, "a command's head runs past", "0 rows of records in 3 bytes"]:
        assert any(words in reason for reason in reasons), (words, reasons)


def test_a_byte_that_nobody_wrote_is_found(copy: Path, sound: NodeDirectory) -> None:
    """In the filler at a segment's end, and behind the log's end: no checksum covers them, they are zero."""
    size = GROUP.segment_size_bytes
    last = sound.end_position // size * size
    for name, at in ((0, size - 1), (last, sound.end_position % size + 700)):
        flip(copy / "commitlog" / f"{name:020d}", at)
    assert [(int(finding.file.name), finding.position) for finding in check(copy)] == [
        (0, size - 1),
        (last, sound.end_position % size + 700),
    ]


def test_behind_damage_the_check_goes_on(copy: Path, sound: NodeDirectory) -> None:
    """Two damaged entries in one segment, one in the next: three findings, and no queue entry is blamed for it."""
    places = [sound.stored[number] for number in (5, 200, 600)]
    for sent in places:
        segment, at = divmod(sent.position + sent.size // 2, GROUP.segment_size_bytes)
        flip(copy / "commitlog" / f"{segment * GROUP.segment_size_bytes:020d}", at)
    found = check(copy)
    assert [finding.kind for finding in found] == [FindingKind.LOG] * 3
    for finding, sent in zip(found, places, strict=True):
        assert finding.position <= sent.position % GROUP.segment_size_bytes


def test_without_an_entry_index_the_check_ends_at_the_damage(copy: Path, sound: NodeDirectory) -> None:
    """Then nothing says where the next entry begins: the finding says so."""
    shutil.rmtree(copy / "entryindex")
    flip(copy / "commitlog" / ("0" * 20), sound.stored[5].position + 50)
    found = [finding for finding in check(copy) if finding.kind is FindingKind.LOG]
    assert len(found) == 1
    assert "could not be checked" in found[0].reason


def test_what_a_crash_leaves_is_told_from_damage(copy: Path, sound: NodeDirectory) -> None:
    """A torn entry behind the last saved state, after a crash a note; after a clean stop, or before the saved state, damage."""
    log = CommitLog.open(copy, group=GROUP)
    entry = log.append(EntryKind.NOOP, log.end_index + 1, 1, [b"x" * 3000], 1)
    log.close()
    segment, at = divmod(entry.position + 1024, GROUP.segment_size_bytes)
    tail = copy / "commitlog" / f"{segment * GROUP.segment_size_bytes:020d}"
    data = bytearray(tail.read_bytes())
    data[at : at + 3000] = bytes(3000)
    tail.write_bytes(data)
    assert [finding.is_damage for finding in check(copy)] == [True]
    (copy / "abort").write_text("1 b00t\n")
    assert [finding.is_damage for finding in check(copy)] == [False]
    for path in (copy / "entryindex").iterdir():
        path.write_bytes(path.read_bytes()[:-40])
    assert {(finding.kind, finding.is_damage) for finding in check(copy)} == {
        (FindingKind.LOG, False),
        (FindingKind.DERIVED, False),
    }
    (copy / "commitlog" / ("0" * 20)).write_bytes(bytes(GROUP.segment_size_bytes))
    assert any(finding.is_damage and finding.kind is FindingKind.LOG for finding in check(copy))


def test_a_state_of_entries_that_the_log_has_lost_is_found(copy: Path, sound: NodeDirectory) -> None:
    """Zeros at the end of the log look as if nothing had ever been there; the saved state remembers."""
    for path in sorted((copy / "commitlog").iterdir())[1:]:
        path.unlink()
    shutil.rmtree(copy / "entryindex")
    first = copy / "commitlog" / ("0" * 20)
    data = bytearray(first.read_bytes())
    data[sound.stored[100].position - 500 :] = bytes(len(data) - sound.stored[100].position + 500)
    first.write_bytes(data)
    found = [finding for finding in check(copy) if finding.kind is FindingKind.LOG]
    assert any(f"entry {sound.saved_index} was durable" in finding.reason for finding in found), found


def test_a_directory_without_saved_states_says_what_was_not_checked(copy: Path) -> None:
    """Derived files mean nothing without the marks."""
    shutil.rmtree(copy / "state")
    assert [finding.kind for finding in check(copy)] == [FindingKind.STATE]


@pytest.mark.parametrize("boundary", [True, False])
def test_a_log_without_its_first_segment_begins_where_it_says(tmp_path: Path, boundary: bool) -> None:
    """Retention has dropped it: no damage, if the state that a replay would need is there; `start` itself is checked."""
    node = NodeDirectory(tmp_path)
    for number in range(80):
        node.send(*QUEUES, *QUEUES, body_size=300)
        if number == 70:
            node.save()
    position = node.trim(boundary=boundary)
    node.save()
    node.close()
    found = check(tmp_path)
    assert [finding.kind for finding in found] == ([] if boundary else [FindingKind.STATE])
    assert not (tmp_path / "commitlog" / ("0" * 20)).exists()
    flip(tmp_path / "commitlog" / "start", 20)
    named = {finding.file.name for finding in check(tmp_path) if finding.kind is FindingKind.LOG}
    assert named == {"start"}, position


def test_votes_of_another_group_and_quarantine_are_named(copy: Path, tmp_path: Path) -> None:
    """A vote file that came from elsewhere, and what the node itself has noted."""
    other = tmp_path / "other"
    VoteFile.open(other, bootstrap=True, group=type(GROUP)(b"x" * 16, GROUP.members, 1 << 16)).close()
    shutil.copy(other / "votes", copy / "votes")
    (copy / "quarantine").write_text('{"file": "f", "position": 7, "reason": "bad"}')
    assert {finding.kind for finding in check(copy)} == {FindingKind.VOTE, FindingKind.LOG}


def test_a_list_that_nobody_can_read_is_not_made(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings are bounded, whatever the damage."""
    monkeypatch.setattr("tern_store.checks.finding.FINDINGS_MAX", 2)
    for path in (copy / "commitlog").iterdir():
        path.write_bytes(bytes(GROUP.segment_size_bytes))
    assert len(check(copy)) == 2
    assert FINDINGS_MAX > 100


def test_another_directory_is_refused(tmp_path: Path) -> None:
    """Nothing there to be checked is not a sound node."""
    with pytest.raises(StoreError, match="not the data directory"):
        verification.verify_directory(tmp_path, REAL_FILES)
