"""The version of the state machine that the group's entries are written for: replicated, raised by an entry, never lowered.

Law: it rises only when the leader has heard of every member that it knows the new version. So no member meets an entry that it cannot
apply, whoever was away when it was logged, and a node that knows less than the level was put back to an older release: it refuses to run.
"""

from collections.abc import Mapping
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.comparing.digest import Verdict
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.commands import GENESIS_VERSION, CommandKind

# An entry's header has two bytes for it.
LEVEL_MAX = (1 << 16) - 1


class FeatureLevel:
    """Owner: the state machine."""

    def __init__(self) -> None:
        self.level = GENESIS_VERSION

    def commands(self) -> Mapping[int, Handler]:
        """As Part."""
        return {CommandKind.RAISE: self._raise}

    def _raise(self, payload: memoryview, _position: int, _applied: Applied) -> Verdict:
        level = read_map(payload)["level"]
        if type(level) is not int or not GENESIS_VERSION <= level <= LEVEL_MAX:
            raise LinkBodyMalformed(reason="a feature level that is none")
        # A leader that did not know yet that it was raised may ask for less.
        self.level = max(self.level, level)
        return {"level": self.level}

    # As Part -----------------------------------------------------------------------------------------------------
    def is_due(self, _now_ms: int) -> bool:
        """Nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """As above."""

    def pack(self) -> Any:
        """As Part."""
        return [self.level]

    def unpack(self, packed: Any) -> None:
        """As Part."""
        (self.level,) = packed
