"""Counters of credentials: refused keys by address, and used signatures. Bounded. Pure.

The right key is never refused because of wrong ones, so a client is served even if it shares its
address or its key's name with a guesser. The limit applies to the answers to wrong keys, and to the
verification of signatures, which stops at the limit.
"""

from collections import OrderedDict

from tern_wire.errors import Overloaded
from tern_wire.limits import AUTH_FAILURES_KEPT_MAX, AUTH_FAILURES_PER_MIN, SIGNATURE_NONCES_MAX

_WINDOW_MS = 60_000


class Failures:
    """Requests with wrong credentials, by address and kid, in the minute since the first of them.

    Owner: the event loop.
    """

    def __init__(self, kept_max: int = AUTH_FAILURES_KEPT_MAX) -> None:
        self._kept_max = kept_max
        # In order of the first failure: the end of its minute, and the number of failures.
        self._counts: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def is_over(self, address: str, kid: str, now_ms: int) -> int:
        """Return the milliseconds until *address* may try *kid* again; 0 for now."""
        until_ms, count = self._counts.get((address, kid), (0, 0))
        return until_ms - now_ms if count >= AUTH_FAILURES_PER_MIN and until_ms > now_ms else 0

    def add(self, address: str, kid: str, now_ms: int) -> None:
        """Count one failure. At the limit of entries the oldest are forgotten."""
        until_ms, count = self._counts.get((address, kid), (0, 0))
        if until_ms > now_ms:
            self._counts[address, kid] = (until_ms, count + 1)
            return
        self._counts.pop((address, kid), None)
        while len(self._counts) >= self._kept_max:
            self._counts.popitem(last=False)
        self._counts[address, kid] = (now_ms + _WINDOW_MS, 1)


class Nonces:
    """Nonces of accepted signatures, until these are too old to be accepted again.

    Owner: the event loop. Only 64 bits are kept of each, a hash with a key of this process. Two
    that collide, one in 10^13 at the rate that fills the table, make a client sign once more.
    """

    def __init__(self, kept_max: int = SIGNATURE_NONCES_MAX) -> None:
        self._kept_max = kept_max
        self._used: set[int] = set()
        # By the second of their expiry.
        self._ends: dict[int, list[int]] = {}
        self._now_s = 0

    @property
    def kept(self) -> int:
        """Number of known nonces."""
        return len(self._used)

    def take(self, kid: str, nonce: str, now_s: int, end_s: int) -> bool:
        """Return whether *nonce* of *kid* is new, and remember it until *end_s* (seconds since
        1970) is over.

        Raise Overloaded when the table is full.
        """
        if self._now_s != now_s:
            self._forget(now_s)
        name = hash((kid, nonce))
        if name in self._used:
            return False
        if len(self._used) >= self._kept_max:
            raise Overloaded(what="nonces of signed requests", limit=self._kept_max)
        self._used.add(name)
        self._ends.setdefault(end_s, []).append(name)
        return True

    def _forget(self, now_s: int) -> None:
        """Forget nonces that expired before *now_s*.

        Called once a second. The number of distinct expiry seconds is bounded by the validity of a
        signature.
        """
        for end_s in [end_s for end_s in self._ends if end_s < now_s]:
            self._used.difference_update(self._ends.pop(end_s))
        self._now_s = now_s
