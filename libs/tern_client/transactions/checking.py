"""How checks are answered: how many are requested, the effect of an answer, the pause after a
failure. Pure.

    ask (long poll) --> take --> checker --commit, rollback--> sent to the proxy
                                    |-----unknown, or it raised--> nothing is sent: the check
                                                                   comes again, here or elsewhere

The async and the blocking TransactionProducer are two shells over this.
"""

import logging
from collections.abc import Generator, Iterable
from dataclasses import dataclass

from tern_client.transactions.models import Check, Decision
from tern_client.transactions.transaction_flow import end
from tern_client.transactions.transactions import checks_request, read_checks
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_wire.errors import TernError

# Checks that are requested and answered at a time. Each may hold a connection to a database.
CHECKS_IN_HAND_MAX = 16
FIRST_PAUSE_MS, PAUSE_MAX_MS = 250, 10_000

log = logging.getLogger("tern_client.checks")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCounts:
    """Counts of answered checks, by result. `failed`: the checker raised, or its answer could not
    be sent; such a check comes again.

    Example:

        import threading

        from tern_client import BlockingTransactionProducer, Check, CheckCounts, HalfMessage

        checked = threading.Event()


        def checker(check: Check) -> str:
            checked.set()
            return "commit"


        endpoint = "http://127.0.0.1:8080"
        with BlockingTransactionProducer(endpoint, "shop", checker=checker) as producer:
            # The local transaction returns no decision, so the checker decides.
            message = HalfMessage(topic="orders", body=b"paid")
            producer.send(message, lambda begun: None, check_after="100ms")
            checked.wait(timeout=30)
        counts: CheckCounts = producer.checks
        print(counts.committed, counts.failed)  # -> 1 0
    """

    committed: int = 0
    rolled_back: int = 0
    unknown: int = 0
    failed: int = 0


class CheckPolls:
    """The checks that are being answered, and the failures of polls. Owner: one producer; the
    polling thread of a blocking one.
    """

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
        """How many checks may be requested now."""
        return self._in_hand_max - len(self._in_hand)

    def take(self, checks: Iterable[Check]) -> list[Check]:
        """Note a poll that succeeded; return the *checks* that are not in hand. A check that takes
        long is delivered again.
        """
        self._failures = 0
        taken: list[Check] = []
        for check in checks:
            if check.transaction_id not in self._in_hand:
                self._in_hand.add(check.transaction_id)
                taken.append(check)
        return taken

    def answered(self, check: Check, decision: Decision | None) -> None:
        """Remove *check*. *decision* is None when it failed."""
        self._in_hand.discard(check.transaction_id)
        counts = self.counts
        self.counts = CheckCounts(
            committed=counts.committed + (decision is Decision.COMMIT),
            rolled_back=counts.rolled_back + (decision is Decision.ROLLBACK),
            unknown=counts.unknown + (decision is Decision.UNKNOWN),
            failed=counts.failed + (decision is None),
        )

    def pause_ms(self, chance: float) -> float:
        """Note a poll that failed; return the pause before the next one. *chance* in [0, 1) spreads
        clients that failed together.
        """
        self._failures += 1
        return float(min(FIRST_PAUSE_MS * 2 ** min(self._failures - 1, 16), PAUSE_MAX_MS) * (0.5 + chance / 2))


def ask(
    course: Course, producer_group: str, max_checks: int, wait_ms: int, began_ms: float
) -> Generator[Step, Outcome, list[Check]]:
    """Return the steps of one long poll."""
    response = yield from call(course, checks_request(producer_group, max_checks, wait_ms), began_ms)
    return read_checks(response)


def tell(
    course: Course, check: Check, decision: Decision, began_ms: float
) -> Generator[Step, Outcome, Decision | None]:
    """Return the steps of an answer. Their result is *decision*, or None when it could not be sent,
    or the transaction has ended the other way.
    """
    if decision is not Decision.UNKNOWN:
        try:
            yield from end(course, check.transaction_id, decision, began_ms)
        except TernError as error:
            log.warning(
                "The proxy did not accept the answer %s to the check of %s: %s", decision, check.transaction_id, error
            )
            return None
    return decision


def checker_failed(check: Check, error: Exception) -> None:
    """Log the *error* of a checker, which runs in the background and has no caller."""
    log.warning("The checker failed for %s, attempt %d", check.transaction_id, check.attempt, exc_info=error)
