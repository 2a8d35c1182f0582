"""Checks that nobody waited for: kept for their producer group, in order, as long as they could be answered, and no more than fit."""

from tern_proxy.core.transactions.checks import Check
from tern_proxy.core.transactions.undelivered_checks import ANSWER_MIN_MS, KEPT_SIZE_MAX_BYTES, UndeliveredChecks

NOW_MS = 1_000_000


def check(
    number: int, producer_group: str = "shop", *, until_ms: int = NOW_MS + 10_000, size_bytes: int = 100
) -> Check:
    """One check with a record of so many bytes."""
    return Check(
        broker_group="broker-a",
        number=number,
        attempt=1,
        producer_group=producer_group,
        producer_group_id=1,
        begun_ms=NOW_MS,
        claimed_until_ms=until_ms,
        messages=[("orders", size_bytes)],
        records=bytes(size_bytes),
    )


def test_each_producer_group_gets_its_own_the_oldest_first() -> None:
    """As many as are asked for, each once."""
    kept = UndeliveredChecks()
    kept.keep([check(1), check(2, "till"), check(3), check(4)])
    assert [one.number for one in kept.take("shop", 2, NOW_MS)] == [1, 3]
    assert [one.number for one in kept.take("shop", 2, NOW_MS)] == [4]
    assert kept.take("shop", 2, NOW_MS) == []
    assert [one.number for one in kept.take("till", 9, NOW_MS)] == [2]
    assert len(kept) == 0


def test_what_is_late_is_forgotten_and_makes_room() -> None:
    """Who gets one has time to answer it; whatever is dropped or taken counts no longer."""
    kept = UndeliveredChecks()
    half = KEPT_SIZE_MAX_BYTES // 2
    kept.keep([check(1, until_ms=NOW_MS + ANSWER_MIN_MS - 1, size_bytes=half), check(2, size_bytes=half), check(3)])
    assert len(kept) == 2, "the third did not fit"
    assert [one.number for one in kept.take("shop", 9, NOW_MS)] == [2]
    kept.keep([check(number, size_bytes=half) for number in (4, 5, 6)])
    assert [one.number for one in kept.take("shop", 9, NOW_MS + 10_000 - ANSWER_MIN_MS)] == [4, 5]
    kept.keep([check(7)])
    kept.drop_late(NOW_MS + 10_000)
    assert len(kept) == 0
