"""A group whose nodes run two releases: nothing is logged that one of them does not know, and the level rises once, when all are there."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tern_broker.node.status import engine_status
from tern_wire.link.commands import GENESIS_VERSION, STATE_MACHINE_VERSION
from tests.sim.faults.upgrades import NEXT_VERSION
from tests.sim.machines.broker_node import Build
from tests.sim.planted.__main__ import convict
from tests.sim.planted.planting import quiet
from tests.sim.seed_run import _Run
from tests.sim.swarm import choose, constants
from tests.support.campaigns import campaign, shared_out

FAULTS = ("crash", "partition", "isolate_leader", "transfer", "reset", "flap", "one_way", "power_cut", "wipe")
NEVER, FROM_THE_FIRST = 1.0, 0.0


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Simulated nodes die by the dozen."""
    with quiet():
        yield


class Trial:
    """One seed of three nodes, upgraded when *upgrades* says; kept are the versions of its entries with commands, in the log's order."""

    def __init__(self, seed: int, upgrades: tuple[float, ...]) -> None:
        weights = tuple(1 for _ in FAULTS)
        self.swarm = replace(
            choose(seed), nodes=3, kinds=FAULTS, weights=weights, scripts=(), retention_bytes=0, upgrades=upgrades
        )
        with constants(self.swarm):
            run = _Run(self.swarm, Build(), None)
            self.result = run.run()
            self.nodes = list(run.world.nodes.values())
            # What a wiped node copied is in its log as well.
            log = self.nodes[0].engine.store.log
            entries = [log.entry(index) for index in range(log.first_index, log.end_index + 1)]
        self.versions = [entry.version for entry in entries if entry.kind.name == "COMMANDS"]
        self.statuses = [engine_status(node.engine, node.config) for node in self.nodes]


@campaign
@pytest.mark.parametrize("seed", shared_out(3, 4, 5))
def test_the_level_rises_once_when_the_last_node_is_upgraded(seed: int) -> None:
    """Across cut links, restarts, wiped disks and changes of leader; before that everything is written as the oldest knows it."""
    trial = Trial(seed, (0.2, FROM_THE_FIRST, 0.6))
    assert trial.result.is_good, f"{trial.result.violations[:3]} {trial.result.stuck}"
    # The RAISE may be the last entry: then only the next one would be of its level.
    versions = [*trial.versions, trial.statuses[0]["level"]]
    rises = [pair for pair in pairwise(versions) if pair[0] != pair[1]]
    assert rises == [(GENESIS_VERSION, STATE_MACHINE_VERSION), (STATE_MACHINE_VERSION, NEXT_VERSION)]
    for status in trial.statuses:
        assert (status["version"], status["level"]) == (NEXT_VERSION, NEXT_VERSION)
    (leader,) = [status for status in trial.statuses if status["serving"]]
    assert [peer["version"] for peer in leader["peers"]] == [NEXT_VERSION] * 2


@campaign
@pytest.mark.parametrize("seed", shared_out(3, 4, 5))
def test_one_old_node_keeps_the_group_where_it_is(seed: int) -> None:
    """However often it is away."""
    trial = Trial(seed, (0.2, FROM_THE_FIRST, NEVER))
    assert trial.result.is_good, f"{trial.result.violations[:3]} {trial.result.stuck}"
    assert set(trial.versions) == {GENESIS_VERSION, STATE_MACHINE_VERSION}
    assert [status["level"] for status in trial.statuses] == [STATE_MACHINE_VERSION] * 3


def test_a_level_by_who_is_connected_is_convicted() -> None:
    """As it was: a link that drops lets the leader log what the node behind it does not know, which ends and is not started again."""
    trial = convict("level_of_connected", seeds=20)
    assert {"known_version", "start"} & set(trial.by), trial
