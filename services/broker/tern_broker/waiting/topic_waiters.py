"""Parked requests for offsets: proxies that wait until any queue of a topic grows. Woken at apply,
by appends to that topic; no polling.
"""

from tern_broker.core.applied import Applied
from tern_broker.waiting.queue_waiters import QueueWaiters, Wake


class TopicWaiters(QueueWaiters):
    """Waits by topic, kept under its queue 0. Owner: the core loop, as for QueueWaiters."""

    def park_topic(self, topic_id: int, deadline_s: float, wake: Wake) -> None:
        """Park until the topic grows. The caller has read its ends in this very turn."""
        self.park(topic_id, 0, deadline_s, wake)

    def applied(self, applied: Applied) -> None:
        """Wake the waits of topics to which the entry has appended."""
        if not self._parked:
            return
        for appends in applied.appends:
            for code in self._parked.keys() & {topic_id << 32 for topic_id in appends.topic_ids()}:
                self._wake_all(code, True)
