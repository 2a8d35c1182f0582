"""The worker's budget of messages and bytes in memory, shared among its subscriptions. Pure.

      limit  |  share of a  |  share of b  |         common         |
                 only a         only b        whoever asks first

Law: what is reserved and what is held never exceeds the limits together. A receive reserves the
most that its answer can hold before it asks. Each subscription has a share that no other one can
take, so a slow topic that holds everything common stops no other topic.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Amount:
    """Messages, and the bytes of their bodies."""

    messages: int = 0
    size_bytes: int = 0


class FlowBudget:
    """Owner: one running worker. *receive_size_bytes*: the most bytes that one receive can bring,
    whatever it asks for.
    """

    __slots__ = ("_bytes_max", "_messages_max", "_share", "_used_bytes", "_used_messages")

    def __init__(self, messages_max: int, bytes_max: int, subscriptions: int, receive_size_bytes: int) -> None:
        """ValueError when the limits have no room for one receive of each subscription."""
        if messages_max < subscriptions or bytes_max < subscriptions * receive_size_bytes:
            raise ValueError(
                f"{subscriptions} subscriptions need max_messages of at least {subscriptions} and max_bytes of at least "
                f"{subscriptions * receive_size_bytes} (the largest message of each); raise them, or use two workers"
            )
        self._messages_max, self._bytes_max = messages_max, bytes_max
        # Half of the limits is common, as long as a share is not too small for a receive.
        self._share = Amount(
            max(1, messages_max // (2 * subscriptions)), max(receive_size_bytes, bytes_max // (2 * subscriptions))
        )
        self._used_messages, self._used_bytes = [0] * subscriptions, [0] * subscriptions

    def used(self, subscription: int) -> Amount:
        """Return what the subscription with this number has reserved and holds."""
        return Amount(self._used_messages[subscription], self._used_bytes[subscription])

    @property
    def total(self) -> Amount:
        """All that is reserved and held."""
        return Amount(sum(self._used_messages), sum(self._used_bytes))

    def room(self, subscription: int) -> Amount:
        """Return the most that *subscription* may reserve now."""
        share = self._share
        return Amount(
            _room(self._used_messages, subscription, share.messages, self._messages_max),
            _room(self._used_bytes, subscription, share.size_bytes, self._bytes_max),
        )

    def reserve(self, subscription: int, amount: Amount) -> None:
        """Take *amount*, which is within `room`."""
        room = self.room(subscription)
        assert amount.messages <= room.messages and amount.size_bytes <= room.size_bytes, (amount, room)
        self._used_messages[subscription] += amount.messages
        self._used_bytes[subscription] += amount.size_bytes

    def give_back(self, subscription: int, amount: Amount) -> None:
        """Return *amount*: a receive brought less than it had reserved, or messages are settled."""
        self._used_messages[subscription] -= amount.messages
        self._used_bytes[subscription] -= amount.size_bytes
        assert self._used_messages[subscription] >= 0 and self._used_bytes[subscription] >= 0, amount


def _room(used: list[int], subscription: int, share: int, limit: int) -> int:
    kept = sum(max(each, share) for number, each in enumerate(used) if number != subscription)
    return max(0, limit - kept - used[subscription])
