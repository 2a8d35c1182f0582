"""Raft with our journal, transport and rules under seeded faults: one history, nothing acknowledged lost, always converging."""

from pathlib import Path

import pytest

from tests.support.campaigns import campaign, cases
from tests.support.raft.raft_group import RaftGroup

CHAOS_STEPS, CALM_STEPS = 1500, 4000


@campaign
@pytest.mark.parametrize("seed", range(cases(20, 8)))
def test_what_a_leader_has_applied_is_on_every_node_in_the_end(seed: int, tmp_path: Path) -> None:
    """Chaos, then calm: the logs are equal, every acknowledged value is in them, and calm converges within 20 virtual seconds."""
    print(f"seed {seed}: pytest tests/sim -k 'lost and {seed}'")
    group = RaftGroup(tmp_path, seed, size=5 if seed % 5 == 4 else 3)
    for _ in range(CHAOS_STEPS):
        group.step(chaos=True)
    for _ in range(CALM_STEPS):
        group.step(chaos=False)
        if group.is_converged():
            break
    assert group.is_converged(), {
        name: (node.log.end_index, node.consensus.raftLastApplied) for name, node in group.nodes.items()
    }
    survivor = next(iter(group.nodes.values())).log
    kept = {bytes(survivor.entry(index).body) for index in range(2, survivor.end_index + 1)}
    lost = [value for value in group.acked if group.values[value] not in kept]
    print(f"sent {group.sent}, acked {len(group.acked)}, faults {dict(group.faults)}")
    assert not lost
    assert group.acked, "a run in which nothing was acknowledged shows nothing"
