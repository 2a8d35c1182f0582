"""All checkers of a run's history and end, in one call."""

from tests.sim.checkers import (
    attempts,
    checks,
    convergence,
    dead_letters,
    delays,
    duplicates,
    group_order,
    leases,
    log_agreement,
    lost,
    offsets,
    publications,
    reads,
    redelivery,
    repeats,
    seeks,
    send_order,
    stale_reads,
    state_digest,
    transactions,
    unexpected,
)
from tests.sim.history.history import EndState, History, Violation

CHECKERS = (
    *(lost, unexpected, duplicates, send_order, reads, stale_reads, offsets, leases, redelivery, repeats),
    *(attempts, group_order, dead_letters, delays, seeks),
    *(transactions, checks, publications),
    *(log_agreement, state_digest, convergence),
)


def check_all(history: History, end: EndState) -> list[Violation]:
    """What every checker found."""
    return [violation for checker in CHECKERS for violation in checker.check(history, end)]
