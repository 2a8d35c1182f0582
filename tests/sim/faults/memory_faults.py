"""Faults in a node's memory: what it has applied is not what the entries say, and nothing on its disk or in its log shows it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tern_broker.engine import Engine
from tern_store import StoredEntry
from tests.sim.planted.planting import changed

# A group has topics, messages and leases by then, and a third of its chaos before it.
FROM_INDEX = 150
Fault = Callable[[Engine], None]
Which = Callable[[Engine], bool]


def is_leader(engine: Engine) -> bool:
    """Whether it leads and serves."""
    return engine.raft.is_serving


def is_follower(engine: Engine) -> bool:
    """Whether it follows somebody, as a member."""
    return not engine.raft.is_leader and engine.raft.leader is not None and engine.raft.standing.name == "MEMBER"


def flip_digest(bit: int = 0) -> Fault:
    """One bit of the digest."""

    def flip(engine: Engine) -> None:
        engine.state.digest ^= 1 << bit

    return flip


class MemoryFault:
    """*fault* happens once, behind the first entry from *from_index* on that a node applies of which *which* is true."""

    def __init__(self, which: Which, fault: Fault, from_index: int = FROM_INDEX) -> None:
        self._which, self._fault, self._from_index = which, fault, from_index
        # Told the node's name when it happens.
        self.on_fault: Callable[[str], None] = lambda node: None
        # Whom it happened to.
        self.node = ""

    def plant(self) -> AbstractContextManager[None]:
        """Engines made meanwhile, and those that are there, have it."""
        original = Engine._apply
        self.node = ""

        def apply(engine: Engine, entry: StoredEntry) -> None:
            original(engine, entry)
            if not self.node and entry.index >= self._from_index and self._which(engine):
                self.node = engine._config.node
                self.on_fault(self.node)
                self._fault(engine)

        return changed((Engine, "_apply", apply))
