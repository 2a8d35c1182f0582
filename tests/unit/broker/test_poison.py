"""What a node notes of an entry that it cannot apply: tried twice by each release, and never blamed for what the machine lacks."""

import errno
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tern_broker.poison import NOTE, TRIES_MAX, Poison, was_applied
from tern_raft.pass_over import BODY, Stage, Waiting
from tern_store import CommitLog, DerivedDamage, EntryKind, Genesis, LogRot, StoredEntry, encode_entry
from tern_wire.link.commands import CommandKind, entry_parts
from tests.support.files.faulty_files import FaultyFiles

DIRECTORY = Path("/data")
MENDED = "a mended release"


def entry(index: int = 7, parts: list[bytes | bytearray | memoryview] | None = None) -> StoredEntry:
    """Entry *index*."""
    body = parts if parts is not None else entry_parts(1, [(CommandKind.SEND, [b"abc"]), (CommandKind.SEND, [b"de"])])
    return encode_entry(EntryKind.COMMANDS, index, 3, body, 1, position=100, previous_crc=5)


def word(stage: Stage, index: int, crc: int) -> StoredEntry:
    """An entry of kind PASS_OVER."""
    body = BODY.pack(stage, index, crc)
    return encode_entry(EntryKind.PASS_OVER, 9, 3, (body,), 0, position=900, previous_crc=5)


def raised(error: Exception) -> Exception:
    """*error* with a traceback."""
    try:
        raise error
    except Exception as found:
        return found


@dataclass
class StandInPassOver:
    """What a poison tells consensus and asks of it."""

    blocked: tuple[int, int] | None = None
    waiting: Waiting | None = None
    peers: dict[str, Waiting] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def ask(self, index: int) -> str:
        """As PassOver."""
        self.asked.append(f"ask {index}")
        return ""

    def withdraw(self, index: int) -> str:
        """As PassOver."""
        self.asked.append(f"withdraw {index}")
        return "nobody has asked to pass over it"


class StandInRaft:
    """A node whose log has one entry."""

    leader = "a"

    def __init__(self, stored: StoredEntry) -> None:
        self.pass_over, self._stored, self.log = StandInPassOver(), stored, self

    def entry(self, index: int) -> StoredEntry:
        """As the log."""
        assert index == self._stored.index
        return self._stored


class Node:
    """Starts of one node, and what each blocks at."""

    def __init__(self) -> None:
        self.files = FaultyFiles()
        self.files.makedirs(DIRECTORY)

    def start(self, release: str = "first") -> tuple[Poison, StandInRaft]:
        """A new process."""
        poison, raft = Poison(DIRECTORY, release, self.files), StandInRaft(entry())
        poison.block(raft)  # type: ignore[arg-type]
        return poison, raft

    def note(self) -> dict[str, object] | None:
        """What the note says; None: there is none."""
        if not self.files.has(DIRECTORY, NOTE):
            return None
        fd = self.files.open(DIRECTORY / NOTE)
        text = self.files.pread(fd, self.files.size(fd), 0)
        self.files.close(fd)
        found: dict[str, object] = json.loads(text)
        return found


def test_an_entry_is_tried_twice_by_each_release_and_the_note_goes_when_it_is_passed() -> None:
    """A bit that flipped in memory does not raise again; what raises again blocks."""
    node = Node()
    for _ in range(TRIES_MAX):
        poison, raft = node.start()
        assert raft.pass_over.blocked is None
        poison.met(entry(), raised(AssertionError("no delivery")))
    poison, raft = node.start()
    assert raft.pass_over.blocked == (7, entry().crc)
    poison, raft = node.start(MENDED)
    assert raft.pass_over.blocked is None, "another release may know better"
    poison.met(entry(), raised(AssertionError("no delivery")))
    assert node.start(MENDED)[1].pass_over.blocked is None, "it tries twice, too"
    poison.applied(6)
    assert node.note() is not None
    poison.applied(7)
    assert node.note() is None
    assert node.start()[1].pass_over.blocked is None


def test_two_entries_are_counted_by_themselves() -> None:
    """Another entry, or another one in its place, has not been tried yet."""
    node = Node()
    poison, _ = node.start()
    poison.met(entry(7), raised(AssertionError()))
    poison.met(entry(8), raised(AssertionError()))
    assert node.start()[1].pass_over.blocked is None
    poison.met(entry(8, entry_parts(2, [])), raised(AssertionError()))
    assert node.start()[1].pass_over.blocked is None


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
        LogRot(DIRECTORY, 0, "rot"),
        DerivedDamage(DIRECTORY, 0, "rot"),
    ],
)
def test_damage_and_lacks_are_no_fault_of_the_entry(error: Exception) -> None:
    """They have ways of their own."""
    node = Node()
    node.start()[0].met(entry(), error)
    assert node.note() is None


def test_a_note_that_cannot_be_written_or_read_costs_another_try() -> None:
    """On a full disk the next start ends at the entry again; garbage is no note."""
    node = Node()
    node.files.capacity_bytes = 0
    node.start()[0].met(entry(), raised(AssertionError()))
    assert node.note() is None
    node.files.capacity_bytes = None
    for garbage in (b"", b"[]", b"{}", b'{"index": "x"}', b"\xff\xfe"):
        fd = node.files.open(DIRECTORY / NOTE, create=True)
        node.files.ftruncate(fd, 0)
        node.files.pwrite(fd, garbage, 0)
        node.files.close(fd)
        assert node.start()[1].pass_over.blocked is None


def test_people_are_told_what_was_raised_and_what_the_entry_holds() -> None:
    """And who else waits there; a node that waits because it was asked to has raised nothing."""
    node = Node()
    poison, raft = node.start()
    assert poison.describe() is None
    crc = entry().crc
    raft.pass_over.waiting, raft.pass_over.peers = Waiting(7, crc, 0), {"b": Waiting(7, crc, 0)}
    poison.met(entry(), raised(AssertionError("no delivery")))
    said = poison.describe()
    assert said is not None
    where = str(said.pop("where"))
    assert where.startswith("test_poison.py:")
    assert said == {
        "index": 7,
        "term": 3,
        "crc": f"{crc:08x}",
        "error": "AssertionError: no delivery",
        "release": "first",
        "commands": {"send": 2},
        "asked": False,
        "peers": {"b": 7},
    }
    poison.applied(7)
    raft.pass_over.waiting = Waiting(7, crc, 8)
    said = poison.describe()
    assert said is not None
    assert (said["error"], said["asked"]) == ("", True)


def test_an_operators_word_goes_to_consensus() -> None:
    """With what came of it."""
    poison, raft = Node().start()
    assert poison.ask(7, False) == {"asked": True, "index": 7, "leader": "a", "reason": ""}
    assert poison.ask(7, True)["reason"] == "nobody has asked to pass over it"
    assert raft.pass_over.asked == ["ask 7", "withdraw 7"]


def test_who_has_applied_what_the_group_passes_over_is_found() -> None:
    """By the entry that says it is done; the other words concern nobody who is past the entry, nor do those about entries of no log of ours."""
    log = CommitLog.open(DIRECTORY, group=Genesis(b"g" * 16, ("a",), 64 << 10), files=FaultyFiles())
    for number in range(2, 9):
        log.append(EntryKind.COMMANDS, number, 1, (b"%d" % number,), 1)
    crc = log.mark(7).crc
    assert "has applied entry 7" in was_applied(word(Stage.DONE, 7, crc), [(7, crc ^ 1), (6, crc)], log)
    assert was_applied(word(Stage.DONE, 7, crc), [(7, crc)], log) == ""
    assert was_applied(word(Stage.ASKED, 7, crc), [], log) == ""
    assert was_applied(word(Stage.WITHDRAWN, 7, crc), [], log) == ""
    for index, other in ((7, crc ^ 1), (6, crc), (0, 0), (1 << 60, crc), (9, crc)):
        assert was_applied(word(Stage.DONE, index, other), [], log) == ""
