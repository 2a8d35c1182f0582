"""An entry that releases of one version cannot apply: they raise half way through it, wherever and whenever they come to it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from tern_broker.engine import Engine
from tern_store import HEADER_SIZE_BYTES, EntryKind, StoredEntry
from tests.sim.planted.planting import changed

# A group has topics, messages and leases by then, and a third of its chaos before it.
FROM_INDEX = 150


class PoisonError(RuntimeError):
    """What is raised."""


class PoisonedEntry:
    """The first entry with commands from FROM_INDEX on that anybody applies; *which* engines cannot (all, if it is not given)."""

    def __init__(self, which: Callable[[Engine], bool] = lambda engine: True) -> None:
        self._which = which
        # Which entry it is; 0 while nobody has met it.
        self.index = 0
        # How often it was raised.
        self.raised = 0

    def plant(self) -> AbstractContextManager[None]:
        """Engines made meanwhile, and those that are there, meet it."""
        original = Engine._apply_whole

        def apply(engine: Engine, entry: StoredEntry) -> None:
            if not self.index and entry.index >= FROM_INDEX and entry.kind is EntryKind.COMMANDS:
                self.index = entry.index
            if entry.index == self.index and self._which(engine):
                self.raised += 1
                # The state has changed, and nothing that follows from it was done.
                engine.state.apply(entry.body, entry.position + HEADER_SIZE_BYTES, entry.index, version=entry.version)
                raise PoisonError(f"entry {entry.index}")
            original(engine, entry)

        return changed((Engine, "_apply_whole", apply))
