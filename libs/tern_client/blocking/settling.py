# Made by `make blocking` from the file of this name in asynchronous/. Change that one.
"""Calls that settle received messages at once."""

from tern_client.blocking.requesting import BlockingReplyCalls
from tern_client.bodies.arguments import check_integer
from tern_client.calls.documents import Settle
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.subscription import Subscription
from tern_client.transport.clock import now_ms
from tern_wire.errors import TernError


class BlockingSettleCalls(BlockingReplyCalls):
    """Calls of consumers about messages that they have received."""

    # Set by the subclass.
    _subscription: Subscription

    @property
    def expired(self) -> int:
        """The number of confirmations that came too late: their messages are delivered again."""
        return self._subscription.pending.expired

    def ack(self, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Ack *messages* at once; return the errors by receipt handle. {}: the group will not
        receive any of these again.
        """
        return self._end_leases([Settle(message.receipt_handle) for message in messages])

    def nack(self, *messages: ReceivedMessage, delay_ms: int | None = None) -> dict[str, TernError]:
        """Give back failed *messages*: they come again after *delay_ms* (None: by the group's retry
        policy). After its last attempt a message becomes a dead letter. Return the errors by
        receipt handle.
        """
        if delay_ms is not None:
            check_integer("delay_ms", delay_ms, "an int of milliseconds, or None")
        return self._end_leases([Settle(message.receipt_handle, "nack", delay_ms=delay_ms) for message in messages])

    def release(self, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Give back *messages* that no handler has seen: visible at once, and this attempt does not
        count. A loop does this by itself; a program does it for the rest of a `receive`. Return the
        errors by receipt handle.
        """
        return self._end_leases([Settle(message.receipt_handle, "release") for message in messages])

    def dead_letter(self, reason: str, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Make *messages* dead letters with a *reason* of at most 1 KiB, since no consumer of the
        group can process them. Return the errors by receipt handle.
        """
        return self._end_leases([Settle(message.receipt_handle, "dead_letter", reason=reason) for message in messages])

    def extend(self, invisible_ms: int, *messages: ReceivedMessage) -> dict[str, TernError]:
        """Extend the leases of *messages* to *invisible_ms* from now; return the errors by receipt
        handle. The handles stay the same.
        """
        check_integer("invisible_ms", invisible_ms, "an int of milliseconds")
        return self._settle_open([Settle(message.receipt_handle, "extend", invisible_ms) for message in messages])

    def _settle_open(self, settles: list[Settle]) -> dict[str, TernError]:
        return self._drive(self._subscription.settle(self._course, settles, now_ms()))

    def _end_leases(self, settles: list[Settle]) -> dict[str, TernError]:
        errors = self._settle_open(settles)
        self._done([settle.receipt_handle for settle in settles])
        return errors

    def _done(self, handles: list[str]) -> None:
        """Note that the messages with these handles are settled."""
