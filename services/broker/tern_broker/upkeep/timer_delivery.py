"""Delivers messages whose delivery time has come. The leader proposes a FIRE as soon as one is due;
every node updates its timers.

Law: at most one FIRE is in flight. Its rows are looked up when its entry is built, at the entry's
time: so none is early, and since the entry before is applied by then, none is fired twice. Rows
that a deposed leader had looked up are found again by the next one, unless they have fired.
"""

import logging
from collections.abc import Callable
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.topics import Names, Topic
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_store import Store, StoredEntry
from tern_store.delayed import fire, recall, schedule
from tern_wire.errors import NotLeader, OutcomeUnknown, TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.timer_rows import TIMER_ROW_SIZE_BYTES

log = logging.getLogger(__name__)
# In one entry: some milliseconds of work for every node, so that concurrent sends are not delayed
# noticeably.
FIRE_ROWS_MAX = 4096
# `step` is called more often than this; a timer that is due sooner gets an alarm of its own.
ALARM_AHEAD_MS = 250


class TimerDelivery:
    """Owner: the core loop."""

    def __init__(
        self,
        store: Store,
        proposer: Proposer,
        *,
        is_serving: Callable[[], bool],
        followed_ms: Callable[[], int],
        call_later: Callable[..., object],
        fail: Callable[[Exception], object],
    ) -> None:
        """*followed_ms*: the group's time as far as this node knows it; *fail* ends the node."""
        self._timers, self._proposer = store.timers, proposer
        # An entry lies within one segment.
        self._rows_max = max(1, min(FIRE_ROWS_MAX, store.log.segment_size_bytes // 16 // TIMER_ROW_SIZE_BYTES))
        self._is_serving, self._followed_ms = is_serving, followed_ms
        self._call_later, self._fail = call_later, fail
        self._is_waiting = False
        # The group's time for which the next alarm is set.
        self._alarm_ms: int | None = None
        self._refused = ""

    def look_ahead(self) -> None:
        """Spread the timers of the coming hour a little at a time. Called every few ms on every
        node.
        """
        self._timers.look_ahead(self._followed_ms())

    def applied(self, applied: Applied) -> None:
        """Set an alarm for the applied entry's timers, which may be due before the next `step`."""
        if applied.timers and self._is_serving():
            due_ms = min(int(rows["deliver_ms"].min()) for rows in applied.timers)
            self._set_alarm(due_ms, self._proposer.now_ms())

    def step(self, _now_s: float) -> None:
        """Fire due timers, or set an alarm. Called every few ms on the leader."""
        if self._is_waiting:
            return
        now_ms, due_ms = self._proposer.now_ms(), self._timers.next_due_ms()
        if due_ms is None:
            return
        if due_ms > now_ms:
            self._set_alarm(due_ms, now_ms)
        elif len(self._timers.peek(now_ms, 1)):
            self._fire()

    # Helpers --------------------------------------------------------------------------------------
    def _set_alarm(self, due_ms: int, now_ms: int) -> None:
        if due_ms - now_ms <= ALARM_AHEAD_MS and (self._alarm_ms is None or due_ms < self._alarm_ms):
            self._alarm_ms = due_ms
            self._call_later(max(0, due_ms - now_ms) / 1000, self._alarmed, due_ms)

    def _alarmed(self, due_ms: int) -> None:
        if self._alarm_ms == due_ms:
            self._alarm_ms = None
        self._go_on()

    def _go_on(self) -> None:
        """Call `step` from a callback whose errors no other code handles."""
        if not self._is_serving():
            return
        try:
            self.step(0.0)
        except Exception as error:
            self._fail(error)
            raise

    def _fire(self) -> None:
        self._is_waiting = True

        def done(verdict: Any, _picks: list[Pick]) -> None:
            self._is_waiting = False
            refused = verdict.code if isinstance(verdict, TernError) else ""
            if refused and refused != self._refused and not isinstance(verdict, NotLeader | OutcomeUnknown):
                log.warning("due messages cannot be delivered yet", extra={"reason": refused, "detail": str(verdict)})
            self._refused = refused
            if not refused:
                self._call_later(0.0, self._go_on)

        size_bytes = min(self._timers.pending, self._rows_max) * TIMER_ROW_SIZE_BYTES
        proposal = Proposal(
            CommandKind.FIRE,
            size_bytes,
            done,
            build=lambda now_ms: [self._timers.peek(now_ms, self._rows_max).tobytes()],
            is_upkeep=True,
        )
        self._proposer.submit(proposal)


def apply_timers(store: Store, entry: StoredEntry, applied: Applied, names: Names) -> None:
    """Update this node's timers for *entry*. DerivedDamage when they do not match the log."""
    for rows in applied.fired:
        fire(store, rows, applied.now_ms)
    for rows in applied.recalled:
        recall(store, rows)
    for rows in applied.timers:
        topics = {
            int(topic_id): names.topics_by_id[topic_id].name.encode() for topic_id in set(rows["topic_id"].tolist())
        }
        schedule(store, entry, rows, topics, applied.now_ms)


def recall_payload(store: Store, topic: Topic, deliver_ms: int, timer_id: int) -> bytes:
    """Return the payload of a CANCEL_TIMER when its entry is built.

    All earlier entries are applied, so a message that waits now waits until this entry.
    """
    found = store.timers.find(deliver_ms, timer_id)
    is_pending = bool(len(found)) and int(found["topic_id"][0]) == topic.topic_id
    names = ("topic", "topic_id", "deliver_ms", "timer_id", "is_pending")
    values = (topic.name, topic.topic_id, deliver_ms, timer_id, is_pending)
    return encode_msgpack(dict(zip(names, values, strict=True)))
