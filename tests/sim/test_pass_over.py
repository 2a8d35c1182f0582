"""An entry that cannot be applied: nodes block in front of it, another release goes on, and an operator gets the group past it when no member can."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from tern_broker.engine import Engine
from tern_broker.poison import TRIES_MAX
from tern_raft.pass_over import PassOver, Stage, Verdict, read_word
from tern_wire.link.commands import STATE_MACHINE_VERSION
from tests.sim.faults.poison import PoisonedEntry, PoisonError
from tests.sim.machines.broker_node import Build
from tests.sim.machines.machine import Machine
from tests.sim.planted.planting import changed, quiet
from tests.sim.seed_run import SeedResult, _Run
from tests.sim.swarm import choose, constants
from tests.support.campaigns import campaign, shared_out

# What is waited at most (virtual).
WAIT_S = 40.0
SEEDS = (3, 4)
# Of the clients; enough for some hundred entries.
OPERATIONS = 400


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """Simulated nodes die by the dozen."""
    with quiet():
        yield
    assert not logging.root.manager.disable


def is_old(engine: Engine) -> bool:
    """Whether its release is the first one."""
    return engine._raft_config.version == STATE_MACHINE_VERSION


class Trial:
    """One seed with a poisoned entry, and no other fault but broken links. Use as a context."""

    def __init__(self, seed: int, *, nodes: int = 3, which: Callable[[Engine], bool] = lambda engine: True) -> None:
        self.swarm = replace(
            choose(seed),
            nodes=nodes,
            kinds=("reset",),
            weights=(1,),
            scripts=(),
            retention_bytes=0,
            upgrades=(),
            operations=OPERATIONS,
        )
        self.poison, self.stack = PoisonedEntry(which), ExitStack()

    def __enter__(self) -> "Trial":
        self.stack.enter_context(constants(self.swarm))
        self.stack.enter_context(self.poison.plant())
        self.run = _Run(self.swarm, Build(), None)
        self.world = self.run.world
        for machine in self.world.machines.values():
            machine.on_unhandled = self.unhandled
        self.run.clients.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def unhandled(self, machine: Machine, error: Exception) -> None:
        """The poison ends processes, and nothing else may."""
        if not isinstance(error, PoisonError):
            self.world._unhandled(machine, error)

    @property
    def engines(self) -> dict[str, Engine]:
        """Of the nodes that run."""
        return {name: node.engine for name, node in sorted(self.world.nodes.items())}

    def leader(self) -> Engine:
        """Who leads in the newest term, serving or not."""
        return max((one for one in self.engines.values() if one.raft.is_leader), key=lambda one: one.raft.term)

    def blocked(self) -> set[str]:
        """Who waits in front of the poisoned entry."""
        waiting = {name: engine.raft.pass_over.waiting for name, engine in self.engines.items()}
        return {name for name, found in waiting.items() if found is not None and found.index == self.poison.index}

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Go on until *is_so*; within WAIT_S, or it fails for *what*."""
        scheduler = self.world.scheduler
        scheduler.run_until(scheduler.now_s + WAIT_S, is_so)
        assert is_so(), f"seed {self.swarm.seed}: {what}; blocked {self.blocked()}, {self.world.violations[:3]}"

    def block_all(self) -> None:
        """Until nobody gets past the entry, and the leader has heard so of everybody."""
        names = set(self.world.names)
        self.until(lambda: self.blocked() == names, "not all nodes block")
        others = len(names) - 1
        self.until(lambda: self._hears(others), "the leader has not heard who is blocked")

    def _hears(self, others: int) -> bool:
        leading = [engine for engine in self.engines.values() if engine.raft.is_leader]
        return bool(leading) and len(self.leader().raft.pass_over.peers) == others

    def go(self, seconds: float) -> None:
        """For so long (virtual)."""
        scheduler = self.world.scheduler
        scheduler.run_until(scheduler.now_s + seconds)

    def finish(self) -> SeedResult:
        """Everything that was asked is done, read and equal."""
        self.run._calm()
        self.run._judge()
        result = self.run.result
        assert result.is_good, f"seed {self.swarm.seed}: {result.violations[:3]} {result.stuck}"
        return result

    def stages(self) -> list[Stage]:
        """What the log of some node says of the entry."""
        (engine, *_) = self.engines.values()
        log = engine.store.log
        entries = [log.entry(index) for index in range(log.first_index, log.end_index + 1)]
        return [Stage(read_word(entry).stage) for entry in entries if entry.kind.name == "PASS_OVER"]


@pytest.mark.parametrize(("seed", "nodes"), [(3, 1), (3, 3), (4, 3), (4, 5)])
def test_a_group_that_cannot_apply_an_entry_blocks_and_passes_over_it_when_told(seed: int, nodes: int) -> None:
    """It keeps log and votes, through restarts too, and serves nobody; nothing that was acknowledged is missing afterwards."""
    with Trial(seed, nodes=nodes) as trial:
        trial.block_all()
        assert trial.poison.raised == TRIES_MAX * nodes, "a node tries it twice"
        trial.go(5.0)
        assert not any(engine.raft.is_serving for engine in trial.engines.values())
        for name in trial.world.names:
            trial.world.machines[name].kill()
            trial.world.supervise(name)
        trial.block_all()
        assert trial.poison.raised == TRIES_MAX * nodes, "one that has tried often enough does not end again"
        leader, index = trial.leader(), trial.poison.index
        said = leader.poison.describe()
        assert said is not None
        assert (said["index"], said["error"]) == (index, f"PoisonError: entry {index}")
        assert said["where"].startswith("poison.py:")
        assert "blocked at entry" in leader.poison.ask(index + 1, False)["reason"]
        assert leader.poison.ask(index, False)["asked"]
        trial.until(lambda: not trial.blocked(), "they do not pass over it")
        trial.finish()
        for engine in trial.engines.values():
            assert [entry for entry, _ in engine.state.passed_over.entries] == [index]
            assert not engine.store.log.pass_overs, "words that have had their effect cost every later entry a look"
            assert engine.raft.pass_over.blocked is None
        assert trial.stages() == [Stage.ASKED, Stage.DONE]


@campaign
@pytest.mark.parametrize("seed", shared_out(*SEEDS))
def test_all_members_must_agree(seed: int) -> None:
    """While one is down the leader refuses, and names it; when it is back it has to say for itself."""
    with Trial(seed) as trial:
        trial.block_all()
        away = next(name for name, engine in trial.engines.items() if not engine.raft.is_leader)
        trial.world.machines[away].kill()
        trial.until(lambda: away not in trial.leader().raft.pass_over.peers, "a peer that is gone is believed")
        answer = trial.leader().poison.ask(trial.poison.index, False)
        assert not answer["asked"]
        assert f"'{away}' has not said" in answer["reason"]
        follower = next(engine for engine in trial.engines.values() if not engine.raft.is_leader)
        assert follower.poison.ask(trial.poison.index, False)["reason"] == "this node does not lead"
        trial.world.supervise(away)
        trial.block_all()
        assert trial.leader().poison.ask(trial.poison.index, False)["asked"]
        trial.until(lambda: not trial.blocked(), "they do not pass over it")
        trial.finish()


@campaign
@pytest.mark.parametrize("seed", shared_out(*SEEDS))
def test_one_node_that_cannot_apply_an_entry_keeps_nobody_waiting(seed: int) -> None:
    """The others go on, and it acknowledges what they write; a newer release on it catches up."""
    with Trial(seed, which=lambda engine: engine._config.node == "n1" and is_old(engine)) as trial:
        trial.until(lambda: "n1" in trial.blocked(), "n1 does not block")
        trial.until(lambda: trial.leader().raft.is_serving, "nobody serves")
        leader = trial.leader()
        begin = leader.raft.commit_index
        trial.until(lambda: leader.raft.commit_index > begin + 20 or not trial.run.clients.is_idle(), "nothing goes on")
        assert leader.poison.ask(trial.poison.index, False)["reason"].startswith("this node is not blocked")
        for name in trial.world.names:
            trial.world.upgrades.upgrade(name)
        trial.until(lambda: len(trial.engines) == 3 and not trial.blocked(), "n1 is still blocked")
        trial.finish()
        assert trial.stages() == []


@campaign
@pytest.mark.parametrize("seed", shared_out(*SEEDS))
def test_a_release_that_can_apply_it_ends_the_block(seed: int) -> None:
    """Node after node; nothing is passed over, and what was in the entry has happened."""
    with Trial(seed, which=is_old) as trial:
        trial.block_all()
        for name in trial.world.names:
            trial.world.upgrades.upgrade(name)
            trial.go(2.0)
        trial.until(lambda: len(trial.engines) == 3 and not trial.blocked(), "they are still blocked")
        trial.finish()
        assert not any(engine.state.passed_over.entries for engine in trial.engines.values())


def race(seed: int, *, is_hasty: bool) -> tuple[SeedResult, list[Stage]]:
    """An operator asks, and in the same moment one node is stopped to be upgraded.

    *is_hasty*: it hears what is committed before it hears that somebody asked (which takes a log of many MiB), and applies the entry.
    """
    with Trial(seed, which=is_old) as trial:
        trial.block_all()
        world = trial.world
        late = next(name for name, engine in trial.engines.items() if not engine.raft.is_leader)
        if is_hasty:
            trial.stack.enter_context(changed((PassOver, "verdict", hasty(late, trial.poison.index))))
        assert trial.leader().poison.ask(trial.poison.index, False)["asked"]
        world.upgrades.upgrade(late)
        trial.go(15.0)
        for name in world.names:
            if name != late:
                world.upgrades.upgrade(name)
        trial.until(lambda: len(trial.engines) == 3 and not trial.blocked(), "they are still blocked")
        trial.run._calm()
        trial.run._judge()
        return trial.run.result, trial.stages() if trial.engines else []


def hasty(late: str, index: int) -> Callable[[PassOver, int], Verdict]:
    """As `PassOver.verdict`, for which nobody has asked *late* about entry *index*, once it is upgraded."""
    original = PassOver.verdict

    def verdict(passing: PassOver, number: int) -> Verdict:
        is_late = number == index and passing._membership._me == late and passing.blocked is None
        return Verdict.APPLY if is_late else original(passing, number)

    return verdict


@pytest.mark.parametrize(("is_hasty", "last"), [(False, Stage.DONE), (True, Stage.WITHDRAWN)])
def test_a_node_that_is_upgraded_meanwhile_agrees_or_the_question_is_withdrawn(*, is_hasty: bool, last: Stage) -> None:
    """It waits in front of what it could apply; or it has applied it, and then so do all. Either way all are equal."""
    for seed in SEEDS:
        result, stages = race(seed, is_hasty=is_hasty)
        assert result.is_good, f"seed {seed}: {result.violations[:3]} {result.stuck} {stages}"
        assert stages[-1] is last, f"seed {seed}: {stages}"


def test_passing_over_before_all_have_agreed_is_convicted() -> None:
    """As it would be with one entry in the log instead of two."""

    def verdict(passing: PassOver, index: int) -> Verdict:
        found = original(passing, index)
        asked = [word for word in passing._words(index) if word.stage == Stage.ASKED]
        is_committed = bool(asked) and asked[0].at <= passing._ask_core().raftCommitIndex
        return Verdict.SKIP if found is Verdict.WAIT and is_committed else found

    original = PassOver.verdict
    with changed((PassOver, "verdict", verdict)):
        found = [checker for seed in SEEDS for checker, _ in race(seed, is_hasty=True)[0].violations]
    assert {"state_digest", "quarantine"} & set(found), found


def test_an_operator_may_change_his_mind() -> None:
    """As long as somebody has not answered: then the entry is tried again, and may be asked about again."""
    with Trial(3) as trial:
        trial.block_all()
        index, leader = trial.poison.index, trial.leader()
        silent = next(name for name, engine in trial.engines.items() if not engine.raft.is_leader)
        others = [name for name in trial.world.names if name != silent]
        heal = trial.world.network.cut(*((name, silent) for name in others), *((silent, name) for name in others))
        assert leader.poison.ask(index, False)["asked"]
        assert leader.poison.ask(index, False)["asked"], "again is the same"
        trial.go(0.4)
        assert leader.poison.ask(index, True)["asked"]
        trial.go(0.4)
        assert leader.poison.ask(index, True)["reason"] == "nobody has asked to pass over it"
        heal()
        trial.block_all()
        assert trial.leader().poison.ask(index, False)["asked"]
        trial.until(lambda: not trial.blocked(), "they do not pass over it")
        trial.finish()
        assert trial.stages() == [Stage.ASKED, Stage.WITHDRAWN, Stage.ASKED, Stage.DONE]
