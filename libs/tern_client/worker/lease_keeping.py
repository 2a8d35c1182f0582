"""Extends the leases of what a subscription has in hand: a timer around `lease_renewal`."""

import asyncio
import logging
from collections.abc import Callable

from tern_client.transport.clock import now_ms
from tern_client.worker.lease_renewal import LeaseRenewal
from tern_client.worker.source import GroupSource
from tern_wire.errors import TernError
from tern_wire.limits import SETTLE_ENTRIES_MAX

logger = logging.getLogger("tern_client.worker")


class LeaseKeeping:
    """Owner: one subscription. *lost* is called with the handle of a lease that cannot be extended
    any more. One request at a time, for all leases that are due.
    """

    __slots__ = ("_lost", "_renewal", "_source", "_task", "_timer", "_timer_due_ms")

    def __init__(self, source: GroupSource, lost: Callable[[str], None]) -> None:
        self._source, self._lost = source, lost
        self._renewal = LeaseRenewal()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0.0
        self._task: asyncio.Task[None] | None = None

    def add(self, leases: list[tuple[str, int]]) -> None:
        """Keep each lease by its handle, which lasts so many ms from now."""
        at_ms = now_ms()
        for handle, left_ms in leases:
            self._renewal.add(handle, left_ms, at_ms)
        if self._task is None:
            self._set_timer()

    def remove(self, handle: str) -> None:
        """Let a lease go."""
        self._renewal.remove(handle)

    def lasts(self, handle: str) -> bool:
        """Whether the lease has not ended by this machine's clock."""
        return self._renewal.lasts(handle, now_ms())

    async def close(self) -> None:
        """Extend nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _set_timer(self) -> None:
        due_ms = self._renewal.next_due_ms
        if due_ms is None or (self._timer is not None and self._timer_due_ms <= due_ms):
            return  # the timer finds out by itself when its lease is gone
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = due_ms
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(due_ms - now_ms(), 0) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._extend())

    async def _extend(self) -> None:
        try:
            began_ms = now_ms()
            if due := self._renewal.due(began_ms, SETTLE_ENTRIES_MAX):
                await self._extend_now(due, began_ms)
        finally:
            self._task = None
        self._set_timer()

    async def _extend_now(self, due: list[tuple[str, int]], began_ms: float) -> None:
        try:
            errors = await self._source.extend_each(due)
        except TernError as error:
            logger.warning("%d leases could not be extended: %s", len(due), error)
            errors = {handle: error for handle, _ in due}
        for handle, _ in due:
            refusal = errors.get(handle)
            if refusal is None:
                self._renewal.extended(handle, began_ms)
            elif refusal.retryable:
                self._renewal.failed(handle, now_ms())
            else:
                self._renewal.remove(handle)
                self._lost(handle)
