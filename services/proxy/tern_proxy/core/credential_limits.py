"""What is counted about credentials: how often an address was refused with a key, and which signatures were used. Bounded. Pure.

The right key is never refused because of wrong ones: whoever shares an address with a guesser, or a key's name with one, is served. So what is
limited is answers to wrong ones (and the work of checking signatures, which a guesser could ask for: those are not checked beyond the limit).
"""

from collections import OrderedDict, deque

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
    """Nonces of signatures that were accepted, until these are too old to be accepted again. Owner: the event loop."""

    def __init__(self, kept_max: int = SIGNATURE_NONCES_MAX) -> None:
        self._kept_max = kept_max
        self._used: set[tuple[str, str]] = set()
        self._ends: deque[tuple[int, tuple[str, str]]] = deque()

    def take(self, kid: str, nonce: str, now_ms: int, kept_ms: int) -> bool:
        """Whether *nonce* of *kid* is new; then it is not for *kept_ms*, the same in every call. Overloaded when no more are kept."""
        while self._ends and self._ends[0][0] <= now_ms:
            self._used.discard(self._ends.popleft()[1])
        name = (kid, nonce)
        if name in self._used:
            return False
        if len(self._used) >= self._kept_max:
            raise Overloaded(what="nonces of signed requests", limit=self._kept_max)
        self._used.add(name)
        self._ends.append((now_ms + kept_ms, name))
        return True
