"""Audit: every refusal and every decision about an admin route is recorded in a log and in a topic.

One event is one line of the log `ternmq.audit` and one message of the audit topic. The log has all
events at once. The topic gets each event once, as soon as a broker group accepts it: an event keeps
its idempotency key until it is stored. While no broker group accepts events, a bounded number
waits; beyond it the oldest are dropped and counted. Refusals beyond a rate are counted and not
recorded individually, so that clients without a key cannot fill a disk. Only a principal with AUDIT
of the cluster can read the topic (core/access/rights.py).

Law: an event has names, kinds and numbers of requests, never a body, a header or a key. Owner: the
event loop.
"""

import asyncio
import logging
from collections import deque
from typing import Any

from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.proxy import Proxy
from tern_proxy.routes.messages.first_use import own_topic
from tern_proxy.sending import store_messages
from tern_service.problems import new_request_id
from tern_wire.errors import TernError
from tern_wire.limits import AUDIT_EVENTS_WAITING_MAX, AUDITED_REFUSALS_PER_S
from tern_wire.link.codec import encode_json
from tern_wire.paths import JSON
from tern_wire.records.hosts import NO_HOST

logger = logging.getLogger("ternmq.audit")

ALLOWED, DENIED = "allowed", "denied"
# Events of one send: some 100 KB.
_BATCH_MAX = 256
# Pause after a failed send: an election takes less.
_PAUSE_S = 1.0
_TEXT_LENGTH_MAX = 256


class AuditTrail:
    """Recorder of events in the log and in *topic*."""

    def __init__(self, proxy: Proxy, topic: str) -> None:
        self._proxy, self._topic = proxy, topic
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._wanted = asyncio.Event()
        # Refusals that may still be recorded in the current second, and that second.
        self._left, self._second = AUDITED_REFUSALS_PER_S, 0
        self._untold = 0
        self.counts = {ALLOWED: 0, DENIED: 0, "untold": 0, "dropped": 0, "stored": 0}
        gauge = (
            "audit_events",
            "Decisions of the audit, those not told one by one, dropped before they were stored, and stored.",
        )
        proxy.counters.gauges[gauge] = lambda: {name: float(count) for name, count in self.counts.items()}

    def tell(self, decision: str, **fields: Any) -> None:
        """Record one *decision*, ALLOWED or DENIED. *fields*: texts and numbers."""
        self.counts[decision] += 1
        if decision == DENIED and not self._has_room():
            self._untold += 1
            self.counts["untold"] += 1
            return
        event = {"decision": decision} | {
            field: value[:_TEXT_LENGTH_MAX] if isinstance(value, str) else value for field, value in fields.items()
        }
        if self._untold:
            event["denied_and_not_told"], self._untold = self._untold, 0
        logger.info("audit", extra=event)
        if len(self._waiting) >= AUDIT_EVENTS_WAITING_MAX:
            self._waiting.popleft()
            self.counts["dropped"] += 1
        self._waiting.append((new_request_id(), {"at": self._proxy.clock.now_ms(), "proxy": self._proxy.name, **event}))
        self._wanted.set()

    async def run(self) -> None:
        """Store recorded events in the topic until this is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._waiting:
                batch = list(self._waiting)[:_BATCH_MAX]
                try:
                    is_stored = await self._store(batch)
                except TernError:
                    is_stored = False
                if not is_stored:
                    await asyncio.sleep(_PAUSE_S)
                    continue
                self.counts["stored"] += len(batch)
                for event in batch:
                    # It may have been dropped meanwhile.
                    if self._waiting and self._waiting[0] is event:
                        self._waiting.popleft()

    async def _store(self, batch: list[tuple[str, dict[str, Any]]]) -> bool:
        topic = await own_topic(self._proxy, self._topic)
        messages = [
            PackedMessage(
                body=encode_json(event), content_type=JSON, tag=str(event["decision"]), idempotency_key=f"audit-{key}"
            )
            for key, event in batch
        ]
        results = await store_messages(
            self._proxy, topic, messages, born_ms=self._proxy.clock.now_ms(), born_host=NO_HOST, at="/messages"
        )
        # An event that cannot be encoded will never be; the log has it.
        return not any(error.retryable or error.status == 404 for error in results.errors.values())

    def _has_room(self) -> bool:
        second = self._proxy.clock.mono_ms() // 1_000
        if second != self._second:
            self._second, self._left = second, AUDITED_REFUSALS_PER_S
        self._left -= 1
        return self._left >= 0
