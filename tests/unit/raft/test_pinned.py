"""The library under the adapter: only the version that was hardened."""

from pathlib import Path

import pytest

import tern_raft.consensus
from tern_raft.consensus import PINNED_VERSION
from tests.support.raft.raft_group import RaftGroup


def test_another_version_of_pysyncobj_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its private seams move with any release."""
    monkeypatch.setattr(tern_raft.consensus, "VERSION", "0.3.18")
    with pytest.raises(RuntimeError, match=PINNED_VERSION):
        RaftGroup(tmp_path, seed=1)


def test_no_pickle_is_reachable_from_a_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole election and some entries with pysyncobj's pickle replaced by a bomb."""

    def bomb(*_: object, **__: object) -> None:
        raise AssertionError("pickle was called")

    monkeypatch.setattr("pysyncobj.syncobj.pickle.loads", bomb)
    monkeypatch.setattr("pysyncobj.syncobj.pickle.dumps", bomb)
    group = RaftGroup(tmp_path, seed=3)
    for _ in range(800):
        group.step(chaos=False)
        leader = next((node for node in group.nodes.values() if node.consensus.is_serving), None)
        if leader is not None and group.sent < 5:
            leader.consensus.append([b"payload"], 1, urgent=False)
            group.sent += 1
    assert group.is_converged()
    assert group.sent == 5
