"""The version of the state machine for which the group's entries are written: replicated, raised by
an entry, never lowered.

Law: the level rises only when every member has reported to the leader that it supports the new
version. So no member meets an entry that it cannot apply, even one that was away when the entry was
logged. A node that supports less than the level was downgraded to an older release, and refuses to
run.
"""

from collections.abc import Mapping
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import GENESIS_VERSION, CommandKind

# The level from which on entries may take read leases.
READ_LEASES_LEVEL = 2
# The level from which on entries may commit an offset only where a group has not begun.
EXPECTED_NOT_BEGUN_LEVEL = 2
# The level from which on entries may stage and publish batches.
PUBLICATIONS_LEVEL = 2
# Parts of the state that releases without that level do not have: they are neither saved nor
# compared below it.
PARTS_SINCE: Mapping[str, int] = {"read_leases": READ_LEASES_LEVEL, "publications": PUBLICATIONS_LEVEL}
# An entry's header has two bytes for it.
LEVEL_MAX = (1 << 16) - 1


class FeatureLevel:
    """Owner: the state machine."""

    def __init__(self) -> None:
        self.level = GENESIS_VERSION

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.RAISE: self._raise}

    def _raise(self, payload: memoryview, _position: int, _applied: Applied) -> Verdict:
        level = read_map(payload)["level"]
        if type(level) is not int or not GENESIS_VERSION <= level <= LEVEL_MAX:
            raise LinkBodyMalformed(reason="an invalid feature level")
        # A leader that does not know of an earlier raise yet may request a lower level.
        self.level = max(self.level, level)
        return {"level": self.level}

    # Part -----------------------------------------------------------------------------------------
    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [self.level]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        (self.level,) = packed
