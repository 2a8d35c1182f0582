"""Receives that are repeated with their attempt id: the same messages, the same handles, as long as their leases last.

Which leases a receive got is in the replicated state (core/delivery/replays.py), so any later leader can say it. Here is what a leader adds:
while a receive is under way, the same one again waits for its end instead of getting other messages.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from tern_broker.core.delivery.lease import Lease
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.waiting.telling import tell
from tern_wire.errors import TernError
from tern_wire.link.heads import head_parts
from tern_wire.link.receives import Leased, LeasedRun
from tern_wire.link.requests import Parts

# Group id, topic id, what stands for the attempt id.
Key = tuple[int, int, bytes]
# (queue, lease) of what a receive got and still holds.
Found = list[tuple[int, Lease]]


class RepeatedReceives:
    """Owner: the core loop. As many keys as receives with an attempt id are under way."""

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
        """Call *again* with what the receive of *key* got before, or *first* if it is the first, or if nothing is left of it.

        Either of them replies some time, and then the caller calls `over`; so does *failed*, which is called when one of them raises:
        else nobody with this attempt id would ever be answered again.
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
                first()  # a leader that was deposed and does not know it yet finds out when it proposes

        tell(begin, failed)

    def over(self, key: Key) -> None:
        """The receive of *key* was answered."""
        for waiting in self._waiting.pop(key, []):
            waiting()

    def parts(self, topic: Topic, group: Group, found: Found) -> Parts:
        """The reply with what *found* holds still: as RECEIVE's, with the deadlines of now."""
        runs: list[LeasedRun] = []
        records = []
        for queue, lease in found:
            offsets = self._held(lease)
            if not len(offsets):
                continue  # its time has just come
            # What was settled before the first one that is held may have been trimmed since.
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
        """What is not over by now, though no entry has said so yet."""
        now_ms, offsets = self._engine.proposer.now_ms(), lease.offsets()
        return offsets[np.array([lease.deadline_of(offset) > now_ms for offset in offsets.tolist()], bool)]
