"""Makes the checks that are due: asks the schedule what comes next, makes the calls, and hands on what came of them.

    claimer -> take -> Schedule -> a task a call -> Callbacks.ask -> settle -> Results of the broker group

Owner of the schedule and of the calls under way: this object, in its event loop. Law: what was taken is settled once, or abandoned at a stop;
until then it counts as held, and what is held is bounded in number and bytes, because claims wait for room.
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

# How often what waits is looked at: for what is too late, and for hosts whose time has come.
LOOK_INTERVAL_S = 0.25
# How often somebody who waits for room looks again; with so many checks held that is nothing.
ROOM_INTERVAL_S = 0.01
# Of all that may be held: how much may wait for quick hosts before claims pause, and how much one round of claims may bring on top of it.
# Together they are less than what one host may hold (a quarter of what is free) while 17 others hold as much as they may.
BACKLOG_PART, CLAIMS_PART = 64, 32
# Before the end of its claim a check must be over, and told.
CLAIM_MARGIN_MS = 500
# Bodies of questions; messages of 4 MiB are rare among those that nobody ended.
HELD_SIZE_MAX_BYTES = 64 * 1024 * 1024

# Passes what came of a check on to its broker group.
Settle = Callable[[Result], None]


class Desk:
    """*held_max*: checks that are here, waiting, under way, or told but not settled."""

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
        """Results of this broker group's checks go to *settle*."""
        self._settle[broker_group] = settle

    @property
    def under_way(self) -> int:
        """Calls that are being made."""
        return self._schedule.under_way

    @property
    def waiting(self) -> int:
        """Checks that wait for their call."""
        return self._schedule.waiting

    def hosts(self) -> Iterator[HostState]:
        """Every host that was asked lately."""
        return self._schedule.hosts(self._mono_ms())

    # Room -------------------------------------------------------------------------------------------------------
    def has_room(self) -> bool:
        """Whether more may be claimed. With half of everything free there is room for what other claims bring meanwhile."""
        if self.held > self._held_max // 2 or self.held_bytes > HELD_SIZE_MAX_BYTES // 2:
            return False
        return self._schedule.quick_backlog(self._mono_ms()) <= self._held_max // BACKLOG_PART

    def claims_max(self) -> int:
        """How many checks all claims together may bring at a time."""
        return self._held_max // CLAIMS_PART

    async def room(self) -> None:
        """Wait until there is room."""
        while not self.has_room():  # noqa: ASYNC110 - time alone changes it, too
            await asyncio.sleep(ROOM_INTERVAL_S)

    def settled(self, result: Result) -> None:
        """*result* is told, or given up: its check is not ours any more."""
        self.held -= 1
        self.held_bytes -= result.size_bytes

    # Checks -----------------------------------------------------------------------------------------------------
    def take(self, check: Check) -> None:
        """*check* was claimed: make it when its turn comes."""
        self.held += 1
        self.held_bytes += len(check.body)
        if why := self._schedule.offer(check, self._mono_ms()):
            self._give_back(check, why)
        self._start()

    def give_back(self, claim: Claim, why: str) -> None:
        """*claim* was handed to us, and nobody can be asked about it."""
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
            # A bug of ours must not keep its place at the desk for ever.
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
        """Begin nothing more."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()

    async def finish(self, grace_s: float) -> None:
        """Give what is under way *grace_s* to end; the rest is left to whoever claims it next."""
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=grace_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
