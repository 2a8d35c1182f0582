"""Parked polls for checks: one claim at each broker group for all polls of a producer group, as in
parking.py.

    poll: CLAIM_CHECKS -> nothing -> park ........................... checks -> answer
    one CLAIM_CHECKS for all parked polls waits at the broker -> the oldest polls get the checks

Law: claimed checks are delivered. Checks that arrive when no poll waits (another broker group has
served it, or its client is gone) are kept for the next poll of their producer group as long as it
has time to answer; then the broker group issues them again. Owner of all state: one event loop.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from tern_proxy.core.transactions.checks import Check, claim_of, read_checks
from tern_proxy.core.transactions.undelivered_checks import UndeliveredChecks
from tern_proxy.waiting.interrupts import Interrupt
from tern_proxy.waiting.parking import ParkedPoll, ParkedPolls
from tern_remoting import problem_of
from tern_routing import GroupLink
from tern_wire.errors import ProducerGroupNotFound, TernError
from tern_wire.limits import APPEND_DEADLINE_MS, CHECKS_CLAIMED_MAX

# Longer polls are repeated: this bounds how long a broker holds a claim without a waiting poll.
WAIT_AT_BROKER_MAX_MS = 10_000
# Pause between two claims of which the first returned nothing at once: a broker in trouble must not
# be asked in a loop.
PAUSE_S = 0.05


class CheckPoll:
    """One poll. It may wait at several broker groups; the first with checks serves it."""

    __slots__ = ("checks", "error", "parked", "poll_queues", "wanted")

    def __init__(self, parked: ParkedPoll, wanted: int) -> None:
        self.parked, self.wanted = parked, wanted
        self.checks: list[Check] = []
        self.error: TernError | None = None
        self.poll_queues: set[CheckPollQueue] = set()

    def serve(self, checks: list[Check]) -> None:
        """End the wait with *checks*."""
        self.checks = checks
        self.parked.end()

    def refuse(self, poll_queue: "CheckPollQueue", error: TernError) -> None:
        """Record that *poll_queue* will never serve the poll.

        After the last one, the wait ends with its *error*.
        """
        self.poll_queues.discard(poll_queue)
        if not self.poll_queues:
            self.error = error
            self.parked.end()


class CheckPollQueue:
    """Polls of one producer group that wait for one broker group."""

    __slots__ = ("_claim", "_keep", "_on_idle", "_polls", "_task")

    def __init__(
        self, claim: "Claim", keep: Callable[[list[Check]], None], on_idle: Callable[["CheckPollQueue"], None]
    ) -> None:
        self._claim, self._keep, self._on_idle = claim, keep, on_idle
        # Oldest first.
        self._polls: OrderedDict[CheckPoll, None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def park(self, poll: CheckPoll) -> None:
        """Add a poll."""
        self._polls[poll] = None
        poll.poll_queues.add(self)
        self._ask()

    def leave(self, poll: CheckPoll) -> None:
        """Remove *poll*."""
        self._polls.pop(poll, None)
        self._rest()

    def close(self) -> None:
        """Cancel the claim in flight."""
        if self._task is not None:
            self._task.cancel()

    def _ask(self) -> None:
        if self._polls and self._task is None:
            self._task = asyncio.create_task(self._ask_once())
            self._task.add_done_callback(self._asked)

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            if isinstance(error := task.exception(), Exception):
                # A bug: no claim will serve the waiting polls, so they fail now.
                self._refuse_all(problem_of(error))
            self._ask()
        self._rest()

    def _refuse_all(self, error: TernError) -> None:
        polls, self._polls = list(self._polls), OrderedDict()
        for poll in polls:
            poll.refuse(self, error)

    def _rest(self) -> None:
        if not self._polls and self._task is None:
            self._on_idle(self)

    async def _ask_once(self) -> None:
        if not self._polls:
            return
        began = asyncio.get_running_loop().time()
        left_ms = int((max(poll.parked.until for poll in self._polls) - began) * 1_000)
        wanted = sum(poll.wanted for poll in self._polls)
        try:
            checks = await self._claim(min(wanted, CHECKS_CLAIMED_MAX), min(WAIT_AT_BROKER_MAX_MS, max(1, left_ms)))
        except TernError as error:
            if error.retryable:
                # An election or a busy broker: polls continue to wait, each until its own deadline.
                await asyncio.sleep(PAUSE_S)
                return
            self._refuse_all(error)
            return
        if not checks and asyncio.get_running_loop().time() < began + PAUSE_S:
            await asyncio.sleep(PAUSE_S)
        while checks and self._polls:
            poll, _ = self._polls.popitem(last=False)
            if not poll.parked.future.done():
                poll.serve(checks[: poll.wanted])
                del checks[: poll.wanted]
        if checks:
            self._keep(checks)


class Claim:
    """Claim of checks of one producer group at one broker group."""

    __slots__ = ("_checker", "_producer_group", "link")

    def __init__(self, link: GroupLink, producer_group: str, checker: str) -> None:
        self.link = link
        self._producer_group, self._checker = producer_group, checker

    async def __call__(self, count: int, wait_ms: int) -> list[Check]:
        """Return at most *count* checks, or none within *wait_ms*.

        A claim whose answer is lost expires soon, so it is repeated.
        """
        found, raw = await self.link.ask(
            claim_of(self._producer_group, self._checker, count, wait_ms),
            is_repeatable=True,
            deadline_ms=APPEND_DEADLINE_MS + wait_ms,
            is_prompt=not wait_ms,
        )
        return read_checks(found.checks, raw, self.link.broker_group)


class CheckPolls:
    """Polls for checks of this proxy, and checks kept for a later poll.

    *now_ms*: wall time, as at the brokers.
    """

    def __init__(self, parking: ParkedPolls, checker: str, now_ms: Callable[[], int]) -> None:
        self._parking, self._checker, self._now_ms = parking, checker, now_ms
        self._poll_queues: dict[tuple[str, str], CheckPollQueue] = {}
        self.kept = UndeliveredChecks()

    async def receive(
        self, links: list[GroupLink], producer_group: str, wanted: int, until: float, gone: Interrupt
    ) -> list[Check]:
        """Return at most *wanted* checks; none at *until* (loop time), at *gone*, and when the
        proxy stops.

        Raise ProducerGroupNotFound when no broker group has it, and the error of a broker group
        when all fail and the poll does not wait.
        """
        found = self.kept.take(producer_group, wanted, self._now_ms())
        claims = [Claim(link, producer_group, self._checker) for link in links]
        if not found:
            found, claims = await self._claim_now(
                claims, wanted, is_last_word=until <= asyncio.get_running_loop().time()
            )
        if not found and not gone.done() and asyncio.get_running_loop().time() < until:
            found = await self._wait(claims, producer_group, wanted, until, gone)
        if gone.done():
            self._keep(found)
            return []
        return found

    async def _claim_now(
        self, claims: list[Claim], wanted: int, *, is_last_word: bool
    ) -> tuple[list[Check], list[Claim]]:
        """Claim from the first broker group that has checks.

        Return them, and the claims of broker groups that have, or may have, the producer group.
        """
        trouble: TernError | None = None
        is_served = False
        knowing: list[Claim] = []
        for claim in claims:
            try:
                found = await claim(wanted, 0)
            except ProducerGroupNotFound as error:
                trouble = trouble or error
                continue
            except TernError as error:
                if not error.retryable:
                    raise
                trouble = error if trouble is None or isinstance(trouble, ProducerGroupNotFound) else trouble
                knowing.append(claim)
                continue
            is_served = True
            knowing.append(claim)
            if found:
                return found, knowing
        if trouble is not None and not is_served and (is_last_word or not knowing):
            raise trouble
        return [], knowing

    async def _wait(
        self, claims: list[Claim], producer_group: str, wanted: int, until: float, gone: Interrupt
    ) -> list[Check]:
        poll = CheckPoll(self._parking.enter(until, gone), wanted)
        timer = asyncio.get_running_loop().call_at(until, poll.parked.end)
        poll_queues = [self._poll_queue(claim, producer_group) for claim in claims]
        for poll_queue in poll_queues:
            poll_queue.park(poll)
        try:
            await poll.parked.future
        except asyncio.CancelledError:
            self._keep(poll.checks)
            raise
        finally:
            timer.cancel()
            self._parking.leave(poll.parked)
            for poll_queue in poll_queues:
                poll_queue.leave(poll)
        if poll.error is not None:
            raise poll.error
        return poll.checks

    def _poll_queue(self, claim: Claim, producer_group: str) -> CheckPollQueue:
        key = (claim.link.broker_group, producer_group)
        poll_queue = self._poll_queues.get(key)
        if poll_queue is None:

            def forget(idle: CheckPollQueue) -> None:
                if self._poll_queues.get(key) is idle:
                    del self._poll_queues[key]

            poll_queue = self._poll_queues[key] = CheckPollQueue(claim, self._keep, forget)
        return poll_queue

    def _keep(self, checks: list[Check]) -> None:
        """Keep *checks* for the next poll of their producer group."""
        self.kept.keep(checks)
        if checks:
            left_ms = max(check.claimed_until_ms for check in checks) - self._now_ms()
            asyncio.get_running_loop().call_later(max(0, left_ms) / 1_000, lambda: self.kept.drop_late(self._now_ms()))

    def close(self) -> None:
        """Cancel all claims in flight."""
        for poll_queue in list(self._poll_queues.values()):
            poll_queue.close()
