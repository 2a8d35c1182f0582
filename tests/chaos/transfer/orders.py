"""The transfers of a run: who pays whom how much at bank A and bank B, and when producers crash. Pure: a seed decides all of it."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

ACCOUNTS = 1_000
# So that some accounts run dry towards the end, and their transfers are refused.
START_CENTS = 200_000
AMOUNT_MAX_CENTS = 20_000
# One in so many asks for more than anybody ever has: what rolls back is there from the beginning.
_HOPELESS = 32
# A producer crashes about once in so many transfers, and at least once.
TRANSFERS_PER_CRASH = 1_200


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Transfer number *transfer*: *amount_cents* from an account of bank A to one of bank B."""

    transfer: int
    debtor: int
    creditor: int
    amount_cents: int


class CrashStage(StrEnum):
    """Where in a transfer a producer is killed: its half message is stored; bank A has debited, too; the commit is on its way."""

    BEGUN = "begun"
    DEBITED = "debited"
    COMMITTING = "committing"


_STAGES = (CrashStage.COMMITTING, CrashStage.DEBITED, CrashStage.BEGUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """SIGKILL when a producer has come to *stage* of its transfer number *at* (1-based) of this life."""

    at: int
    stage: CrashStage


def plan_orders(seed: int, count: int) -> Mapping[int, Order]:
    """*count* transfers by number, the same for the same *seed*."""
    rng = random.Random(seed)
    orders: dict[int, Order] = {}
    for transfer in range(1, count + 1):
        is_hopeless = rng.randrange(_HOPELESS) == 0
        orders[transfer] = Order(
            transfer=transfer,
            debtor=rng.randrange(ACCOUNTS),
            creditor=rng.randrange(ACCOUNTS),
            amount_cents=rng.randint(1, AMOUNT_MAX_CENTS) + is_hopeless * ACCOUNTS * START_CENTS,
        )
    return orders


def share_of(orders: Mapping[int, Order], share: int, shares: int) -> list[Order]:
    """The orders of producer *share* (0-based) of *shares*."""
    return [order for order in orders.values() if order.transfer % shares == share]


def crashes_of(transfers: int) -> int:
    """How often a producer with so many transfers crashes in all."""
    return max(1, round(transfers / TRANSFERS_PER_CRASH))


def plan_crash(rng: random.Random, left: int, crashes_left: int) -> Crash | None:
    """The crash of a producer's next life, with *left* transfers to do; None when it has none ahead."""
    if crashes_left < 1 or left < 1:
        return None
    stretch = max(left // crashes_left, 1)
    at = rng.randint(max(stretch // 4, 1), max(stretch * 3 // 4, 1))
    # Every stage comes in turn, the hardest first: what bank A has debited, and nobody has committed, only a check can tell.
    return Crash(at=at, stage=_STAGES[crashes_left % len(_STAGES)])
