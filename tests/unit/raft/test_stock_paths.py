"""What of pysyncobj 0.3.17 must not be reached any more: pickles, queues, dumps, membership, threads and sockets of its own.

Each of these has lost data or run a stranger's code; finding ids are those that the comments in libs/tern_raft name. Where two walls
stand one behind the other, each is tried alone.
"""

import os
import pickle
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.serializer
import pytest

from tern_raft.frames import FIELDS, decode_message, encode_message
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.requests import body_parts
from tests.support.files.faulty_files import FaultyFiles
from tests.support.raft.raft_group import RaftGroup, born_group

MEMBERSHIP_COMMAND = b"\x02" + pickle.dumps(["add", "n9", "n9"], 2)
VERSION_COMMAND = b"\x03" + pickle.dumps(1, 2)


def test_no_pickle_is_read_or_written_in_chaos(monkeypatch: pytest.MonkeyPatch) -> None:
    """S12, X8: elections, conflicts, kills and restarts with every pickle of pysyncobj and of Python replaced by a bomb."""

    def bomb(*_: object, **__: object) -> None:
        raise AssertionError("pickle was called")

    for module in (pysyncobj.pickle, pysyncobj.journal, pysyncobj.serializer.pickle, pickle):
        for name in ("load", "loads", "dump", "dumps", "_load", "_loads"):
            monkeypatch.setattr(module, name, bomb, raising=False)
    group = RaftGroup(Path("/data"), 5, make_files=FaultyFiles)
    for _ in range(1500):
        group.step(chaos=True)
    group.run_until(group.is_converged, within_s=20)
    assert group.acked
    assert group.faults["kill"]


def test_nothing_of_a_group_sleeps_polls_starts_threads_or_opens_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """L8, L11, X1: no tick thread, no forked child, no poller, no socket: pysyncobj's own would have one of each."""

    def bomb(*_: object) -> None:
        raise AssertionError("called")

    monkeypatch.setattr(time, "sleep", bomb)
    monkeypatch.setattr(os, "fork", bomb)
    for poller in ("poll", "epoll", "select"):
        monkeypatch.setattr(select, poller, bomb)
    monkeypatch.setattr(threading.Thread, "start", bomb)
    before = os.listdir("/proc/self/fd")
    group = born_group()
    group.run(1.0)
    assert os.listdir("/proc/self/fd") == before


def test_a_group_built_by_a_thread_that_has_ended_works() -> None:
    """L8 (syncobj.py:587): stock stops for good, silently, when the thread that built it ends."""
    built: list[RaftGroup] = []
    builder = threading.Thread(target=lambda: built.append(RaftGroup(Path("/data"), 1, make_files=FaultyFiles)))
    builder.start()
    builder.join()
    leader, _ = built[0].elect()
    assert not leader.consensus.tick_thread_alive()


def test_its_settings_leave_nothing_to_pysyncobj() -> None:
    """No file of its own, no queue that waits, no fork, no password, no callback but the one that is ours."""
    leader = born_group().leader
    assert leader is not None
    conf = leader.consensus.conf
    assert not (conf.autoTick or conf.useFork or conf.dynamicMembershipChange)
    assert (conf.fullDumpFile, conf.journalFile, conf.password, conf.serializer, conf.onReady) == (None,) * 5
    assert conf.appendEntriesUseBatch, "without it, it opens a pipe and sends once more for every entry"
    assert leader.consensus._methodToID == {}, "no replicated methods, whose calls are pickled"


@pytest.mark.parametrize("command", [b"\x00" + pickle.dumps(7, 2), b"\x01", MEMBERSHIP_COMMAND, VERSION_COMMAND])
def test_what_is_put_into_its_queue_goes_nowhere(command: bytes) -> None:
    """L4 (syncobj.py:503-574): a follower would forward it and forget it, a leader append what is no entry of ours."""
    group = born_group()
    answers: list[object] = []
    for node in group.nodes.values():
        node.consensus._applyCommand(command, lambda *answer: answers.append(answer))
    ends = [node.log.end_index for node in group.nodes.values()]
    group.tape = []
    group.run(1.0)
    assert [node.log.end_index for node in group.nodes.values()] == ends
    assert {sent.kind for sent in group.tape} <= set(FIELDS)
    assert answers == []


def test_a_membership_command_is_never_unpickled() -> None:
    """S12 (syncobj.py:1415-1419, 885-890): stock does so on every node, also where membership changes are switched off."""
    group = born_group()
    for node in group.nodes.values():
        members = node.consensus.otherNodes
        parse: Callable[[bytes], object] = node.consensus._SyncObj__parseChangeClusterRequest
        assert parse(MEMBERSHIP_COMMAND) is None
        with pytest.raises(Exception, match="disabled"):
            node.consensus.addNodeToCluster("n9")
        with pytest.raises(Exception, match="disabled"):
            node.consensus.removeNodeFromCluster("n1")
        assert node.consensus.otherNodes == members


def test_versions_of_code_are_not_switched() -> None:
    """S11 (syncobj.py:726-729): after a version that it does not know, stock applies the next entry twice."""
    group = born_group()
    for node in group.nodes.values():
        end = node.log.end_index
        with pytest.raises(Exception, match="wrong version"):
            node.consensus.setCodeVersion(1)
        node.consensus.setCodeVersion(0)
        group.run(0.2)
        assert (node.log.end_index, node.consensus.getCodeVersion()) == (end, 0)


def test_nothing_is_ever_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """S1 to S3 (syncobj.py:1421-1470): not even when it is told to, nor after its five minutes and 5,000 entries."""
    monkeypatch.setattr(pysyncobj.serializer.Serializer, "serialize", lambda *_: pytest.fail("serialised"))
    group = born_group()
    leader = group.leader
    assert leader is not None
    for number in range(10):
        leader.append(b"%d" % number)
    group.run_until(group.is_converged)
    for node in group.nodes.values():
        node.consensus.forceLogCompaction()
    group.run(1.0)
    assert {node.log.first_index for node in group.nodes.values()} == {1}
    assert group.is_converged()


def test_its_journal_cannot_be_emptied_through_the_seam() -> None:
    """S2, S3 (syncobj.py:1489-1495, 1427): what would clear or shorten the log from its beginning is an error."""
    leader = born_group().leader
    assert leader is not None
    with pytest.raises(AssertionError, match="clear"):
        leader.journal.clear()
    with pytest.raises(AssertionError, match="compact"):
        leader.journal.deleteEntriesTo(1)
    with pytest.raises(AssertionError, match="no dump file"):
        leader.consensus._SyncObj__loadDumpFile(False)
    assert leader.log.first_index == 1


@pytest.mark.parametrize(
    "message",
    [
        {"type": "apply_command", "command": b"\x00", "request_id": 1},
        {"type": "apply_command_response", "request_id": 1, "log_idx": 2, "log_term": 1},
        {"type": "append_entries", "term": 1, "commit_index": 9, "serialized": None},
        {"type": "append_entries", "term": 1, "commit_index": 9, "serialized": [b"", True, True]},
        {"type": "append_entries", "term": 1, "commit_index": 9, "prevLogIdx": None, "prevLogTerm": None, "seq": 1},
        {"type": "next_node_idx", "next_node_idx": 3, "reset": False, "success": True},
        {"type": "status"},
        {"type": "readonly"},
    ],
    ids=[
        "a forwarded write",
        "its answer",
        "no snapshot yet",
        "a snapshot",
        "no previous entry",
        "no term",
        "status",
        "a reader",
    ],
)
def test_stock_messages_that_we_do_not_speak_are_refused(message: dict[str, Any]) -> None:
    """S1, L3, L4, L9, X3, X4: forwarding, snapshots, replies without a term, utilities, readers: none is decoded."""
    with pytest.raises(LinkBodyMalformed):
        decode_message(b"".join(bytes(part) for part in body_parts(message, [])))


@pytest.mark.parametrize("extra", [{"transmission": "finish", "data": b""}, {"serialized": [b"", True, True]}])
def test_chunks_and_snapshots_do_not_reach_who_would_load_them(extra: dict[str, Any]) -> None:
    """S1, L9: in an append that is right otherwise such fields are passed over, as any that this release does not know."""
    append = {"type": "append_entries", "term": 1, "commit_index": 9, "prevLogIdx": 1, "prevLogTerm": 0, "seq": 1}
    read = decode_message(b"".join(bytes(part) for part in body_parts(append | extra, [])))
    assert read == append | {"entries": []}


@pytest.mark.parametrize("sender", ["n1", "n2"])
def test_every_message_that_a_group_sends_can_be_read_again(sender: str) -> None:
    """What pysyncobj builds by itself (votes, answers) passes our frames, so nothing of it is lost silently."""
    group = RaftGroup(Path("/data"), 2, make_files=FaultyFiles)
    group.tape = []
    group.elect()
    group.run(1.0)
    messages = [sent.message for sent in group.tape if sent.sender == sender]
    assert messages
    for message in messages:
        if message["type"] != "append_entries":
            assert decode_message(b"".join(encode_message(message))) == message
