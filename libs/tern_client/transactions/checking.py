"""How checks are answered: how many are asked for, what an answer does, how long to wait after a failure. Pure.

      ask (long poll) --> take --> the checker decides --commit, rollback--> told to the proxy
                                        |------unknown, or it raised--> nothing is told: the check comes again, here or at another

The async and the blocking TransactionProducer are two shells over this.
"""

import logging
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from tern_client.transactions.course import end
from tern_client.transactions.models import Check, Decision
from tern_client.transactions.transactions import checks_request, read_checks
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_wire.errors import TernError

# Checks that are asked for at a time, and answered at a time: each may hold a connection to a database.
CHECKS_IN_HAND_MAX = 16
FIRST_PAUSE_MS, PAUSE_MAX_MS = 250, 10_000

log = logging.getLogger("tern_client.checks")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounts:
    """What became of checks. `failed`: the checker raised, or its answer could not be told; those are asked again."""

    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    failed: int = 0


class CheckDesk:
    """The checks that are being answered, and how asking goes. Owner: one producer; a blocking one's asking thread alone."""

    __slots__ = ("_failures", "_in_hand", "_in_hand_max", "counts")

    def __init__(self, in_hand_max: int = CHECKS_IN_HAND_MAX) -> None:
        if in_hand_max < 1:
            raise ValueError("checks_in_hand_max is at least 1")
        self._in_hand: set[str] = set()
        self._in_hand_max = in_hand_max
        self._failures = 0
        self.counts = CheckCounts()

    @property
    def room(self) -> int:
        """How many checks may be asked for now."""
        return self._in_hand_max - len(self._in_hand)

    def take(self, checks: Iterable[Check]) -> list[Check]:
        """Asking has worked; those of *checks* that are not in hand already: one that takes long is handed out again."""
        self._failures = 0
        taken: list[Check] = []
        for check in checks:
            if check.transaction_id not in self._in_hand:
                self._in_hand.add(check.transaction_id)
                taken.append(check)
        return taken

    def answered(self, check: Check, decision: Decision | None) -> None:
        """*check* is not in hand any more; None when it failed."""
        self._in_hand.discard(check.transaction_id)
        counts = self.counts
        self.counts = CheckCounts(
            committed=counts.committed + (decision is Decision.COMMIT),
            rolled_back=counts.rolled_back + (decision is Decision.ROLLBACK),
            unknown=counts.unknown + (decision is Decision.UNKNOWN),
            failed=counts.failed + (decision is None),
        )

    def pause_ms(self, chance: float) -> float:
        """Asking has failed: how long to wait before the next time. *chance* in [0, 1) spreads those that failed together."""
        self._failures += 1
        return float(min(FIRST_PAUSE_MS * 2 ** min(self._failures - 1, 16), PAUSE_MAX_MS) * (0.5 + chance / 2))


def ask(
    course: Course, producer_group: str, max_checks: int, wait_ms: int, began_ms: float
) -> Generator[Step, Outcome, list[Check]]:
    """Steps of one long poll."""
    response = yield from call(course, checks_request(producer_group, max_checks, wait_ms), began_ms)
    return read_checks(response)


def tell(
    course: Course, check: Check, decision: Decision, began_ms: float
) -> Generator[Step, Outcome, Decision | None]:
    """Steps of an answer: *decision*, or None when it could not be told, or holds no more because the transaction has ended otherwise."""
    if decision is not Decision.UNKNOWN:
        try:
            yield from end(course, check.transaction_id, decision, began_ms)
        except TernError as error:
            log.warning("The answer %s to the check of %s was not taken: %s", decision, check.transaction_id, error)
            return None
    return decision


def checker_failed(check: Check, error: Exception) -> None:
    """Say so: nobody waits for what a checker raises in the background."""
    log.warning("The checker failed for %s, attempt %d", check.transaction_id, check.attempt, exc_info=error)
