"""One seed from its birth to its verdict: chaos, then calm that must converge, then what the nodes hold, then every checker.

Owner of everything that the seed makes. `run_seed` is all that others call.
"""

import gc
import hashlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tern_broker.core import saving
from tern_broker.core.dead_topics import NOTES
from tern_broker.core.machine import StateMachine
from tern_broker.reading.dead_letter_reader import DeadLetterReader
from tern_store import DerivedDamage, LogRot
from tern_wire.dead_letters import RUNNING
from tern_wire.link.codec import encode_msgpack
from tests.sim.checkers.every import check_all
from tests.sim.clients.bodies import read_records
from tests.sim.clients.clients import Clients
from tests.sim.faults.lone_rot import rot_alone
from tests.sim.faults.nemesis import Nemesis
from tests.sim.history.history import EndState, GraveEnd, Letter, LogRow, NodeEnd, QueueEnd
from tests.sim.history.transaction_ends import transactions_of
from tests.sim.machines.broker_node import BrokerNode, Build
from tests.sim.machines.scheduler import BEGIN_S
from tests.sim.machines.world import World
from tests.sim.swarm import REPEAT_WITHIN_S, Swarm, choose, constants

# After the last fault everything must be equal and drained within so long (virtual).
CONVERGE_S = 60.0
# Clients that met many faults are stopped when they have taken so much longer than the chaos.
OVERTIME_S = 20.0
PULL_MAX_MESSAGES, PULL_MAX_BYTES = 1000, 1 << 20
WITNESSES_MAX = 40
# Bits rot before the calm: each look finds the rot that the one before has not come to.
LOOKS_MAX = 5


@dataclass(slots=True)
class SeedResult:
    """What one seed came to; plain values, since it travels between processes."""

    seed: int
    operations: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    violations: list[tuple[str, str]] = field(default_factory=list)
    stuck: str = ""
    hash: str = ""
    cpu_s: float = 0.0
    virtual_s: float = 0.0
    events: int = 0
    nodes: int = 0
    # Judgements that a node's own digest was part of, of all nodes.
    comparisons: int = 0

    @property
    def is_good(self) -> bool:
        """Neither convicted nor stuck."""
        return not self.violations and not self.stuck


def run_seed(
    seed: int,
    *,
    build: Build | None = None,
    trace: Callable[[str], None] | None = None,
    swarm: Swarm | None = None,
) -> SeedResult:
    """Run *seed*; *trace* is told every event worth a line."""
    began_s = time.process_time()
    was_enabled = gc.isenabled()
    gc.disable()  # a world is full of cycles, and dies as a whole
    if was_frozen := gc.get_freeze_count() > 0:
        gc.collect()  # by pytest, to the end: garbage may not become part of it
    gc.freeze()  # and modules need not be looked through for it
    swarm = swarm or choose(seed)
    try:
        with constants(swarm):
            result = _Run(swarm, build or Build(), trace).run()
    finally:
        gc.collect()  # the world alone: what was there before it is still frozen
        if not was_frozen:
            gc.unfreeze()
        if was_enabled:
            gc.enable()
    result.cpu_s = time.process_time() - began_s
    return result


class _Run:
    def __init__(self, swarm: Swarm, build: Build, trace: Callable[[str], None] | None) -> None:
        self.swarm = swarm
        self.world = World(swarm, build=build, trace=trace)
        self.nemesis = Nemesis(self.world)
        self.clients = Clients(
            rng=random.Random(f"clients {swarm.seed}"),
            history=self.world.history,
            ask=self.world.ask,
            now_s=lambda: self.world.scheduler.now_s,
            call_later=self.world.call_later,
            operations=swarm.operations,
            brokers=self.world.names,
            # Faults make clients slow; most of what they ask is to be asked before the calm.
            pace_s=0.75 * swarm.chaos_s,
            repeat_within_s=REPEAT_WITHIN_S if swarm.is_short_window else 0.0,
            is_at_rest=self._is_at_rest,
        )
        self.result = SeedResult(swarm.seed, nodes=swarm.nodes)

    def run(self) -> SeedResult:
        """All of it."""
        world, scheduler = self.world, self.world.scheduler
        self.clients.start()
        self.nemesis.start()
        scheduler.run_until(scheduler.now_s + self.swarm.chaos_s, self._is_convicted)
        if not self._is_convicted():
            self._calm()
        self._judge()
        if self.swarm.nodes == 1 and self.result.is_good:
            rot_alone(self.world)
            self.result.violations = [(violation.checker, violation.text) for violation in self.world.violations]
        result = self.result
        result.operations = len(world.history.operations)
        result.faults = {kind: count for kind, count in sorted(self.nemesis.counts.items()) if count}
        result.virtual_s = scheduler.now_s - BEGIN_S
        result.events = scheduler.events
        result.comparisons = world.comparisons
        result.hash = world.history.hash()
        return result

    # Phases ------------------------------------------------------------------------------------------------------
    def _calm(self) -> None:
        """Everything is mended; what was begun is finished, read to its end, and equal everywhere."""
        world, scheduler = self.world, self.world.scheduler
        world.say("calm: no more faults")
        world.is_calm = True
        self.nemesis.stop()
        end_s = scheduler.now_s + CONVERGE_S
        scheduler.run_until(scheduler.now_s + OVERTIME_S, self._are_clients_done)
        self.clients.stop()
        scheduler.run_until(end_s, lambda: self.clients.is_idle() or self._is_convicted())
        self.clients.drain()
        while scheduler.now_s < end_s and not self._is_convicted():
            scheduler.run_until(min(scheduler.now_s + 0.25, end_s))
            if self.clients.is_drained() and self._is_converged():
                world.say("converged")
                return
        if not self._is_convicted():
            ends = {name: _progress(node) for name, node in world.nodes.items()}
            drained = "drained" if self.clients.is_drained() else "not drained"
            rebuilding = sorted(world.rebuilding)
            self.result.stuck = (
                f"after {CONVERGE_S:g} calm s clients {drained}, nodes at {ends}, rebuilding {rebuilding}"
            )
            world.say(f"STUCK {self.result.stuck}")

    def _are_clients_done(self) -> bool:
        return len(self.world.history.operations) >= self.swarm.operations and self.clients.is_idle()

    def _is_at_rest(self) -> bool:
        """Whether the leader knows of nothing that waits for its time, or is being redriven."""
        leader = self.world.leader()
        node = self.world.nodes.get(leader or "")
        return node is not None and node.engine.raft.is_serving and is_at_rest(node.engine.state)

    def _is_convicted(self) -> bool:
        return bool(self.world.violations or self.world.observers.violations)

    def _is_converged(self) -> bool:
        nodes = [self.world.nodes.get(name) for name in self.world.names]
        if self.world.rebuilding:
            return False
        if not self.world.upgrades.is_done():
            return False
        ends = {_progress(node) if node is not None else None for node in nodes}
        return len(ends) == 1 and None not in ends and all(len(set(end)) == 1 for end in ends if end is not None)

    def _judge(self) -> None:
        world, result = self.world, self.result
        found = [*world.violations, *world.observers.violations]
        # Where all nodes are equal, and clients wait for something: the checkers say what.
        if not found and (not result.stuck or self._is_converged()):
            nodes = self._look()
            found += world.violations
            for node_end in nodes:
                world.history.note(f"{node_end.node} ends at {node_end.applied} as {node_end.digest}")
            end = EndState(nodes=tuple(nodes), is_drained=self.clients.is_drained())
            # Where nobody could be looked at, the world says why.
            found += check_all(world.history, end) if nodes else []
        result.violations = [(violation.checker, violation.text) for violation in found[:WITNESSES_MAX]]
        for checker, text in result.violations:
            world.say(f"VIOLATION {checker}: {text}")

    def _look(self) -> list[NodeEnd]:
        """What every node holds. One whose bytes have rotted, which nobody has read since, ends and mends itself as for any reader."""
        world, scheduler = self.world, self.world.scheduler
        for _ in range(LOOKS_MAX):
            nodes: list[NodeEnd] = []
            for node in list(world.nodes.values()):
                node.process.run(_look_at, node, nodes)
            if len(nodes) == len(world.names) or world.violations:
                return nodes
            world.say("what rotted unseen is mended")
            end_s = scheduler.now_s + CONVERGE_S
            # The processes end in a moment.
            scheduler.run_until(scheduler.now_s + 1.0)
            scheduler.run_until(end_s, lambda: self._is_converged() or self._is_convicted())
        self.result.stuck = (
            f"{len(world.names) - len(nodes)} nodes cannot be read, though they were mended {LOOKS_MAX} times"
        )
        return nodes


def _progress(node: BrokerNode) -> tuple[int, int]:
    return node.engine.store.log.end_index, node.engine.raft.applied_index


def _look_at(node: BrokerNode, found: list[NodeEnd]) -> None:
    try:
        found.append(end_of(node))
    except (LogRot, DerivedDamage) as damage:
        node.engine.fail_soon(damage)


def is_at_rest(state: StateMachine) -> bool:
    """Whether nothing in *state* happens by itself any more, but for leases and rests that end."""
    return not state.timing.pending and all(task.state != RUNNING for task in state.redriving.tasks.values())


# The end ----------------------------------------------------------------------------------------------------------
def end_of(node: BrokerNode) -> NodeEnd:
    """What *node* holds."""
    engine = node.engine
    log, raft = engine.store.log, engine.raft
    rows = []
    for index in range(log.first_index, log.end_index + 1):
        entry = log.entry(index)
        rows.append(LogRow(index, entry.term, entry.crc, entry.position))
    return NodeEnd(
        node=node.name,
        applied=raft.applied_index,
        commit=raft.commit_index,
        first_index=log.first_index,
        log=tuple(rows),
        digest=digest_of(engine.state),
        queues=dict(_queues(node)),
        graves=dict(_graves(node)),
        transactions=dict(transactions_of(engine)),
    )


def digest_of(state: StateMachine) -> str:
    """Hex digest of what a saved state would say, its idempotency keys in order of their hashes (a table has none of its own)."""
    snapshot = saving.take(state)
    digest = hashlib.blake2b(encode_msgpack(snapshot.facts), digest_size=16)
    keys = snapshot.keys
    columns = (keys.first.tolist(), keys.second.tolist(), keys.receipts.tolist(), keys.crcs.tolist())
    rows: list[tuple[Any, ...]] = sorted(zip(*columns, strict=True))
    digest.update(repr(rows).encode())
    return digest.hexdigest()


def _queues(node: BrokerNode) -> Iterator[tuple[tuple[str, int], QueueEnd]]:
    engine = node.engine
    for topic in engine.state.names.topics.values():
        for queue, end in enumerate(topic.ends):
            found: list[Any] = []
            at = topic.mins[queue]
            while at < end:
                messages = engine.reader.pull(topic, queue, at, end, PULL_MAX_MESSAGES, PULL_MAX_BYTES)
                assert len(messages.offsets), (
                    f"queue {queue} of {topic.name} has nothing at {at}, and should end at {end}"
                )
                found += read_records(messages.data)
                at += len(messages.offsets)
            yield (topic.name, queue), QueueEnd(topic.mins[queue], tuple(found))


def _graves(node: BrokerNode) -> Iterator[tuple[str, GraveEnd]]:
    engine = node.engine
    reader = DeadLetterReader(engine.store, lambda: engine.state, host=bytes(8))
    for group in engine.state.names.groups.values():
        dead = engine.state.dead_letters.topics.of(group.group_id)
        if dead is None:
            continue
        letters = []
        for found in reader.letters(group.group_id, dead.mins[NOTES], dead.ends[NOTES]):
            place, size = (found.original[name].astype("int64") for name in ("position", "size"))
            (stored,) = read_records(engine.store.log.read_records(place, size))
            note = found.note
            assert note is not None, f"dead letter {found.offset} of {group.name} without a note"
            origin = (note.topic, note.queue, note.offset, note.attempts, note.cause, note.died_ms)
            letters.append(Letter(found.offset, *origin, stored.body_name))
        yield group.name, GraveEnd(dead.mins[NOTES], tuple(letters))
