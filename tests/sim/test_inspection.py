"""Comparisons look at all of the state, and a saved state that is not what was saved is not used."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tern_broker.core import saving
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.machine import StateMachine
from tern_broker.core.sending.idempotency import Packed
from tern_broker.engine import Engine
from tern_broker.upkeep.saved_state import SavedStates
from tern_wire.errors import TernError
from tests.sim.faults.memory_faults import MemoryFault, is_follower, is_leader
from tests.sim.machines.broker_node import Build
from tests.sim.planted.planting import changed, quiet
from tests.sim.seed_run import _Run
from tests.sim.swarm import choose, constants
from tests.sim.test_comparing import Trial

ALTERATIONS = 250
Path = tuple[Any, ...]


@cache
def saved() -> bytes:
    """The saved state of a group in the middle of its work: topics, groups, leases, rests, timers, transactions, keys, members."""
    swarm = replace(choose(3), nodes=1, kinds=("reset",), weights=(1,), scripts=(), retention_bytes=0, upgrades=())
    with ExitStack() as stack:
        stack.enter_context(constants(swarm))
        stack.enter_context(quiet())
        run = _Run(swarm, Build(), None)
        run.clients.start()
        run.world.scheduler.run_until(run.world.scheduler.now_s + 6.0)
        (node,) = run.world.nodes.values()
        return b"".join(saving.encode(saving.take(node.engine.state)))


def witnesses(state: StateMachine) -> list[int]:
    """Of every piece."""
    return [state.inspection.witness(turn, 0) for turn in range(state.inspection.turns)]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where the facts of *value* lie."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from leaves(one, (*path, number))
    else:
        yield path


def altered(value: Any, path: Path) -> Any:
    """*value* with another fact at *path*."""
    if not path:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value ^ 1
        if isinstance(value, str):
            return value + "x"
        return bytes([value[0] ^ 1]) + value[1:] if value else b"\1"
    if isinstance(value, dict):
        return {key: altered(one, path[1:]) if key == path[0] else one for key, one in value.items()}
    return [altered(one, path[1:]) if number == path[0] else one for number, one in enumerate(value)]


def become(facts: dict[str, Any], keys: Packed) -> StateMachine | None:
    """The state that would be saved so; None if there is none."""
    state = StateMachine()
    state.now_ms, state.digest = facts["now_ms"], facts["digest"]
    try:
        for name, part in state.parts.items():
            part.unpack(facts["parts"][name])
        state.keys.restore(facts["keys"], keys)
        return state if saving.take(state).facts == facts else None
    except (LookupError, TypeError, ValueError, AttributeError, TernError):
        return None


def test_every_fact_of_the_state_is_looked_at() -> None:
    """Alter any one of those that are saved, of any part or of the keys: a comparison sees it within a round."""
    snapshot = saving.take(saving.load(saved()))
    facts, keys = snapshot.facts, snapshot.keys
    expected = witnesses(saving.load(saved()))
    rng, seen = random.Random(1), set()
    paths = [("parts", *path) for path in leaves(facts["parts"])]
    rng.shuffle(paths)
    for path in paths[:ALTERATIONS]:
        state = become(altered(facts, path), keys)
        if state is not None:
            assert witnesses(state) != expected, f"nobody looks at {path}"
            seen.add(path[1])
    assert len(seen) >= 5, f"too few of the parts could be altered: {seen}"
    assert len(keys.first), "no keys to alter"
    for column in ("first", "second", "receipts", "crcs"):
        array = getattr(keys, column).copy()
        array[-1] ^= 1
        state = become(facts, replace(keys, **{column: array}))
        assert state is not None
        assert witnesses(state) != expected, f"nobody looks at the keys' {column}"


def test_a_loaded_state_is_looked_at_as_the_one_that_was_saved() -> None:
    """Whatever the order in which its keys lie."""
    state = saving.load(saved())
    again = saving.load(b"".join(saving.encode(saving.take(state))))
    snapshot = saving.take(state)
    backwards = Packed(
        *(
            array[::-1].copy()
            for array in (snapshot.keys.first, snapshot.keys.second, snapshot.keys.receipts, snapshot.keys.crcs)
        )
    )
    other = become(snapshot.facts, backwards)
    assert other is not None
    assert witnesses(state) == witnesses(again) == witnesses(other)


def test_a_part_that_forgets_something_makes_its_saved_state_unusable() -> None:
    """The log makes the state anew; silently another state would differ from the other nodes'."""

    def forgetful(self: Leasing, packed: Any) -> None:
        unpack(self, packed)
        self.next_lease += 1

    unpack = Leasing.unpack
    states = SavedStates()
    assert states.accepts(saved())
    assert saving.take(states.state(saved())).facts == saving.take(saving.load(saved())).facts
    with changed((Leasing, "unpack", forgetful)), quiet():
        assert not SavedStates().accepts(saved())
        with pytest.raises(ValueError, match="'leasing' of the saved state is not what was saved"):
            saving.load(saved())
    with quiet():
        assert not SavedStates().accepts(saved()[:-8] + bytes(8))


def move_a_cursor(engine: Engine) -> None:
    """A group's progress at a queue, which no verdict tells."""
    delivery = next(one for row in engine.state.leasing.deliveries.values() for one in row if one is not None)
    delivery.version += 1


def change_an_attribute(engine: Engine) -> None:
    """Of a topic."""
    topic = next(iter(engine.state.names.topics.values()))
    topic.created_ms += 1


def skip_an_id(engine: Engine) -> None:
    """Of topics and groups, which the next one that is created tells."""
    engine.state.names.next_id += 1


@pytest.mark.parametrize("fault", [move_a_cursor, change_an_attribute, skip_an_id])
@pytest.mark.parametrize("which", [is_leader, is_follower])
def test_a_state_that_went_wrong_in_memory_is_found(
    which: Callable[[Engine], bool], fault: Callable[[Engine], None]
) -> None:
    """Nothing has met it yet: the node goes, and is copied anew, before it decides anything by it."""
    with quiet():
        memory = MemoryFault(which, fault)
        # A seed whose next comparison comes before anything is decided by that state.
        with Trial(7, memory) as trial:
            result = trial.run.run()
    assert memory.node, "the fault never happened"
    assert result.is_good, f"{result.violations[:3]} {result.stuck}"
    must = trial.told("must be rebuilt")
    assert must, "nobody saw it"
    assert all(f"  {memory.node} must be rebuilt" in line for line in must), must
