"""The leader's part of a receive with a filter: from the group's cursor on, lease matching messages
and skip the others for good.

     cursor                                                       after the receive
     | no no no | yes yes | no no | yes | no no no no | not visited
     |   SKIP   |  lease  | SKIP  |lease|    SKIP     |

Law: a message that the filter drops counts as consumed by the group, as in RocketMQ: no consumer of
the group gets it, and progress moves. (So two members of one group with different filters take each
other's messages.) Returned messages are treated in the same way. One pick reads as far as its
`Look` allows; a receive that finds nothing is proposed again.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.picking import Look, Pick, Picker, ReceiveRequest
from tern_wire.limits import LEASED_PER_QUEUE_MAX
from tern_wire.link.rows import LEASE_SKIP, QUEUE_ENTRIES

# Queue entries that are read at once: 80 KiB.
PAGE_ENTRIES = 4_096
# Bits of the short-lived lease of a SKIP.
SKIP_MAX = 65_536
_NO_OFFSETS, _NO_ENTRIES = np.empty(0, np.int64), np.empty(0, QUEUE_ENTRIES)


class FilteredPicker(Picker):
    """A Picker for receives with and without a filter. Owner: the proposer."""

    _look: Look | None = None

    def pick(self, request: ReceiveRequest) -> list[Pick]:
        """Return what to lease and to skip for *request*."""
        self._look = request.look() if request.look is not None else None
        return super().pick(request)

    def _pick_queue(
        self, request: ReceiveRequest, queue: int, delivery: Delivery | None, messages: int, size: int, *, first: bool
    ) -> Iterator[Pick]:
        look = self._look
        if look is None:
            yield from super()._pick_queue(request, queue, delivery, messages, size, first=first)
            return
        for run in delivery.runs.values() if delivery is not None else ():
            if messages <= 0 or size <= 0:
                return
            if run.run_id in self._runs:
                continue
            count = min(run.count, PAGE_ENTRIES)
            whole = self._make(
                request, queue, delivery, run.start, count, run.run_id, run.settled, PAGE_ENTRIES << 23, first=True
            )
            if whole is None:
                continue  # gone for any reason: messages behind it need not wait
            part = _first_part(whole, look, messages, size, first=first)
            if part is None:
                return
            self._runs.add(run.run_id)
            yield part
            messages -= len(part.offsets)
            size -= _size(part.entries)
            first = first and not len(part.offsets)
        if messages > 0 and size > 0:
            yield from self._scan(request, queue, delivery, messages, size, look, first=first)

    def _scan(
        self,
        request: ReceiveRequest,
        queue: int,
        delivery: Delivery | None,
        messages: int,
        size: int,
        look: Look,
        *,
        first: bool,
    ) -> Iterator[Pick]:
        """Visit never leased messages, page by page, and note the progress."""
        topic, key = request.topic, (request.group.group_id, request.topic.topic_id, queue)
        cursor = self._cursors.get(key, delivery.cursor if delivery is not None else topic.mins[queue])
        room = min(messages, LEASED_PER_QUEUE_MAX - (delivery.unsettled if delivery is not None else 0))
        version = 0 if delivery is None else delivery.version
        skipped = 0

        def row(start: int, count: int, invisible_ms: int) -> tuple[int, int, int, int, int, int, int, int]:
            return (*key, count, start, 0, version, invisible_ms)

        is_full = False
        while room > 0 and cursor < topic.ends[queue] and not is_full:
            entries = self._read(topic.topic_id, queue, cursor, min(PAGE_ENTRIES, topic.ends[queue] - cursor))
            mask = look(entries) if len(entries) else np.zeros(0, bool)
            if not len(mask):
                break
            at = 0
            for begin, end in _stretches(mask):
                # Entries before the stretch are skipped; as much of the stretch as fits is leased.
                skipped += begin - at
                at = begin
                fitting = _fitting(entries[begin:end], min(end - begin, room), size, first=first)
                if fitting:
                    if skipped:
                        yield Pick(
                            row(cursor + at - skipped, skipped, LEASE_SKIP), _NO_OFFSETS, _NO_ENTRIES, request.token
                        )
                        skipped = 0
                    taken = entries[begin : begin + fitting]
                    offsets = np.arange(cursor + begin, cursor + begin + fitting, dtype=np.int64)
                    yield Pick(row(cursor + begin, fitting, request.invisible_ms), offsets, taken, request.token)
                    at, room, size, first = begin + fitting, room - fitting, size - _size(taken), False
                if fitting < end - begin:
                    is_full = True
                    break
            if not is_full:
                skipped += len(mask) - at
                at = len(mask)
            cursor += at
            if skipped >= SKIP_MAX:
                break
        if skipped:
            yield Pick(row(cursor - skipped, skipped, LEASE_SKIP), _NO_OFFSETS, _NO_ENTRIES, request.token)
        self._cursors[key] = cursor


def _first_part(pick: Pick, look: Look, messages: int, size: int, *, first: bool) -> Pick | None:
    """Return the first part of a run that matches, or that does not, as one row.

    None when nothing was read, or nothing fits.
    """
    mask = look(pick.entries)
    if not len(mask):
        return None
    changes = np.flatnonzero(mask != mask[0])
    count = int(changes[0]) if len(changes) else len(mask)
    if not mask[0]:
        # The run's last offset of this part: between two waiting offsets some may be settled.
        last = int(pick.offsets[count - 1])
        row = (*pick.row[:3], last - pick.row[4] + 1, *pick.row[4:7], LEASE_SKIP)
        return Pick(row, _NO_OFFSETS, _NO_ENTRIES, pick.token)
    count = _fitting(pick.entries[:count], min(count, messages), size, first=first)
    if not count:
        return None
    last = int(pick.offsets[count - 1])
    row = (*pick.row[:3], last - pick.row[4] + 1, *pick.row[4:])
    return Pick(row, pick.offsets[:count], pick.entries[:count], pick.token)


def _stretches(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each stretch of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).view(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _fitting(entries: npt.NDArray[Any], count: int, size: int, *, first: bool) -> int:
    """Return how many of the first *count* entries fit into *size* bytes; at least one if it is the
    *first*.
    """
    sizes = np.cumsum(entries["size"][:count].astype(np.int64))
    return max(int(np.searchsorted(sizes, size, side="right")), int(first and count > 0))


def _size(entries: npt.NDArray[Any]) -> int:
    return int(entries["size"].astype(np.int64).sum())
