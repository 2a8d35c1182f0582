"""The results of checks for one broker group: verdicts end transactions, all others are reported.

    submit ... submit -> [waiting] -> END_TRANSACTIONS and REPORT_CHECKS side by side
        -> done, or repeated after a pause until the claim is over

Results travel in batches, one flight at a time. Owner of the waiting results: this object.

Law: a result is repeated until the broker group has it or its claim is over. After the claim the
broker group hands the check out again, and the producer gives the same answer, since it keeps its
decision.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tern_routing import GroupLink
from tern_txn_checker.core.answers import Answer
from tern_txn_checker.core.backoff import pause_ms
from tern_txn_checker.core.schedule import Claim
from tern_wire.errors import LinkBodyMalformed, TernError
from tern_wire.link.checks import CheckReport, EndTransactions, ReportChecks

logger = logging.getLogger(__name__)

# Maximum results of one batch, the size of four claims; an entry of it costs the broker well below
# a millisecond.
BATCH_MAX = 1_024
PAUSE_FIRST_MS, PAUSE_LONGEST_MS = 50, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one check, and the duration of its call.

    *size_bytes*: bytes held for the check.
    """

    claim: Claim
    answer: Answer
    latency_ms: int = 0
    size_bytes: int = 0


# (result, its fate): `ended`, `reported`, or the reason why not.
OnSettled = Callable[[Result, str], None]


class Results:
    """The results of one broker group.

    *on_settled* is called once for each, when it is reported or given up.
    """

    def __init__(
        self, link: GroupLink, *, on_settled: OnSettled, mono_ms: Callable[[], int], rng: random.Random
    ) -> None:
        self._link, self._on_settled, self._mono_ms, self._rng = link, on_settled, mono_ms, rng
        self._waiting: deque[Result] = deque()
        self._task: asyncio.Task[None] | None = None

    def submit(self, result: Result) -> None:
        """Send *result* with the next flight."""
        self._waiting.append(result)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def flush(self) -> None:
        """Wait until no result is waiting or in flight."""
        while self._task is not None:
            await asyncio.shield(self._task)

    def close(self) -> None:
        """Give up the results that are not reported yet."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        failures = 0
        try:
            while self._waiting:
                # Results submitted in one turn of the event loop travel together.
                await asyncio.sleep(0)
                flight = [self._waiting.popleft() for _ in range(min(len(self._waiting), BATCH_MAX))]
                failed = await self._fly(flight)
                failures = failures + 1 if failed else 0
                now_ms = self._mono_ms()
                for result in reversed(failed):
                    if result.claim.until_ms > now_ms:
                        self._waiting.appendleft(result)
                    else:
                        self._on_settled(result, "claim-over")
                if failed:
                    chance = self._rng.random()
                    wait_ms = pause_ms(failures, first_ms=PAUSE_FIRST_MS, longest_ms=PAUSE_LONGEST_MS, chance=chance)
                    await asyncio.sleep(wait_ms / 1_000)
        finally:
            self._task = None

    async def _fly(self, flight: list[Result]) -> list[Result]:
        """Send *flight*; return the results that failed to arrive."""
        ends = [result for result in flight if result.answer.is_verdict]
        reports = [result for result in flight if not result.answer.is_verdict]
        is_told = await asyncio.gather(self._tell(ends, self._end), self._tell(reports, self._report))
        return [*(() if is_told[0] else ends), *(() if is_told[1] else reports)]

    async def _tell(self, results: list[Result], tell: Callable[[list[Result]], Awaitable[list[str]]]) -> bool:
        if not results:
            return True
        try:
            said = await tell(results)
        except TernError as error:
            about = {"broker_group": self._link.broker_group, "results": len(results), "code": error.code}
            logger.info("results of checks could not be reported", extra=about)
            return False
        for result, text in zip(results, said, strict=True):
            self._on_settled(result, text)
        return True

    async def _end(self, results: list[Result]) -> list[str]:
        # With a verdict to send, numpy, which this import needs, is loaded already (claimer.py).
        from tern_txn_checker.core.endings import end_rows, read_endings  # noqa: PLC0415

        rows = end_rows((result.claim, result.answer) for result in results)
        _, raw = await self._link.ask(EndTransactions(rows=len(results)), [rows], is_repeatable=True)
        return read_endings(raw, len(results))

    async def _report(self, results: list[Result]) -> list[str]:
        reports = [
            CheckReport(result.claim.number, result.claim.claim, result.answer.text, result.latency_ms)
            for result in results
        ]
        _, raw = await self._link.ask(ReportChecks(reports=reports), is_repeatable=True)
        if len(raw) != len(results):
            raise LinkBodyMalformed(reason=f"{len(raw)} statuses for {len(results)} reports")
        return ["not-ours" if status else "reported" for status in raw]
