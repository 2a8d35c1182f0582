"""Messages of one subscription that were received and whose handler has not begun. Pure.

    add --> ready ------------------------> take --> handler --> done
       '--> behind one of its message group --^ when that one is done (ordered only)

Law: with *ordered*, at most one message of a message group is taken and not done, and they are
taken in the order of their arrival. Messages without a message group wait for nothing.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tern_client.calls.models import ReceivedMessage


@dataclass(slots=True, eq=False)
class InHand:
    """One message from its receive to its settlement. Owner: its subscription."""

    message: ReceivedMessage
    size_bytes: int
    # Its result is known; its lease was lost, so its result is not sent.
    is_over: bool = False
    is_lost: bool = False

    @property
    def handle(self) -> str:
        """The receipt handle."""
        return self.message.receipt_handle


class Waiting:
    """Owner: one subscription. Bound: its share of the worker's messages."""

    __slots__ = ("_behind", "_claimed", "_count", "_is_ordered", "_ready")

    def __init__(self, *, is_ordered: bool) -> None:
        self._is_ordered = is_ordered
        self._ready: deque[InHand] = deque()
        # Message groups with a message that is ready or taken, and what waits behind it.
        self._claimed: set[str] = set()
        self._behind: dict[str, deque[InHand]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, received: Iterable[InHand]) -> bool:
        """Add *received* in the order of their arrival; return whether one of them came behind
        another message of its message group, which a group that keeps order does not do.
        """
        was_behind = False
        for each in received:
            group = each.message.message_group if self._is_ordered else ""
            self._count += 1
            if not group:
                self._ready.append(each)
            elif group in self._claimed:
                self._behind.setdefault(group, deque()).append(each)
                was_behind = True
            else:
                self._claimed.add(group)
                self._ready.append(each)
        return was_behind

    def take(self) -> InHand | None:
        """Take the next message that may begin; its `done` follows. None without one."""
        if not self._ready:
            return None
        self._count -= 1
        return self._ready.popleft()

    def done(self, taken: InHand) -> None:
        """Note that the handler of *taken* has ended: its message group goes on."""
        group = taken.message.message_group if self._is_ordered else ""
        if not group:
            return
        behind = self._behind.get(group)
        if behind is None:
            self._claimed.discard(group)
            return
        self._ready.append(behind.popleft())
        if not behind:
            del self._behind[group]

    @property
    def ready(self) -> int:
        """How many messages may begin now."""
        return len(self._ready)

    def clear(self) -> list[InHand]:
        """Take all that wait. Message groups whose handler runs stay claimed."""
        found = [*self._ready, *(each for behind in self._behind.values() for each in behind)]
        self._ready.clear()
        self._behind.clear()
        self._count = 0
        return found
