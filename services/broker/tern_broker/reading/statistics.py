"""Counters of incoming and outgoing messages of topics and groups, and their rates over the last
minute.

It never scans, and is no part of the state. Law: incoming messages are counted from apply's
results, so every node counts them; outgoing ones are counted with the answers, so only by the
leader, and anew for each leader. A rate is the difference of two totals: the current one, and the
last one noted a minute ago or earlier. Totals are noted every 5 s, only after a change, so an idle
topic costs nothing.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied
from tern_wire.link.rows import QueueAppends

SAMPLE_PERIOD_S = 5.0
WINDOW_S = 60.0
# Limit of appends to several topics that wait to be summed up together.
PENDING_MAX = 256


@dataclass(slots=True)
class Flow:
    """Messages and bytes so far, and notes of (time s, messages, bytes) of the last window. Owner:
    Statistics.
    """

    began_s: float
    messages: int = 0
    size_bytes: int = 0
    notes: deque[tuple[float, int, int]] = field(default_factory=deque)

    def note(self, now_s: float) -> None:
        """Note the current totals; drop notes older than the window, but for one."""
        self.notes.append((now_s, self.messages, self.size_bytes))
        while len(self.notes) > 1 and self.notes[1][0] <= now_s - WINDOW_S:
            self.notes.popleft()

    def rates(self, now_s: float) -> tuple[float, float]:
        """Return messages and bytes a second over the last minute, or since the begin if that is
        less.
        """
        base = (self.began_s, 0, 0)
        for noted in self.notes:
            if noted[0] <= now_s - WINDOW_S:
                base = noted
        passed_s = max(SAMPLE_PERIOD_S, now_s - base[0])
        if passed_s > WINDOW_S + SAMPLE_PERIOD_S:
            # Nothing had changed since that note, so it was true a minute ago as well.
            passed_s = WINDOW_S
        return (self.messages - base[1]) / passed_s, (self.size_bytes - base[2]) / passed_s

    def describe(self, now_s: float) -> dict[str, Any]:
        """Return the flow in the form of documents."""
        messages_per_s, bytes_per_s = self.rates(now_s)
        return {
            "messages": self.messages,
            "bytes": self.size_bytes,
            "messages_per_s": round(messages_per_s, 2),
            "bytes_per_s": round(bytes_per_s, 2),
        }


# (topic id, 0) for flows of topics, (topic id, group id) for what groups receive.
Key = tuple[int, int]
# Over all topics: ids begin at 1.
_ALL: Key = (0, 0)


class Statistics:
    """Of one node. Owner: the core loop. Bounded by topics and by pairs of groups and topics that
    groups have begun.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._sampled_s = monotonic()
        self.came_in: dict[Key, Flow] = {}
        self.went_out: dict[Key, Flow] = {}
        # Messages that were received a second time and more often.
        self.came_again: dict[Key, Flow] = {}
        self._changed: dict[int, Flow] = {}
        self._pending: list[QueueAppends] = []

    # Counting -------------------------------------------------------------------------------------
    def applied(self, applied: Applied) -> None:
        """Count an entry's appends; drop the flows of topics and groups that it deleted."""
        for appends in applied.appends:
            if len(appends) == 1:
                # One queue, the usual case: two additions.
                self._add(self.came_in, (int(appends.codes[0]) >> 32, 0), len(appends.entries), _size(appends.entries))
            else:
                self._pending.append(appends)
        if len(self._pending) >= PENDING_MAX:
            self._sum_up()
        if applied.dropped_topics or applied.dropped_groups:
            self._forget(set(applied.dropped_topics), set(applied.dropped_groups))

    def delivered(self, topic_id: int, group_id: int, attempt: int, messages: int, size_bytes: int) -> None:
        """Count messages that a group has received, at the *attempt*th delivery attempt
        (1-based).
        """
        self._add(self.went_out, (topic_id, 0), messages, size_bytes)
        self._add(self.went_out, (topic_id, group_id), messages, size_bytes)
        if attempt > 1:
            self._add(self.came_again, (topic_id, group_id), messages, size_bytes)

    def pulled(self, topic_id: int, messages: int, size_bytes: int) -> None:
        """Count messages that were read by offset."""
        self._add(self.went_out, (topic_id, 0), messages, size_bytes)

    def sample(self) -> None:
        """Note the changed totals every 5 s. Called every few ms."""
        now_s = self._monotonic()
        if now_s >= self._sampled_s + SAMPLE_PERIOD_S:
            self._sum_up()
            self._sampled_s = now_s
            for flow in self._changed.values():
                flow.note(now_s)
            self._changed.clear()

    def _add(self, flows: dict[Key, Flow], key: Key, messages: int, size_bytes: int) -> None:
        if not key[1]:
            self._add_to(flows, _ALL, messages, size_bytes)
        self._add_to(flows, key, messages, size_bytes)

    def _add_to(self, flows: dict[Key, Flow], key: Key, messages: int, size_bytes: int) -> None:
        flow = flows.get(key)
        if flow is None:
            flow = flows[key] = Flow(self._sampled_s)
        flow.messages += messages
        flow.size_bytes += size_bytes
        self._changed[id(flow)] = flow

    def _sum_up(self) -> None:
        """Count the pending appends all at once: by topic, not by queue."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        topics = np.concatenate([np.repeat(appends.codes >> 32, np.diff(appends.bounds)) for appends in pending])
        sizes = np.concatenate([appends.entries["size"].astype(np.int64) for appends in pending])
        ids, numbers = np.unique(topics, return_inverse=True)
        counts = np.bincount(numbers, minlength=len(ids)).tolist()
        totals = np.bincount(numbers, weights=sizes, minlength=len(ids)).astype(np.int64).tolist()
        for topic_id, count, total in zip(ids.tolist(), counts, totals, strict=True):
            self._add(self.came_in, (topic_id, 0), count, total)

    def _forget(self, topics: set[int], groups: set[int]) -> None:
        for flows in (self.came_in, self.went_out, self.came_again):
            for key in [key for key in flows if key[0] in topics or key[1] in groups]:
                self._changed.pop(id(flows.pop(key)), None)

    # Queries --------------------------------------------------------------------------------------
    def of(self, flows: dict[Key, Flow], topic_id: int, group_id: int = 0) -> dict[str, Any]:
        """Return one flow in the form of documents; zeros without a flow."""
        self._sum_up()
        flow = flows.get((topic_id, group_id))
        return (flow or Flow(self._sampled_s)).describe(self._monotonic())

    def totals(self) -> dict[str, dict[str, Any]]:
        """Return the incoming and outgoing flow over all topics."""
        return {"in": self.of(self.came_in, *_ALL), "out": self.of(self.went_out, *_ALL)}


def _size(entries: npt.NDArray[Any]) -> int:
    return int(entries["size"].sum(dtype=np.int64))
