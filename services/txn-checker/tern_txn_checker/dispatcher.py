"""Makes the checks that are due: takes the next from the schedule, calls, and passes results on.

    claimer -> take -> Schedule -> a task for each call -> Callbacks.ask -> settle
        -> Results of the broker group

Owner of the schedule and of the calls under way: this object, in its event loop.

Law: each check taken is settled once, or abandoned at a stop. Until then it counts as held. The
held checks are bounded in number and bytes, because claims wait for room.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator

from tern_txn_checker.callback import Ask
from tern_txn_checker.core.answers import Answer
from tern_txn_checker.core.schedule import Check, Claim, HostState, Schedule, Started
from tern_txn_checker.results import Result

logger = logging.getLogger(__name__)

# Interval of the search for waiting checks that are late and for hosts that may be probed.
LOOK_INTERVAL_S = 0.25
# Interval at which a claimer that waits for room looks again; its cost is small beside that of so
# many held checks.
ROOM_INTERVAL_S = 0.01
# Parts of all that may be held: the backlog of quick hosts at which claims pause, and the maximum
# that one round of claims adds to it. Together they are less than the share of one host (a quarter
# of what is free) while 17 other hosts hold their full shares.
BACKLOG_PART, CLAIMS_PART = 64, 32
# Time between the end of a check and the end of its claim, for the report.
CLAIM_MARGIN_MS = 500
# Bound of all callback bodies; messages of 4 MiB are rare in open transactions.
HELD_SIZE_MAX_BYTES = 64 * 1024 * 1024

# Passes the result of a check on to its broker group.
Settle = Callable[[Result], None]


class Dispatcher:
    """The calls of this checker.

    *held_max*: bound of the checks that wait, are under way, or are reported and not settled yet.
    """

    def __init__(
        self, schedule: Schedule, ask: Ask, *, held_max: int, mono_ms: Callable[[], int], rng: random.Random
    ) -> None:
        self._schedule, self._ask, self._mono_ms, self._rng = schedule, ask, mono_ms, rng
        self._held_max = held_max
        self.held = self.held_bytes = 0
        self._calls: dict[asyncio.Task[None], Started] = {}
        self._settle: dict[str, Settle] = {}
        self._look: asyncio.TimerHandle | None = None
        self._is_closed = False

    def open_for(self, broker_group: str, settle: Settle) -> None:
        """Register *settle* for the results of this broker group's checks."""
        self._settle[broker_group] = settle

    @property
    def under_way(self) -> int:
        """The number of calls under way."""
        return self._schedule.under_way

    @property
    def waiting(self) -> int:
        """The number of checks that wait for their call."""
        return self._schedule.waiting

    def hosts(self) -> Iterator[HostState]:
        """Yield the state of every host that was called recently."""
        return self._schedule.hosts(self._mono_ms())

    # Room -----------------------------------------------------------------------------------------
    def has_room(self) -> bool:
        """Whether more checks may be claimed.

        The threshold is half of each bound, which leaves room for claims that are still on their
        way.
        """
        if self.held > self._held_max // 2 or self.held_bytes > HELD_SIZE_MAX_BYTES // 2:
            return False
        return self._schedule.quick_backlog(self._mono_ms()) <= self._held_max // BACKLOG_PART

    def claims_max(self) -> int:
        """The maximum number of checks that all claims together may bring at a time."""
        return self._held_max // CLAIMS_PART

    async def room(self) -> None:
        """Wait until there is room."""
        while not self.has_room():  # noqa: ASYNC110 - time alone changes it, too
            await asyncio.sleep(ROOM_INTERVAL_S)

    def settled(self, result: Result) -> None:
        """Release the check of *result*, which is reported or given up."""
        self.held -= 1
        self.held_bytes -= result.size_bytes

    # Checks ---------------------------------------------------------------------------------------
    def take(self, check: Check) -> None:
        """Make the claimed *check* when its turn comes."""
        self.held += 1
        self.held_bytes += len(check.body)
        if why := self._schedule.offer(check, self._mono_ms()):
            self._give_back(check, why)
        self._start()

    def give_back(self, claim: Claim, why: str) -> None:
        """Return a claim for which no call can be made."""
        self.held += 1
        self._settle[claim.broker_group](Result(claim=claim, answer=Answer(why)))

    def _give_back(self, check: Check, why: str) -> None:
        self._pass_on(check, Answer(why), 0)

    def _pass_on(self, check: Check, answer: Answer, latency_ms: int) -> None:
        result = Result(claim=check.claim, answer=answer, latency_ms=latency_ms, size_bytes=len(check.body))
        self._settle[check.claim.broker_group](result)

    def _start(self) -> None:
        while not self._is_closed and (found := self._schedule.start(self._mono_ms())) is not None:
            if isinstance(found, Started):
                self._calls[asyncio.create_task(self._call(found))] = found
            else:
                self._give_back(*found)
        if self._look is None and self.held and not self._is_closed:
            self._look = asyncio.get_running_loop().call_later(LOOK_INTERVAL_S, self._look_around)

    def _look_around(self) -> None:
        self._look = None
        for check, why in self._schedule.look(self._mono_ms()):
            self._give_back(check, why)
        self._start()

    async def _call(self, started: Started) -> None:
        check, began_ms = started.check, self._mono_ms()
        task = asyncio.current_task()
        assert task is not None
        try:
            left_ms = check.claim.until_ms - CLAIM_MARGIN_MS - began_ms
            answer = await self._ask(check, max(1, min(check.timeout_ms, left_ms)))
        except asyncio.CancelledError:
            self._schedule.abandon(started)
            raise
        except Exception:
            # A bug in the checker must not occupy a place for ever.
            logger.exception("a call failed unexpectedly", extra={"host": check.url.host})
            answer = Answer("checker-failed")
        finally:
            del self._calls[task]
        now_ms = self._mono_ms()
        self._pass_on(check, answer, now_ms - began_ms)
        chance = self._rng.random()
        for lost, why in self._schedule.end(
            started, is_alive=answer.is_alive, text=answer.text, now_ms=now_ms, chance=chance
        ):
            self._give_back(lost, why)
        self._start()

    def close(self) -> None:
        """Start no more calls."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()

    async def finish(self, grace_s: float) -> None:
        """Wait *grace_s* for the calls under way, then cancel the rest.

        Other checkers claim those checks next.
        """
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
