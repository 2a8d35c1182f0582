"""How much of what consumers read may be on its way to this proxy from its brokers: the credit of its links (`tern_remoting.credit`).

Alone, readers get large pages and a window that hides the way to the broker. Beside sends there is one small page at a time, and the next one
is granted when the sends that are on their way have landed: every page that a broker reads, and every answer that is decoded here, delays
a send by its own length at each of the turns that it takes. So a send waits for about one page, however many readers there are, and a page
for one flight of sends, HOLD_MAX_S at most.

     page taken up -> [sends on their way: hold] -> landed, or HOLD_MAX_S -> grant

Owner of all state: one event loop.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from tern_remoting import Link, Room
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES

# With a round trip of 1 ms still 4 GB/s; a page may go over it.
ALONE = Room(window_bytes=RECEIVE_SIZE_MAX_BYTES, page_bytes=0)
# Some 0.5 ms of work for each side.
BESIDE_SENDS = Room(window_bytes=256 * 1024, page_bytes=256 * 1024)
HOLD = Room(window_bytes=0, page_bytes=BESIDE_SENDS.page_bytes)
# Producers that send one message after the other pause for less.
BESIDE_AFTER_S = 0.5
# A flight on a busy machine or a slow disk; then readers wait no longer. With 5 ms, 1,000 readers over TLS had a page and a half for each send,
# which went on at 184/s instead of 200/s; in the clear nothing differs.
HOLD_MAX_S = 0.02


class Sends(Protocol):
    """The lane of one broker group."""

    submitted_at_s: float
    flights: int
    landed: int


class ReadRoom:
    """*lanes*: of all broker groups, since they share this proxy's event loop."""

    def __init__(self, lanes: Callable[[], Iterable[Sends]]) -> None:
        self._lanes = lanes
        self._links: dict[Link, None] = {}
        # The flights that are waited for, by number; none while nothing is held.
        self._held: dict[Sends, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __call__(self) -> Room:
        """As of now. After HOLD all links are told as soon as there is room."""
        now_s = asyncio.get_running_loop().time()
        if not any(lane.submitted_at_s > now_s - BESIDE_AFTER_S for lane in self._lanes()):
            return ALONE
        if self._timer is None:
            self._hold()
        return BESIDE_SENDS if self._timer is None else HOLD

    def up(self, link: Link) -> None:
        """*link* has been told of its room, and is told of more."""
        self._links = {known: None for known in self._links if not known.closed}
        self._links[link] = None

    def landed(self) -> None:
        """A flight of sends has landed."""
        if self._timer is not None and all(lane.landed >= flight for lane, flight in self._held.items()):
            self._release()

    # Below -----------------------------------------------------------------------------------------------------
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
