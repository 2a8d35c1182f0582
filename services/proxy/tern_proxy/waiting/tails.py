"""Open tails of this proxy: how many there may be, and their end when the proxy stops.

A tail lives for hours, so it is no request in progress and no parked poll: it has places of its
own, one for each stream, from its admission to its last byte. Owner of all state: one event loop.
"""

from collections.abc import Callable

from tern_wire.errors import ShuttingDown, TooManyTails
from tern_wire.limits_tails import TAILS_MAX, TAILS_PER_PRINCIPAL_MAX


class Tails:
    """All open tails. *tails_max*, *tails_per_principal_max*: limits."""

    def __init__(self, tails_max: int = TAILS_MAX, tails_per_principal_max: int = TAILS_PER_PRINCIPAL_MAX) -> None:
        self._tails_max, self._tails_per_principal_max = tails_max, tails_per_principal_max
        self._open = 0
        # Tails of each owner with a name; bounded by the number of tails.
        self._by_owner: dict[str, int] = {}
        self._wakes: dict[Callable[[], None], None] = {}
        self.is_closed = False

    def __len__(self) -> int:
        return self._open

    def claim(self, owner: str) -> None:
        """Claim a place until `give_back`.

        *owner*: the principal, or the address; "" for loopback addresses, which have no limit of
        their own. Raise TooManyTails, ShuttingDown.
        """
        if self.is_closed:
            raise ShuttingDown
        if self._open >= self._tails_max:
            raise TooManyTails(what="all clients", limit=self._tails_max)
        if owner and self._by_owner.get(owner, 0) >= self._tails_per_principal_max:
            raise TooManyTails(
                what="this principal, or without credentials of this address,", limit=self._tails_per_principal_max
            )
        self._open += 1
        if owner:
            self._by_owner[owner] = self._by_owner.get(owner, 0) + 1

    def give_back(self, owner: str) -> None:
        """Release the place of a tail that has ended."""
        self._open -= 1
        count = self._by_owner.get(owner, 0) - 1
        if count > 0:
            self._by_owner[owner] = count
        else:
            self._by_owner.pop(owner, None)

    def claimed(self, owner: str) -> int:
        """Return the number of tails of *owner*."""
        return self._by_owner.get(owner, 0)

    def call(self, wake: Callable[[], None]) -> None:
        """Call *wake* when the proxy stops, and when its routes have changed, until
        `call_no_more`.
        """
        self._wakes[wake] = None

    def call_no_more(self, wake: Callable[[], None]) -> None:
        """Remove *wake*. Safe to repeat."""
        self._wakes.pop(wake, None)

    def look(self) -> None:
        """Wake all tails: their topics may have other broker groups now."""
        for wake in list(self._wakes):
            wake()

    def close(self) -> None:
        """End all tails, and let no more begin."""
        self.is_closed = True
        self.look()
