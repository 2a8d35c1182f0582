"""A node that has gone wrong in its memory is found by the others, whoever it is, and the group goes on; where nobody can know, it stops."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tern_broker.engine import Engine
from tests.sim.faults.memory_faults import MemoryFault, Which, flip_digest, is_follower, is_leader
from tests.sim.machines.broker_node import Build
from tests.sim.planted.planting import quiet
from tests.sim.seed_run import _Run
from tests.sim.swarm import COMPARE_AFTER_ENTRIES, choose, constants
from tests.support.campaigns import campaign, shared_out

# Entries of the group before anything is wrong, and what is waited at most (virtual).
WAIT_S = 30.0


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Simulated nodes die by the dozen."""
    with quiet():
        yield
    assert not logging.root.manager.disable


def is_any(engine: Engine) -> bool:
    """Every node."""
    return engine.raft.applied_index > 0


def is_settled(engines: list[Engine]) -> bool:
    """Whether all three are members that agree."""
    said = {frozenset(engine.comparer.digests.values()) for engine in engines if engine.raft.is_serving}
    members = [
        engine for engine in engines if engine.raft.standing.name == "MEMBER" and not engine.state.comparison.chosen
    ]
    return len(members) == 3 and len(said) == 1 and all(len(digests) == 1 for digests in said)


def came_too_late(engines: list[Engine]) -> bool:
    """Whether all agreed at the last comparison, and the run ended before the next one was due: one of a hundred seeds."""
    return all(
        engine.raft.applied_index - engine.state.comparison.judged_index < COMPARE_AFTER_ENTRIES
        and not engine.state.comparison.disagreement
        and len(set(engine.comparer.digests.values())) == 1
        for engine in engines
    )


class Trial:
    """One seed of three nodes with faults in memory; nothing else breaks but what *kinds* says. Use as a context."""

    def __init__(self, seed: int, *faults: MemoryFault, kinds: tuple[str, ...] = ("reset",)) -> None:
        weights = tuple(1 for _ in kinds)
        self.swarm = replace(
            choose(seed), nodes=3, kinds=kinds, weights=weights, scripts=(), retention_bytes=0, upgrades=()
        )
        self.faults, self.lines, self.stack = faults, [""], ExitStack()

    def __enter__(self) -> "Trial":
        self.stack.enter_context(constants(self.swarm))
        for fault in self.faults:
            self.stack.enter_context(fault.plant())
        self.run = _Run(self.swarm, Build(), self.lines.append)
        for fault in self.faults:
            # The one cause for which a node may be copied anew.
            fault.on_fault = self.run.world.damaged.add
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def told(self, words: str) -> list[str]:
        """What was said with these *words*."""
        return [line for line in self.lines if words in line]


@campaign
@pytest.mark.parametrize("seed", shared_out(3, 4))
@pytest.mark.parametrize("which", [is_leader, is_follower])
@pytest.mark.parametrize("kinds", [("reset",), ("crash", "partition", "transfer", "reset", "isolate_leader")])
def test_the_one_that_differs_goes_and_is_copied_anew(seed: int, which: Which, kinds: tuple[str, ...]) -> None:
    """The leader as well as a follower; the other two stay, and the group serves to the end."""
    fault = MemoryFault(which, flip_digest())
    with Trial(seed, fault, kinds=kinds) as trial:
        result = trial.run.run()
    assert fault.node, "the fault never happened"
    engines = [node.engine for node in trial.run.world.nodes.values()]
    is_unseen = {kind for kind, _ in result.violations} == {"state_digest"} and came_too_late(engines)
    assert result.is_good or (is_unseen and kinds != ("reset",)), f"seed {seed}: {result.violations[:3]} {result.stuck}"
    must = trial.told("must be rebuilt")
    if kinds == ("reset",):
        assert must, "nobody saw it"
        assert all(f"  {fault.node} must be rebuilt" in line for line in must), must
    assert result.comparisons > 20 or is_unseen


@campaign
@pytest.mark.parametrize("seed", shared_out(3, 4))
@pytest.mark.parametrize("wrong", ["n0 n2", "n0 n1 n2"])
@pytest.mark.parametrize("restarts", [False, True])
def test_three_that_differ_stop_until_an_operator_chooses(seed: int, wrong: str, *, restarts: bool) -> None:
    """Everything is kept, nobody serves, through restarts too. After the choice all become what the log says, one after the other."""

    def fault(number: int, name: str) -> MemoryFault:
        return MemoryFault(lambda engine: engine._config.node == name, flip_digest(number))

    faults = [fault(number, name) for number, name in enumerate(wrong.split())]
    with Trial(seed, *faults) as trial:
        run, world = trial.run, trial.run.world
        scheduler = world.scheduler

        def engines() -> list[Engine]:
            return [node.engine for node in world.nodes.values()]

        def is_stopped() -> bool:
            nodes = engines()
            return len(nodes) == 3 and all(engine.raft.is_held for engine in nodes)

        run.clients.start()
        scheduler.run_until(scheduler.now_s + WAIT_S, is_stopped)
        assert is_stopped(), "the group goes on though no two nodes agree"
        # Saved as they are, so that a restart does not derive what is right from the log.
        scheduler.run_until(scheduler.now_s + 10.0)
        for name in world.names if restarts else ():
            world.machines[name].kill()
            world.supervise(name)
        scheduler.run_until(scheduler.now_s + 10.0)
        assert is_stopped()
        assert not any(engine.raft.is_serving for engine in engines())
        assert not trial.told("must be rebuilt"), "nothing may be thrown away"
        leader = next(engine for engine in engines() if engine.raft.is_current)
        # It compares again every 2 s; the reports of the last time may be on their way.
        scheduler.run_until(scheduler.now_s + 3.0, lambda: len(leader.comparer.digests) == 3)
        assert len(set(leader.comparer.digests.values())) == 3
        assert leader.comparer.choose("n1")["asked"]
        scheduler.run_until(scheduler.now_s + 3.0, lambda: world.nodes["n1"].engine.raft.is_serving)
        assert world.nodes["n1"].engine.raft.is_serving, "who was chosen serves at once"
        scheduler.run_until(scheduler.now_s + 3 * WAIT_S, lambda: is_settled(engines()))
        assert is_settled(engines()), "no majority agrees"
        run._calm()
        assert not run.result.stuck, f"seed {seed}: {run.result.stuck}"
        run._judge()
        assert not run.result.violations, run.result.violations[:3]
        assert not any(engine.comparer.is_undecided or engine.raft.is_held for engine in engines())
    remade = {line.split()[1] for line in trial.told("must be rebuilt")}
    assert remade == set(wrong.split()), "who was right stays"
