"""Minimum rate of a request's body. Pure: times (s) and byte counts are arguments.

Used by connection.py, once a step.
 began ----- step ----- step ----- step ...          checked: the last two steps, so that one pause
 |<-- at least 1 KiB/s, and a 120th of received -->|    costs nothing
Law: a long body must keep its rate up. Bytes that came quickly are no credit for a pause: a body
that stops near its end is as late as one that never began.
"""

from tern_service.connections.bounds import Bounds
from tern_wire.errors import BodyTooSlow, RequestTimeout, TernError
from tern_wire.limits import BODY_RATE_MIN_BYTES_PER_S
from tern_wire.limits_requests import BODY_HOLD_MAX_S


class BodyPace:
    """One body, begun at *began_s*. Bytes that came with its head belong to the first step."""

    __slots__ = ("_before", "_began_s", "_bounds", "_last")

    def __init__(self, bounds: Bounds, began_s: float) -> None:
        self._bounds, self._began_s = bounds, began_s
        # One step ago and two: time, and bytes received.
        self._before = self._last = (began_s, 0)

    def wait_s(self, now_s: float) -> float:
        """Time until the next check: a step, or the rest of the deadline."""
        left_s = self._began_s + self._bounds.body_deadline_ms / 1_000 - now_s
        return max(0.0, min(self._bounds.body_rate_step_ms / 1_000, left_s))

    def rest(self, now_s: float, came_bytes: int) -> None:
        """Restart the time: the server itself had stopped reading."""
        self._began_s = now_s
        self._before = self._last = (now_s, came_bytes)

    def trouble(self, now_s: float, came_bytes: int) -> TernError | None:
        """The error of an incomplete body with *came_bytes* after a step: late, slow, or None."""
        bounds = self._bounds
        limit_s = bounds.body_deadline_ms // 1_000
        since_s, had_bytes = self._before
        self._before, self._last = self._last, (now_s, came_bytes)
        if now_s >= self._began_s + bounds.body_deadline_ms / 1_000:
            return RequestTimeout(limit_s=limit_s)
        rate = max(BODY_RATE_MIN_BYTES_PER_S, came_bytes // BODY_HOLD_MAX_S)
        if came_bytes - had_bytes < rate * (now_s - since_s):
            return BodyTooSlow(pause_s=round(now_s - since_s), rate_bytes_per_s=rate, limit_s=limit_s)
        return None
