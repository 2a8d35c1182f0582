"""Retry delays after failed attempts: a named policy of a group, and the table that follows from
it.

In the link, the log and saved states:

    {policy: table}                          RocketMQ's: 10 s, 30 s, 1 m ... 2 h
    {policy: custom, delays_ms: [...]}       the last one holds for all further attempts
    {policy: exponential, initial_ms, multiplier_permille, max_ms}

All numbers are whole, so that every node computes the same table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tern_wire.errors import InvalidField
from tern_wire.limits import (
    ATTEMPTS_MAX,
    RETRY_DELAY_MIN_MS,
    RETRY_DELAYS_KEPT_MAX,
    RETRY_DELAYS_MS,
    TIMER_DELAY_MAX_MS,
)
from tern_wire.settings.topic_settings import is_whole

TABLE, CUSTOM, EXPONENTIAL = "table", "custom", "exponential"
POLICIES = (TABLE, CUSTOM, EXPONENTIAL)
MULTIPLIER_MAX_PERMILLE = 100_000
# Steps of less than a tenth would make a table of thousands; equal delays are a separate case.
MULTIPLIER_MIN_PERMILLE, MULTIPLIER_NONE_PERMILLE = 1_100, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Retry policy of one group.

    `delays_ms` belongs to `custom`; the other numbers belong to `exponential`.
    """

    policy: str = TABLE
    delays_ms: tuple[int, ...] = ()
    initial_ms: int = 0
    multiplier_permille: int = 0
    max_ms: int = 0

    def table(self, max_attempts: int) -> tuple[int, ...]:
        """Return the delays after attempt 1, 2 ... in ms, at most *max_attempts* of them.

        The last one holds for all further attempts.
        """
        if self.policy == TABLE:
            return RETRY_DELAYS_MS
        if self.policy == CUSTOM:
            return self.delays_ms
        delays = [self.initial_ms]
        while len(delays) < max_attempts and delays[-1] < self.max_ms:
            grown = min(self.max_ms, delays[-1] * self.multiplier_permille // 1_000)
            if grown == delays[-1]:
                break
            delays.append(grown)
        return tuple(delays)

    def packed(self) -> dict[str, Any]:
        """Return the policy as a map."""
        if self.policy == CUSTOM:
            return {"policy": CUSTOM, "delays_ms": list(self.delays_ms)}
        if self.policy == EXPONENTIAL:
            numbers = {"initial_ms": self.initial_ms, "multiplier_permille": self.multiplier_permille}
            return {"policy": EXPONENTIAL, **numbers, "max_ms": self.max_ms}
        return {"policy": TABLE}


def read_retry_policy(value: Any) -> RetryPolicy:
    """Parse the policy in the map *value*; raise InvalidField with a pointer below /retry."""
    if not isinstance(value, Mapping) or value.get("policy") not in POLICIES:
        raise InvalidField(reason=f"A retry policy is one of {', '.join(POLICIES)}", pointer="/retry/policy")
    if value["policy"] == TABLE:
        return RetryPolicy()
    if value["policy"] == CUSTOM:
        delays = value.get("delays_ms")
        if not isinstance(delays, list | tuple) or not 1 <= len(delays) <= RETRY_DELAYS_KEPT_MAX:
            raise InvalidField(
                reason=f"A custom policy has 1 to {RETRY_DELAYS_KEPT_MAX} delays", pointer="/retry/delays"
            )
        for number, delay_ms in enumerate(delays):
            if not is_whole(delay_ms, 0, TIMER_DELAY_MAX_MS):
                raise InvalidField(reason="A delay is 0 s to 40 d", pointer=f"/retry/delays/{number}")
        return RetryPolicy(policy=CUSTOM, delays_ms=tuple(delays))
    initial_ms, permille, max_ms = (value.get(name) for name in ("initial_ms", "multiplier_permille", "max_ms"))
    if not is_whole(initial_ms, RETRY_DELAY_MIN_MS, TIMER_DELAY_MAX_MS):
        raise InvalidField(reason=f"'initial' is {RETRY_DELAY_MIN_MS} ms to 40 d", pointer="/retry/initial")
    if permille != MULTIPLIER_NONE_PERMILLE and not is_whole(
        permille, MULTIPLIER_MIN_PERMILLE, MULTIPLIER_MAX_PERMILLE
    ):
        raise InvalidField(reason="'multiplier' is 1, or 1.1 to 100", pointer="/retry/multiplier")
    if not is_whole(permille, 0, MULTIPLIER_MAX_PERMILLE):
        raise InvalidField(reason="'multiplier' is a number", pointer="/retry/multiplier")
    if not is_whole(max_ms, RETRY_DELAY_MIN_MS, TIMER_DELAY_MAX_MS) or max_ms < initial_ms:
        raise InvalidField(reason="'max' is 'initial' to 40 d", pointer="/retry/max")
    return RetryPolicy(policy=EXPONENTIAL, initial_ms=initial_ms, multiplier_permille=permille, max_ms=max_ms)


assert ATTEMPTS_MAX >= RETRY_DELAYS_KEPT_MAX
