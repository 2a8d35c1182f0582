"""The entries that no node has applied: no member could, every voter reported so, and an operator
made the group pass over them.

Law: a node whose state has applied one of them differs from the nodes that have passed over it,
whatever its digest is.
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
        """Record that entry *index* was passed over."""
        self.entries = [*self.entries, (index, crc)][-PASSED_OVER_MAX:]

    def commands(self) -> Mapping[int, Handler]:
        """Return no handlers. Passing over is an entry of its own kind, since a node must see it
        before the entries between.
        """
        return {}

    # Part -----------------------------------------------------------------------------------------
    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return [[index, crc] for index, crc in self.entries]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.entries = [(index, crc) for index, crc in packed]
