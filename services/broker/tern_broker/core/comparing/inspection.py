"""The pieces of the state that a DIGEST covers besides the verdicts. Each DIGEST covers other
pieces, until all of the state was covered.

Verdicts alone would show a faulty state (a flipped bit, a part that one build keeps differently)
only when a command meets the fault, perhaps in a month. A digest of every change would add a cost
to each step of apply. A digest of the whole state would cost as much as a save, every 1,000
entries. So each DIGEST inspects one turn's pieces: a window of the deliveries and of each part that
may be large, and one small part or the youngest table of keys. Law: the choice of pieces follows
from the number of DIGESTs in the log and from the state alone.
"""

import zlib
from collections.abc import Callable, Mapping

from tern_broker.core.applied import Part
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.feature_level import PARTS_SINCE
from tern_broker.core.sending.idempotency import KeyTable
from tern_broker.core.windows import Windowed
from tern_wire.limits import INSPECTED_DELIVERIES_MAX
from tern_wire.link.codec import encode_msgpack


class Inspection:
    """The inspection of one state. Owner: the state machine."""

    def __init__(
        self, parts: Mapping[str, Part], leasing: Leasing, keys: KeyTable, *, level: Callable[[], int]
    ) -> None:
        """*level*: the feature level, below which nodes of older releases lack some parts."""
        self._leasing, self._keys, self._level = leasing, keys, level
        # All parts but the deliveries, which have windows of their own.
        others = {name: part for name, part in parts.items() if part is not leasing}
        self._all_large = {name: part for name, part in others.items() if isinstance(part, Windowed)}
        self._small = [part for part in others.values() if not isinstance(part, Windowed)]

    @property
    def _large(self) -> list[Windowed]:
        level = self._level()
        return [part for name, part in self._all_large.items() if level >= PARTS_SINCE.get(name, 0)]

    @property
    def turns(self) -> int:
        """Number of DIGESTs that inspect the whole state once, if it does not change."""
        large = [part.windows() for part in self._large]
        return max(len(self._small) + 1, self._windows(len(self._held())), *large)

    def witness(self, turn: int, digest: int) -> int:
        """Return *digest* extended by the pieces of DIGEST number *turn*."""
        digest = self._window(turn, digest)
        for part in self._large:
            digest = zlib.crc32(encode_msgpack(part.window(turn % part.windows())), digest)
        piece = turn % (len(self._small) + 1)
        if piece == len(self._small):
            return zlib.crc32(self._keys.witness().to_bytes(8, "little"), digest)
        return zlib.crc32(encode_msgpack(self._small[piece].pack()), digest)

    def _window(self, number: int, digest: int) -> int:
        keys = self._held()
        first = number % self._windows(len(keys)) * INSPECTED_DELIVERIES_MAX
        digest = zlib.crc32(encode_msgpack([self._leasing.next_lease, self._leasing.dead_topics.pack()]), digest)
        for key in keys[first : first + INSPECTED_DELIVERIES_MAX]:
            for queue, delivery in enumerate(self._leasing.deliveries[key]):
                if delivery is not None:
                    digest = zlib.crc32(encode_msgpack([*key, queue, delivery.KIND, delivery.pack()]), digest)
        return digest

    def _held(self) -> list[tuple[int, int]]:
        return [key for key, row in self._leasing.deliveries.items() if any(row)]

    def _windows(self, keys: int) -> int:
        return max(1, -(-keys // INSPECTED_DELIVERIES_MAX))
