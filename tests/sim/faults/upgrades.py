"""Releases of two versions in one group: each machine is given the newer one at a moment of the seed, at its next start.

Law: no entry is of a version that a member's release does not know, and the group is at the version that all know as soon as all are there.
"""

from typing import TYPE_CHECKING

from tern_wire.link.commands import STATE_MACHINE_VERSION

if TYPE_CHECKING:
    from tests.sim.machines.world import World

NEXT_VERSION = STATE_MACHINE_VERSION + 1


class Upgrades:
    """Which release is on which machine. Owner: the world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        swarm = world.swarm
        shares = dict(zip(world.machines, swarm.upgrades, strict=False))
        self.versions = {
            name: NEXT_VERSION if shares.get(name) == 0.0 else STATE_MACHINE_VERSION for name in world.machines
        }
        for name, share in shares.items():
            if 0.0 < share < 1.0:
                world.scheduler.after(share * swarm.chaos_s, self.upgrade, name)

    @property
    def common(self) -> int:
        """What every release that is installed knows."""
        return min(self.versions.values())

    def upgrade(self, name: str) -> None:
        """Stop the process on machine *name*, whatever it does, and start the next release's."""
        world, machine = self._world, self._world.machines[name]
        world.say(f"{name} is upgraded to version {NEXT_VERSION}")
        self.versions[name] = NEXT_VERSION
        if machine.is_up:
            machine.kill()
            world.supervise(name)

    def is_done(self) -> bool:
        """Whether every node that runs is at what all know."""
        common = self.common
        return all(node.engine.state.feature_level.level == common for node in self._world.nodes.values())
