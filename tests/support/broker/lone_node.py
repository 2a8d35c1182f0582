"""A RaftNode that is a group by itself: real log, votes and consensus, in a world that moves only when the test says so."""

from pathlib import Path

from tern_raft import RaftConfig, RaftNode
from tern_raft.consensus import APPLY_SLICE_S
from tern_store import CommitLog, StoredEntry
from tern_testing.node_runtime import Nobody
from tests.fuzz.victim import StillRuntime
from tests.support.files.faulty_files import FaultyFiles


def lone_node(runtime: StillRuntime, files: FaultyFiles, applied: list[int]) -> RaftNode:
    """It notes in *applied* what it applies; every entry takes longer than a slice of apply may last."""
    config = RaftConfig(
        node="a",
        members={"a": ("", 1)},
        group_id=b"g" * 16,
        directory=Path("/data"),
        bootstrap=True,
        segment_size_bytes=1 << 20,
    )

    def apply(entry: StoredEntry) -> None:
        runtime.now_s += 2 * APPLY_SLICE_S
        applied.append(entry.index)

    votes = RaftNode.open_votes(config, incarnation=bytes(16), files=files)
    return RaftNode(
        config,
        runtime=runtime,
        links=Nobody(),
        log_=CommitLog.open(config.directory, group=config.genesis(), entry_size_max_bytes=16 << 10, files=files),
        votes=votes,
        disk=runtime.open_disk(lambda error: None),
        applied=1,
        apply=apply,
        on_role=lambda: None,
        on_behind=lambda: None,
        on_fatal=lambda error: None,
    )
