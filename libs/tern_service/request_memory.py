"""Room shared by all requests of a process, by owner: bytes of bodies, messages of sends. Pure.

 take: bytes as they arrive -> held by their owner -> give: exactly once, however the request ends
Owner: one event loop. Law: no owner's requests are refused for what others hold, as long as others'
shares limit them. An owner (a principal; without one, an address) may hold SHARE_OF_FREE times the
free room, so the more others hold the less one may add, and a new owner always finds some. A
reserve is for small requests alone. Owner "" is all clients that cannot be told apart (loopback
without credentials): it has no share.
"""

from types import TracebackType

from tern_wire.errors import Overloaded, ShareExceeded
from tern_wire.limits_requests import CALM_SHARE, SHARE_OF_FREE, SMALL_RESERVE_SHARE


class Room:
    """One shared limit.
    *what*: its name in errors and metrics. *limit*: the total held at a time. *small_max*: the most
    that a small request holds.
    """

    __slots__ = ("_held", "_large_limit", "calm", "limit", "refused", "small_max", "used", "what")

    def __init__(self, what: str, limit: int, *, small_max: int) -> None:
        self.what, self.limit = what, limit
        self.small_max = min(small_max, limit // SMALL_RESERVE_SHARE)
        self._large_limit = limit - limit // SMALL_RESERVE_SHARE
        # Below this there is no shortage, and owners need not be known.
        self.calm = limit // CALM_SHARE
        self.used = 0
        # At most as many as there are owners of requests under way.
        self._held: dict[str, int] = {}
        # Totals for metrics: refused for lack of room, and refused at an owner's share.
        self.refused = [0, 0]

    def take(self, owner: str, count: int, size: int) -> None:
        """Hold *count* more for *owner*, for a request that then holds *size*.
        ShareExceeded or Overloaded: nothing is held.
        """
        used, held = self.used + count, self._held.get(owner, 0) + count
        self._judge(owner, held, used, size)
        if owner:
            self._held[owner] = held
        self.used = used

    def hold_calmly(self, count: int) -> "Holding | None":
        """Hold *count* without an owner, for a small, complete request.
        None, and nothing held, if it is not small or the room not calm.
        """
        used = self.used + count
        if used > self.calm or count > self.small_max:
            return None
        self.used = used
        return Holding(self, "", count)

    def look(self, owner: str, size: int) -> None:
        """Check as take for a request of *size*, but hold nothing: an early refusal."""
        self._judge(owner, self._held.get(owner, 0) + size, self.used + size, size)

    def give(self, owner: str, count: int) -> None:
        """Return *count* of what *owner* holds."""
        self.used -= count
        if owner:
            left = self._held[owner] - count
            if left:
                self._held[owner] = left
            else:
                del self._held[owner]

    def held(self, owner: str) -> int:
        """The amount that *owner* holds now."""
        return self._held.get(owner, 0)

    @property
    def owners(self) -> int:
        """Number of owners that hold something."""
        return len(self._held)

    @property
    def is_short(self) -> bool:
        """Whether only small requests find room; a problem only for larger ones."""
        return self.used + self.small_max > self._large_limit

    @property
    def is_full(self) -> bool:
        """Whether even small requests are refused, whatever their owner."""
        return self.used + self.small_max > self.limit

    @property
    def state(self) -> str:
        """`free`, `short` or `full`, for display."""
        return "full" if self.is_full else "short" if self.is_short else "free"

    def _judge(self, owner: str, held: int, used: int, size: int) -> None:
        """Refuse unless *owner* may hold *held* of *used* in all, for a request of *size*."""
        is_small = size <= self.small_max
        limit = self.limit if is_small else self._large_limit
        if not owner:
            if used <= limit:
                return
        else:
            share = SHARE_OF_FREE * (self._large_limit - used)
            # In the reserve shares are smaller, so that one owner's small requests leave room for
            # others' large ones.
            if held <= (max(share, (limit - used) // SHARE_OF_FREE) if is_small else share):
                return
            # An owner is at its share if it holds as much as each of this many owners could at
            # most; otherwise the refusal is for the total.
            owners = len(self._held) + (owner not in self._held)
            if held * (SHARE_OF_FREE * owners + 1) > SHARE_OF_FREE * self._large_limit:
                self.refused[1] += 1
                raise ShareExceeded(what=self.what)
        self.refused[0] += 1
        raise Overloaded(what=self.what, limit=limit)


class Holding:
    """One request's part of a room.
    May be given back repeatedly; `with` gives it back in any case.
    """

    __slots__ = ("_owner", "_room", "held")

    def __init__(self, room: Room, owner: str, held: int = 0) -> None:
        """*held*: the amount already held."""
        self._room, self._owner, self.held = room, owner, held

    def take(self, count: int) -> None:
        """Hold *count* more; ShareExceeded or Overloaded."""
        size = self.held + count
        self._room.take(self._owner, count, size)
        self.held = size

    def look(self, size: int) -> None:
        """Raise ShareExceeded or Overloaded unless this request could hold *size* now; hold
        nothing.
        """
        self._room.look(self._owner, size)

    def give_back(self) -> None:
        """Return everything."""
        held, self.held = self.held, 0
        if held:
            self._room.give(self._owner, held)

    def __enter__(self) -> "Holding":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()
