"""Receives that are repeated with their attempt id: same messages, same handles, as long as their
leases last.

The leases of a receive are in the replicated state (core/delivery/repeated_receives.py), so any
later leader can return them. This file adds the leader's part: while a receive is in progress, a
repeat waits for its end instead of getting other messages.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from tern_broker.core.delivery.lease import Lease
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.waiting.completion import tell
from tern_wire.errors import TernError
from tern_wire.link.heads import head_parts
from tern_wire.link.receives import Leased, LeasedRun
from tern_wire.link.requests import Parts

# Group id, topic id, hash of the attempt id.
Key = tuple[int, int, bytes]
# (queue, lease) of the leases that a receive got and still holds.
Found = list[tuple[int, Lease]]


class RepeatedReceives:
    """Owner: the core loop. It has one key for each receive in progress with an attempt id."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[Key, list[Callable[[], None]]] = {}

    def ask(
        self,
        key: Key,
        again: Callable[[Found], None],
        first: Callable[[], None],
        failed: Callable[[TernError], None],
    ) -> None:
        """Call *again* with the leases that the receive of *key* got before, or *first* if it is
        new or holds nothing any more.

        Either of them replies eventually, and then the caller calls `over`. So does *failed*, which
        is called if one of them raises: otherwise no later request with this attempt id would ever
        be answered.
        """
        if key in self._waiting:
            self._waiting[key].append(lambda: self.ask(key, again, first, failed))
            return
        self._waiting[key] = []

        def look(is_current: bool) -> None:
            found = self._find(key) if is_current else []
            if found:
                again(found)
            else:
                first()

        def begin() -> None:
            if self._find(key):
                self._engine.raft.when_current(lambda is_current: tell(lambda: look(is_current), failed))
            else:
                first()  # a leader that was deposed and does not know it yet is refused when it proposes

        tell(begin, failed)

    def over(self, key: Key) -> None:
        """Wake the repeats of the receive of *key*, which was answered."""
        for waiting in self._waiting.pop(key, []):
            waiting()

    def parts(self, topic: Topic, group: Group, found: Found) -> Parts:
        """Return the reply with everything that *found* still holds: RECEIVE's, with current
        deadlines.
        """
        runs: list[LeasedRun] = []
        records = []
        for queue, lease in found:
            offsets = self._held(lease)
            if not len(offsets):
                continue  # it has just expired
            # Settled messages before the first held one may have been trimmed since.
            start, end = lease.first_held, lease.start + lease.count
            entries = self._engine.store.read_queue(topic.topic_id, queue, start, end - start)
            records.append(self._engine.reader.read_messages(topic, queue, offsets, entries[offsets - start]).data)
            for deadline_ms, same in groupby(map(lease.deadline_of, offsets.tolist())):
                runs.append(LeasedRun(queue, lease.lease_id, lease.attempt, deadline_ms, len(list(same))))
        return head_parts(Leased(topic_id=topic.topic_id, group_id=group.group_id, runs=runs), records)

    def _find(self, key: Key) -> Found:
        return [
            (queue, lease) for queue, lease in self._engine.state.leasing.replays.find(*key) if len(self._held(lease))
        ]

    def _held(self, lease: Lease) -> Any:
        """Return the offsets that have not expired by now, even if no entry has recorded it yet."""
        now_ms, offsets = self._engine.proposer.now_ms(), lease.offsets()
        return offsets[np.array([lease.deadline_of(offset) > now_ms for offset in offsets.tolist()], bool)]
