"""Room for reads: the bytes of reads in flight from brokers to this proxy, which is the credit of
its links (`tern_remoting.credit`).

Without sends, readers get large pages and a window that hides the latency to the broker. Beside
sends, one small page at a time is in flight, and the next one is granted when the sends in flight
have ended. Every page that a broker reads, and every answer that is decoded here, delays a send by
its own duration at each of these steps. So a send waits for about one page, however many readers
there are, and a page waits for one flight of sends, at most HOLD_MAX_S.

     page consumed -> [sends in flight: hold] -> landed, or HOLD_MAX_S -> grant

Owner of all state: one event loop.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from tern_remoting import Link, Room
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES

# At a round trip of 1 ms still 4 GB/s; a page may exceed it.
ALONE = Room(window_bytes=RECEIVE_SIZE_MAX_BYTES, page_bytes=0)
# Some 0.5 ms of work for each side.
BESIDE_SENDS = Room(window_bytes=256 * 1024, page_bytes=256 * 1024)
HOLD = Room(window_bytes=0, page_bytes=BESIDE_SENDS.page_bytes)
# Producers that send one message after the other pause for less.
BESIDE_AFTER_S = 0.5
# A flight on a busy machine or a slow disk; then readers no longer wait. At 5 ms, 1,000 readers
# over TLS got a page and a half for each send, which continued at 184/s instead of 200/s; without
# TLS there is no difference.
HOLD_MAX_S = 0.02


class Sends(Protocol):
    """Lane of one broker group."""

    submitted_at_s: float
    flights: int
    landed: int


class ReadBudget:
    """Room granted to the links.

    *lanes*: of all broker groups, since they share this proxy's event loop.
    """

    def __init__(self, lanes: Callable[[], Iterable[Sends]]) -> None:
        self._lanes = lanes
        self._links: dict[Link, None] = {}
        # Flights that must end, by number; empty while nothing is held.
        self._held: dict[Sends, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> Room:
        """Return the current room. After HOLD all links get new room as soon as there is some."""
        now_s = asyncio.get_running_loop().time()
        if not any(lane.submitted_at_s > now_s - BESIDE_AFTER_S for lane in self._lanes()):
            return ALONE
        if self._timer is None:
            self._hold()
        return BESIDE_SENDS if self._timer is None else HOLD

    def up(self, link: Link) -> None:
        """Register *link*, which has its initial room and gets later grants."""
        self._links = {known: None for known in self._links if not known.closed}
        self._links[link] = None

    def landed(self) -> None:
        """React to the end of a flight of sends."""
        if self._timer is not None and all(lane.landed >= flight for lane, flight in self._held.items()):
            self._release()

    # Internal -------------------------------------------------------------------------------------
    def _hold(self) -> None:
        self._held = {lane: lane.flights for lane in self._lanes() if lane.flights > lane.landed}
        if self._held:
            self._timer = asyncio.get_running_loop().call_later(HOLD_MAX_S, self._release)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held = {}
        for link in list(self._links):
            link.grant(BESIDE_SENDS)
