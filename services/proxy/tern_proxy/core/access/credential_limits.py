"""What is counted about credentials: how often an address was refused with a key, and which signatures were used. Bounded. Pure.

The right key is never refused because of wrong ones: whoever shares an address with a guesser, or a key's name with one, is served. So what is
limited is answers to wrong ones (and the work of checking signatures, which a guesser could ask for: those are not checked beyond the limit).
"""

from collections import OrderedDict

from tern_wire.errors import Overloaded
from tern_wire.limits import AUTH_FAILURES_KEPT_MAX, AUTH_FAILURES_PER_MIN, SIGNATURE_NONCES_MAX

_WINDOW_MS = 60_000


class Failures:
    """Requests with wrong credentials, by address and kid, in the minute since the first of them. Owner: the event loop."""

    def __init__(self, kept_max: int = AUTH_FAILURES_KEPT_MAX) -> None:
        self._kept_max = kept_max
        # In order of their first failure: the end of that one's minute, and how many there were.
        self._counts: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def is_over(self, address: str, kid: str, now_ms: int) -> int:
        """Milliseconds until the limit lets *address* try *kid* again; 0 when it may now."""
        until_ms, count = self._counts.get((address, kid), (0, 0))
        return until_ms - now_ms if count >= AUTH_FAILURES_PER_MIN and until_ms > now_ms else 0

    def add(self, address: str, kid: str, now_ms: int) -> None:
        """One more. When too many are kept, those that began first are forgotten."""
        until_ms, count = self._counts.get((address, kid), (0, 0))
        if until_ms > now_ms:
            self._counts[address, kid] = (until_ms, count + 1)
            return
        self._counts.pop((address, kid), None)
        while len(self._counts) >= self._kept_max:
            self._counts.popitem(last=False)
        self._counts[address, kid] = (now_ms + _WINDOW_MS, 1)


class Nonces:
    """Nonces of signatures that were accepted, until these are too old to be accepted again. Owner: the event loop.

    Of each only 64 bits are kept, of a hash whose key is this process's own: two that meet, one in 10^13 at the rate that fills the table, make a
    client sign once more.
    """

    def __init__(self, kept_max: int = SIGNATURE_NONCES_MAX) -> None:
        self._kept_max = kept_max
        self._used: set[int] = set()
        # By the second in which they end.
        self._ends: dict[int, list[int]] = {}
        self._now_s = 0

    @property
    def kept(self) -> int:
        """How many are known."""
        return len(self._used)

    def take(self, kid: str, nonce: str, now_s: int, end_s: int) -> bool:
        """Whether *nonce* of *kid* is new; then it is not before *end_s* (seconds since 1970) is over. Overloaded when no more are kept."""
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
        """Those that ended before *now_s*; once a second, and there are no more seconds with ends than a signature is good for."""
        for end_s in [end_s for end_s in self._ends if end_s < now_s]:
            self._used.difference_update(self._ends.pop(end_s))
        self._now_s = now_s
