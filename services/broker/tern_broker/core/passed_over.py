"""The entries that nobody has applied: no member could, every voter said so, and an operator told the group to pass over them.

Law: a node whose state has applied one of them is another one than the nodes that have passed over it, whatever its digest says.
"""

from collections.abc import Mapping
from typing import Any

from tern_broker.core.applied import Applied, Handler
from tern_wire.limits import PASSED_OVER_MAX


class PassedOver:
    """Owner: the state machine."""

    def __init__(self) -> None:
        # Index and checksum of each, oldest first.
        self.entries: list[tuple[int, int]] = []

    def add(self, index: int, crc: int) -> None:
        """Entry *index* was passed over."""
        self.entries = [*self.entries, (index, crc)][-PASSED_OVER_MAX:]

    def commands(self) -> Mapping[int, Handler]:
        """As Part: none. What is passed over is an entry of its own kind, since it must be seen before the entries between."""
        return {}

    # As Part -----------------------------------------------------------------------------------------------------
    def is_due(self, _now_ms: int) -> bool:
        """Nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """As above."""

    def pack(self) -> Any:
        """As Part."""
        return [[index, crc] for index, crc in self.entries]

    def unpack(self, packed: Any) -> None:
        """As Part."""
        self.entries = [(index, crc) for index, crc in packed]
