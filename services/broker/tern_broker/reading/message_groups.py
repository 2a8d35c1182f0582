"""Message groups of stored messages, read from their records for ordered scans."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_wire.link.rows import message_group_hash
from tern_wire.records.columns import property_bounds
from tern_wire.records.properties import MESSAGE_GROUP

# (positions, sizes) -> the records, concatenated.
ReadRecords = Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], memoryview]
_MARK = f"{MESSAGE_GROUP}\x01".encode()
# Hashes of recent message groups, some 150 bytes each. They are cleared all at once; each costs a
# microsecond to compute again.
_REMEMBERED_MAX = 16_384


class MessageGroups:
    """Of one log. Owner: the core loop. LogRot if bytes that were read are damaged."""

    def __init__(self, read_records: ReadRecords) -> None:
        self._read_records = read_records
        self._hashes: dict[bytes, int] = {}

    def read(self, entries: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Return the hash of the message group of each of *entries* (QUEUE_ENTRIES), shape (n,); 0
        for messages without one.
        """
        sizes = entries["size"].astype(np.int64)
        data = bytes(self._read_records(entries["position"].astype(np.int64), sizes))
        begins, ends = property_bounds(data, np.cumsum(sizes) - sizes)
        hashes = np.zeros(len(entries), np.uint64)
        for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            # Our proxies write it near the front. It must match as a whole property; of equal ones
            # the last one counts.
            at = data.rfind(_MARK, begin, end)
            while at > begin and data[at - 1] != 2:
                at = data.rfind(_MARK, begin, at)
            if at >= 0:
                at += len(_MARK)
                stop = data.find(b"\x02", at, end)
                hashes[number] = self._hash(data[at : stop if stop >= 0 else end])
        return hashes

    def _hash(self, message_group: bytes) -> int:
        if not message_group:
            return 0
        known = self._hashes.get(message_group)
        if known is None:
            if len(self._hashes) >= _REMEMBERED_MAX:
                self._hashes.clear()
            known = self._hashes[message_group] = message_group_hash(message_group)
        return known
