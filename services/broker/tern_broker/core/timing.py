"""Messages that wait for their delivery time: their number, their delivery when the time comes, and
recalls.

The timers themselves are on disk (`tern_store.timers.timers`), so apply does not see them. The
leader looks them up when it builds an entry. FIRE carries the rows whose time has come;
CANCEL_TIMER carries whether the message still waits. No entry holds a FIRE and another command that
changes timers (see proposer.py), and the leader looks only when all earlier entries have been
applied: its result is therefore current.

Law: nothing fires before its time. A fired message is appended to its queue once, in the order of
FIRE's rows; a message of a deleted topic is dropped.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.appending import append
from tern_broker.core.applied import Applied, Counters, Handler, read_map
from tern_broker.core.topics import Names
from tern_wire.errors import AlreadyDelivered, LinkBodyMalformed, NotScheduled
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.link.timer_rows import TIMER_ROW_SIZE_BYTES, TIMER_ROWS

TimerRows = npt.NDArray[Any]


class Timing:
    """Owner: the state machine."""

    def __init__(self, names: Names, counters: Counters) -> None:
        self._names, self._counters = names, counters
        # Topic id -> waiting messages. A deleted topic keeps its count until the messages' time
        # comes.
        self.pending: Counter[int] = Counter()

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.FIRE: self._fire, CommandKind.CANCEL_TIMER: self._cancel}

    def is_due(self, _now_ms: int) -> bool:
        """Return False: the leader finds due timers, since apply does not see them."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return sorted(self.pending.items())

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.pending = Counter({int(topic_id): int(count) for topic_id, count in packed})

    def schedule(self, timers: TimerRows, applied: Applied) -> None:
        """Register *timers* (TIMER_ROWS): messages that a SEND has stored and that wait."""
        applied.timers.append(timers)
        topic_ids, counts = np.unique(timers["topic_id"], return_counts=True)
        self.pending.update(dict(zip(topic_ids.tolist(), counts.tolist(), strict=True)))

    # Commands -------------------------------------------------------------------------------------
    def _fire(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, int]:
        if len(payload) % TIMER_ROW_SIZE_BYTES:
            raise LinkBodyMalformed(reason=f"a FIRE of {len(payload)} bytes")
        rows = np.frombuffer(payload, TIMER_ROWS)
        if len(rows) and int(rows["deliver_ms"].max()) > applied.now_ms:
            raise LinkBodyMalformed(reason="a FIRE before its time")
        topic_ids, of_topic, counted = np.unique(rows["topic_id"], return_inverse=True, return_counts=True)
        counts = dict(zip(topic_ids.tolist(), counted.tolist(), strict=True))
        if any(count > self.pending[topic_id] for topic_id, count in counts.items()):
            raise LinkBodyMalformed(reason="a FIRE of more messages than are waiting")
        self._forget(counts)
        applied.fired.append(rows)
        rows = rows[rows["queue"] < self._queues(topic_ids.tolist())[of_topic]]
        if len(rows):
            entries = np.empty(len(rows), QUEUE_ENTRIES)
            for name in ("position", "size", "tag"):
                entries[name] = rows[name]
            codes = rows["topic_id"].astype(np.int64) << 32 | rows["queue"]
            appends, _ = append(self._names, codes, entries)
            applied.appends.append(appends)
            applied.woken_topics |= appends.topic_ids()
        self._counters.fired += len(rows)
        return {"fired": len(rows), "dropped": sum(counts.values()) - len(rows)}

    def _cancel(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, int]:
        request = read_map(payload)
        row = np.zeros(1, TIMER_ROWS)
        for name in ("deliver_ms", "timer_id", "topic_id"):
            row[name] = int(request[name])
        # Two recalls of one message may share an entry: both found the message waiting.
        is_recalled = any(row.tobytes() == other.tobytes() for other in applied.recalled)
        if not request["is_pending"] or is_recalled:
            if request["deliver_ms"] <= applied.now_ms:
                raise AlreadyDelivered()
            raise NotScheduled(topic=str(request["topic"]))
        self._forget({int(request["topic_id"]): 1})
        applied.recalled.append(row)
        self._counters.recalled += 1
        return {"recalled": 1}

    # Helpers --------------------------------------------------------------------------------------
    def _queues(self, topic_ids: list[int]) -> npt.NDArray[np.int64]:
        """Return the number of queues of each topic, 0 for a deleted one."""
        topics = (self._names.topics_by_id.get(topic_id) for topic_id in topic_ids)
        return np.array([topic.queues if topic is not None else 0 for topic in topics], np.int64)

    def _forget(self, counts: Mapping[int, int]) -> None:
        self.pending.subtract(counts)
        for topic_id in counts:
            if self.pending[topic_id] <= 0:
                del self.pending[topic_id]
