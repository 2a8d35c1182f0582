"""A copy of a leader's log: whole, equal, and never made of bytes that do not belong to it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tern_store import (
    CopyRefused,
    Genesis,
    LogRot,
    RebuildSink,
    WrongGroup,
)
from tests.support.files import store_node
from tests.support.files.store_node import DIRECTORY, GROUP, Node
from tests.support.raft.rebuilding import (
    CHUNK_SIZE_BYTES,
    Leader,
    copy,
    copy_reason,
    new_node,
    rebuild,
    require_equal,
    sink_of,
    with_old_log,
)


@pytest.mark.parametrize("is_trimmed", [False, True])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_copy_opens_as_the_leader_s_log(is_trimmed: bool, is_new: bool) -> None:
    """Goal: a new node and a quarantined one have the leader's log and everything that follows from it; also one that begins late."""
    leader = Leader(7, is_trimmed=is_trimmed)
    files = new_node() if is_new else with_old_log(leader)
    assert copy_reason(DIRECTORY, files)
    rebuild(leader, files)
    assert copy_reason(DIRECTORY, files) == ""
    assert bool(leader.node.log.start.index) is is_trimmed
    require_equal(leader, files)


def test_votes_stay_as_they_are() -> None:
    """Goal: a rebuilt node may have forgotten its log, but not whom it voted for."""
    leader = Leader(7, is_trimmed=False)
    files = with_old_log(leader)
    before = bytes(files.content(DIRECTORY / "votes"))
    rebuild(leader, files)
    assert bytes(files.content(DIRECTORY / "votes")) == before


def test_a_copy_goes_on_where_it_was_interrupted() -> None:
    """Goal: what was synced before a crash, or written before the end of a process, is not copied again."""
    leader = Leader(7, is_trimmed=False)
    files, manifest = new_node(), leader.manifest()
    sink = sink_of(files)
    sink.begin(manifest)
    while sink.copied_bytes < sink.total_bytes * 2 // 3:
        piece = sink.wanted()
        assert piece is not None
        sink.write(piece.name, piece.position, leader.source.read(*piece))
    copied = sink.copied_bytes
    files.end_process()
    sink = sink_of(files)
    sink.begin(manifest)
    assert copied - 4096 < sink.copied_bytes <= copied + 4096
    assert copy(leader.source, sink) < sink.total_bytes // 2
    sink.finish()
    require_equal(leader, files)


@pytest.mark.parametrize("seed", range(9))
def test_bytes_that_went_bad_on_the_way_are_asked_for_again(seed: int) -> None:
    """Goal: a flipped bit anywhere in an entry, in a state, or in a filler's head is refused at once or at the end of its entry."""
    leader, rng = Leader(7, is_trimmed=seed % 2 == 1), random.Random(seed)
    files, refusals, tries = new_node(), 0, 0
    sink = sink_of(files)
    sink.begin(leader.manifest())
    while copy_reason(DIRECTORY, files):
        try:
            if (piece := sink.wanted()) is None:
                sink.finish()
                continue
            data = bytearray(leader.source.read(*piece))
            if rng.random() < 0.4:
                tries += 1
                data[rng.randrange(min(40, len(data)))] ^= 1 << rng.randrange(8)
            sink.write(piece.name, piece.position, data)
        except CopyRefused:
            refusals += 1
            sink.begin(leader.manifest())
    assert 0 < refusals <= tries
    require_equal(leader, files)


def test_a_manifest_that_ends_inside_an_entry_is_refused() -> None:
    """Goal: an end that is none is never sealed as a log."""
    leader, files = Leader(7, is_trimmed=False), new_node()
    manifest = leader.manifest()
    manifest["end"][1] -= 5
    sink = sink_of(files)
    sink.begin(manifest)
    copy(leader.source, sink)
    with pytest.raises(CopyRefused):
        sink.finish()
    sink.begin(leader.manifest())
    copy(leader.source, sink)
    sink.finish()
    require_equal(leader, files)


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_a_leader_that_went_on_is_followed_with_a_new_manifest(is_trimmed: bool) -> None:
    """Goal: what was copied stays when the log has grown, and when its beginning was dropped meanwhile."""
    leader, files = Leader(7, is_trimmed=False), new_node()
    sink = sink_of(files)
    sink.begin(leader.manifest())
    copied = copy(leader.source, sink)
    if is_trimmed:
        leader.trim()
        with pytest.raises(FileNotFoundError):
            leader.source.read(f"{0:020d}", 0, 100)
    leader.grow(3)
    sink.begin(leader.manifest())
    assert sink.copied_bytes > 0
    assert copy(leader.source, sink) < copied
    sink.finish()
    require_equal(leader, files)


def test_a_shorter_manifest_of_a_new_leader_is_enough() -> None:
    """Goal: a new leader may have applied less; what lies behind its end is not left in the file."""
    leader, files = Leader(7, is_trimmed=False), new_node()
    sink = sink_of(files)
    sink.begin(leader.manifest())
    copy(leader.source, sink)
    sink.begin(leader.source.manifest(leader.node.log.end_index - 5))
    assert sink.wanted() is None
    sink.finish()
    node = Node(files)
    assert (node.log.end_index, node.log.was_torn) == (leader.node.log.end_index - 5, False)


def test_nothing_of_a_refused_entry_stays_behind_the_end() -> None:
    """Goal: an entry whose end went bad is in the file up to there; a new leader's shorter log must not end with it."""
    leader, lost = Leader(7, is_trimmed=False), 0
    pieces = leader.node.log.end_position // CHUNK_SIZE_BYTES
    for count in range(1, pieces):
        files = new_node()
        sink = sink_of(files)
        sink.begin(leader.manifest())
        for number in range(count + 1):
            piece = sink.wanted()
            assert piece is not None
            data, before = bytearray(leader.source.read(*piece)), sink.copied_bytes
            data[0] ^= number == count
            try:
                sink.write(piece.name, piece.position, data)
            except CopyRefused:
                lost += sink.copied_bytes < before
        log = leader.node.log
        index = max(
            index for index in range(1, log.end_index) if log.mark(index).position <= max(400, sink.copied_bytes)
        )
        sink.begin(leader.source.manifest(index))
        copy(leader.source, sink)
        sink.finish()
        node = Node(files)
        assert (node.log.end_index, node.log.was_torn) == (index, False)
    assert lost > pieces // 4


@pytest.mark.parametrize(
    "name",
    [
        "start",
        "votes",
        "../votes",
        "..",
        "",
        "0" * 19,
        "0" * 21,
        "0" * 19 + "/",
        "\u0660" * 20,
        f"{0:020d}.incoming",
        f"{0:020d}\n",
        "state-00000000000000000001.bin",
        "segment-00000000000000000000-1.bin/../x",
        "segment-0-1.bin",
    ],
)
def test_only_segments_and_their_states_are_read(name: str) -> None:
    """Goal: no name leads to another file of the node."""
    leader = Leader(7, is_trimmed=False, entries=2)
    with pytest.raises(ValueError, match="not the name"):
        leader.source.read(name, 0, 10)


@pytest.mark.parametrize(("position", "size"), [(-1, 10), (0, 0), (0, -1), (0, (4 << 20) + 1)])
def test_a_piece_has_a_place_and_a_bounded_size(position: int, size: int) -> None:
    """Goal: nobody makes a leader hold more than a piece in memory."""
    leader = Leader(7, is_trimmed=False, entries=2)
    with pytest.raises(ValueError, match="cannot read"):
        leader.source.read(f"{0:020d}", position, size)


def test_the_log_of_another_group_is_not_taken() -> None:
    """Goal: a wrong address is found before anything is copied."""
    leader = Leader(7, is_trimmed=False, entries=2)
    other = Genesis(b"h" * 16, GROUP.members, GROUP.segment_size_bytes)
    with pytest.raises(WrongGroup):
        RebuildSink(DIRECTORY, other, new_node()).begin(leader.manifest())


def _without_state(document: dict[str, Any]) -> None:
    document["state"] = None


def _wandering_state(document: dict[str, Any]) -> None:
    document["state"][0] = "../../x"


def _backwards(document: dict[str, Any]) -> None:
    document["end"] = document["start"]


def _not_whole(document: dict[str, Any]) -> None:
    del document["start"]


def _later_format(document: dict[str, Any]) -> None:
    document["format"] = 2


def _bad_genesis(document: dict[str, Any]) -> None:
    document["genesis"] = "00" + document["genesis"][2:]


def _in_mid_segment(document: dict[str, Any]) -> None:
    document["start"][1] += 512


def _wandering_keys(document: dict[str, Any]) -> None:
    document["keys"] = [["../votes", 512]]


def _keys_twice(document: dict[str, Any]) -> None:
    document["keys"] = [[f"keys-{1:020d}.bin", 512]] * 2


@pytest.mark.parametrize(
    "spoil",
    [
        *(_without_state, _wandering_state, _backwards, _not_whole, _later_format, _bad_genesis, _in_mid_segment),
        *(_wandering_keys, _keys_twice),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(spoil: Callable[[dict[str, Any]], None]) -> None:
    """Goal: nothing is written for a manifest that cannot be meant."""
    manifest, files = Leader(7, is_trimmed=True).manifest(), new_node()
    spoil(manifest)
    with pytest.raises(CopyRefused):
        sink_of(files).begin(manifest)
    assert files.paths(Path("/")) == [DIRECTORY / "votes"]


def test_pieces_ahead_are_those_that_come_next() -> None:
    """Goal: a fetcher may ask for some pieces at once and write them in order."""
    leader, files = Leader(7, is_trimmed=True), new_node()
    sink = sink_of(files)
    sink.begin(leader.manifest())
    while (first := sink.wanted()) is not None:
        second, third = sink.wanted(1), sink.wanted(2)
        sink.write(first.name, first.position, leader.source.read(*first))
        assert (sink.wanted(), sink.wanted(1)) == (second, third)
    sink.finish()
    require_equal(leader, files)


@pytest.mark.parametrize("seed", [7, 8])
def test_tables_of_keys_that_the_log_cannot_give_back_are_copied(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: those that the state at the log's beginning names; a damaged one is fetched again, a good one is not, and a lost one is rot."""
    monkeypatch.setattr(store_node, "TABLES_MAX", 100)
    leader, files = Leader(seed, is_trimmed=True), new_node()
    manifest = leader.manifest()
    names = [name for name, _ in manifest["keys"]]
    assert names
    sink = sink_of(files)
    sink.begin(manifest)
    while (piece := sink.wanted()) is not None and piece.name not in names:
        sink.write(piece.name, piece.position, leader.source.read(*piece))
    with pytest.raises(CopyRefused, match="is damaged"):
        while (piece := sink.wanted()) is not None and piece.name == names[0]:
            sink.write(piece.name, piece.position, bytes(piece.size))
    while (piece := sink.wanted()) is not None and piece.name in names:
        sink.write(piece.name, piece.position, leader.source.read(*piece))
    sink.close()
    sink = sink_of(files)
    sink.begin(leader.manifest())
    piece = sink.wanted()
    assert piece is not None and piece.name not in names
    copy(leader.source, sink)
    sink.finish()
    require_equal(leader, files)
    files.unlink(DIRECTORY / "sentkeys" / names[0])
    with pytest.raises(LogRot, match="older than the log's beginning"):
        Node(files).store.sent_keys.require_all()
