"""The last act of a group of one: a bit rots in an entry that its disk has, and that holds whole sectors of zeros.

Law: no peer has the entry, so the node must not begin: cut as if a crash had torn it, all that was acknowledged behind it would be gone.
"""

import random

from tern_store import EntryKind, StoredEntry
from tests.sim.machines.machine import DIRECTORY
from tests.sim.machines.world import World

# What it takes for the disk to have an entry, and for a node to begin or to stand by (virtual).
PATIENCE_S = 10.0
# READMIT of a node that does not exist changes nothing, wherever it is applied: an incarnation of 16 bytes, and a name of zeros.
ZEROS = bytes(16 + 1500)


def rot_alone(world: World) -> None:
    """Two such entries, a bit of the first, a restart. The world is over with it."""
    (name,), scheduler = world.names, world.scheduler
    machine, node = world.machines[name], world.nodes[name]
    log = node.engine.store.log
    entries: list[StoredEntry] = []
    for _ in range(2):
        append = node.engine.raft._consensus.append
        node.process.run(lambda: entries.append(append([ZEROS], 0, urgent=True, kind=EntryKind.READMIT)))  # noqa: B023
        scheduler.run_until(scheduler.now_s + PATIENCE_S, lambda: log.synced_index == log.end_index)
    end_index, first = log.end_index, entries[0]
    rng = random.Random(f"rot of {world.swarm.seed}")
    place = rng.choice([at for at, byte in enumerate(first.raw) if byte])
    base = first.position // log.segment_size_bytes * log.segment_size_bytes
    world.damaged.add(name)
    world.say(f"fault lone_rot: {name} entry {first.index}, byte {place}")
    machine.files.rot(DIRECTORY / "commitlog" / f"{base:020d}", first.position - base + place, rng.randrange(8))
    machine.kill()
    world.start(name)
    scheduler.run_until(scheduler.now_s + PATIENCE_S, lambda: name in world.nodes or name in world.rebuilding)
    if name in world.nodes:
        found = world.nodes[name].engine.store.log.end_index
        world.violate("lost", f"{name} begins with {found} entries of {end_index}: entry {first.index} is damaged")
