# Made from libs/tern_client/asynchronous/settling.py by `make blocking`: change that file, not this one.
"""Calls that settle received messages now."""

from tern_client.blocking.requesting import BlockingReplyCalls
from tern_client.calls.documents import Settle
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.subscription import Subscription
from tern_client.transport.clock import now_ms
from tern_wire.errors import TernError


class BlockingSettleCalls(BlockingReplyCalls):
    """What consumers can say of messages that they have received."""

    # Set by the subclass.
    _subscription: Subscription

    @property
    def expired(self) -> int:
        """How many confirmations came too late: those messages are delivered again."""
        return self._subscription.pending.expired

    def ack(self, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Ack now; the errors by receipt handle, {} when the group will not see any of these again."""
        return self._end_leases([Settle(message.receipt_handle) for message in messages])

    def nack(self, *messages: ReceivedMessage, delay_ms: int | None = None) -> dict[str, TernError]:
        """These have failed: they come again after *delay_ms* (None: as the group's retry policy says), or are dead letters after
        the last attempt. The errors by receipt handle."""
        return self._end_leases([Settle(message.receipt_handle, "nack", delay_ms=delay_ms) for message in messages])

    def release(self, *messages: ReceivedMessage) -> dict[str, TernError]:
        """These go back unseen: visible at once, and this attempt does not count. For what nobody has handled of a `receive`; a loop does
        it by itself. The errors by receipt handle."""
        return self._end_leases([Settle(message.receipt_handle, "release") for message in messages])

    def dead_letter(self, reason: str, *messages: ReceivedMessage) -> dict[str, TernError]:
        """These are of no use to anybody in the group: dead letters, with *reason* (at most 1 KiB). The errors by receipt handle."""
        return self._end_leases([Settle(message.receipt_handle, "dead_letter", reason=reason) for message in messages])

    def extend(self, invisible_ms: int, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Keep the leases for *invisible_ms* from now; the errors by receipt handle. The handles stay the same."""
        return self._settle_open([Settle(message.receipt_handle, "extend", invisible_ms) for message in messages])

    def _settle_open(self, settles: list[Settle]) -> dict[str, TernError]:
        return self._drive(self._subscription.settle(self._course, settles, now_ms()))

    def _end_leases(self, settles: list[Settle]) -> dict[str, TernError]:
        errors = self._settle_open(settles)
        self._done([settle.receipt_handle for settle in settles])
        return errors

    def _done(self, handles: list[str]) -> None:
        """The messages with these handles are not in hand any more."""
