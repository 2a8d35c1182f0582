"""A broker for tests of the simulator's clients: one node of a world without faults, alone in its group.

Its connections are bad on purpose: `loss` of the requests are lost, and as many of the replies. Owner: the test.
"""

from dataclasses import replace
from random import Random

from tern_wire.link.requests import Parts, RequestCode
from tests.sim.clients.asking import Answer, Told
from tests.sim.history.history import EndState
from tests.sim.machines.broker_node import Build
from tests.sim.machines.world import World
from tests.sim.seed_run import end_of, is_at_rest
from tests.sim.swarm import choose

ROUND_TRIP_S = 0.002


class MemoryBroker:
    """Answers what clients ask, unless a connection fails first."""

    def __init__(self, rng: Random, *, loss: float = 0.0) -> None:
        self.world = World(replace(choose(0), nodes=1, retention_bytes=0), build=Build())
        self.names, self.scheduler, self.history = self.world.names, self.world.scheduler, self.world.history
        self._rng, self.loss = rng, loss

    def ask(self, node: str, code: int, parts: Parts, timeout_s: float, told: Told) -> None:
        """tests.sim.clients.asking.Ask."""
        if code == RequestCode.STATUS:
            self.world.ask(node, code, parts, timeout_s, told)
            return
        loses_request, loses_reply = self._rng.random() < self.loss, self._rng.random() < self.loss
        if loses_request or loses_reply:
            self.scheduler.after(timeout_s if self._rng.random() < 0.3 else ROUND_TRIP_S, told, None)
        if not loses_request:
            self.world.ask(node, code, parts, timeout_s, _forget if loses_reply else told)

    def is_at_rest(self) -> bool:
        """Whether nothing happens by itself any more."""
        return all(is_at_rest(node.engine.state) for node in self.world.nodes.values())

    def end_state(self, *, is_drained: bool) -> EndState:
        """The only node, as a run's end reports it."""
        (node,) = self.world.nodes.values()
        nodes = []
        node.process.run(lambda: nodes.append(end_of(node)))
        assert not self.world.violations, self.world.violations
        return EndState(nodes=tuple(nodes), is_drained=is_drained)


def _forget(_answer: Answer | None) -> None:
    """A reply that nobody hears."""
