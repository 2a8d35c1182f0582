"""Room that all requests of a process share, by owner: bytes of bodies, messages of sends. Pure; owner: one event loop.

    take: what has arrived, as it arrives -> held by its owner -> give: exactly once, whatever becomes of the request

Law: nobody's requests are refused for what others hold, as long as there are others' shares to stop at. An owner (a principal; without one, an
address) may hold SHARE_OF_FREE times what is free, so the more others hold the less one may add, and a newcomer always finds some. A reserve
is for small requests alone. Owner "" is everybody that cannot be told apart (loopback without credentials): it has no share to stop at.
"""

from types import TracebackType

from tern_wire.errors import Overloaded, ShareExceeded
from tern_wire.limits_requests import CALM_SHARE, SHARE_OF_FREE, SMALL_RESERVE_SHARE


class Room:
    """*what*: as errors and metrics name it. *limit*: all that is held at a time. *small_max*: what one small request holds, at most."""

    __slots__ = ("_held", "_large_limit", "calm", "limit", "refused", "small_max", "used", "what")

    def __init__(self, what: str, limit: int, *, small_max: int) -> None:
        self.what, self.limit = what, limit
        self.small_max = min(small_max, limit // SMALL_RESERVE_SHARE)
        self._large_limit = limit - limit // SMALL_RESERVE_SHARE
        # Below this much nobody is short of anything, and whose it is need not be known.
        self.calm = limit // CALM_SHARE
        self.used = 0
        # As many as there are owners of requests under way.
        self._held: dict[str, int] = {}
        # So far, for metrics: because there was no room, and because an owner was at its share.
        self.refused = [0, 0]

    def take(self, owner: str, count: int, size: int) -> None:
        """*owner* holds *count* more, for a request that holds *size* then. ShareExceeded or Overloaded, and nothing is held, when it may not."""
        used, held = self.used + count, self._held.get(owner, 0) + count
        self._judge(owner, held, used, size)
        if owner:
            self._held[owner] = held
        self.used = used

    def hold_calmly(self, count: int) -> "Holding | None":
        """Hold *count* for a small request that has come whole, as nobody's. None, and nothing is held, when it is not small or the room not calm."""
        used = self.used + count
        if used > self.calm or count > self.small_max:
            return None
        self.used = used
        return Holding(self, "", count)

    def look(self, owner: str, size: int) -> None:
        """As take, of a request that will hold *size*, but nothing is held: who could not be served in the end is told so at once."""
        self._judge(owner, self._held.get(owner, 0) + size, self.used + size, size)

    def give(self, owner: str, count: int) -> None:
        """*owner* holds *count* less, of what it has taken."""
        self.used -= count
        if owner:
            left = self._held[owner] - count
            if left:
                self._held[owner] = left
            else:
                del self._held[owner]

    def held(self, owner: str) -> int:
        """What *owner* holds now."""
        return self._held.get(owner, 0)

    @property
    def owners(self) -> int:
        """How many hold something."""
        return len(self._held)

    @property
    def is_short(self) -> bool:
        """Whether only small requests find room, which is no trouble but of those who ask for more."""
        return self.used + self.small_max > self._large_limit

    @property
    def is_full(self) -> bool:
        """Whether even small requests are refused, whosever they are."""
        return self.used + self.small_max > self.limit

    @property
    def state(self) -> str:
        """`free`, `short` or `full`, for people."""
        return "full" if self.is_full else "short" if self.is_short else "free"

    def _judge(self, owner: str, held: int, used: int, size: int) -> None:
        """Whether *owner* may hold *held* of *used* in all, for a request of *size*."""
        is_small = size <= self.small_max
        limit = self.limit if is_small else self._large_limit
        if not owner:
            if used <= limit:
                return
        else:
            share = SHARE_OF_FREE * (self._large_limit - used)
            # In the reserve shares are smaller, so that small requests of one owner never take what large ones of another need.
            if held <= (max(share, (limit - used) // SHARE_OF_FREE) if is_small else share):
                return
            # At its share is who holds as much as each of so many owners could hold at most; else it is for what all hold together.
            owners = len(self._held) + (owner not in self._held)
            if held * (SHARE_OF_FREE * owners + 1) > SHARE_OF_FREE * self._large_limit:
                self.refused[1] += 1
                raise ShareExceeded(what=self.what)
        self.refused[0] += 1
        raise Overloaded(what=self.what, limit=limit)


class Holding:
    """What one request holds of a room. Safe to give back again; with `with` it is, however the request ends."""

    __slots__ = ("_owner", "_room", "held")

    def __init__(self, room: Room, owner: str, held: int = 0) -> None:
        """*held*: what it holds already."""
        self._room, self._owner, self.held = room, owner, held

    def take(self, count: int) -> None:
        """Hold *count* more; ShareExceeded or Overloaded."""
        size = self.held + count
        self._room.take(self._owner, count, size)
        self.held = size

    def look(self, size: int) -> None:
        """ShareExceeded or Overloaded unless this request could hold *size* now; nothing is held."""
        self._room.look(self._owner, size)

    def give_back(self) -> None:
        """Hold nothing any more."""
        held, self.held = self.held, 0
        if held:
            self._room.give(self._owner, held)

    def __enter__(self) -> "Holding":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.give_back()
