"""Calls that settle received messages at once."""

from tern_client.asynchronous.requesting import ReplyCalls
from tern_client.bodies.arguments import check_integer
from tern_client.calls.documents import Settle
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.partial_failures import SettlesFailed
from tern_client.calls.subscription import Subscription
from tern_client.transport.clock import now_ms
from tern_wire.errors import TernError


class SettleCalls(ReplyCalls):
    """Calls of consumers about messages that they have received."""

    __slots__ = ("_subscription",)

    # Set by the subclass.
    _subscription: Subscription

    @property
    def expired(self) -> int:
        """The number of confirmations that came too late: their messages are delivered again."""
        return self._subscription.pending.expired

    async def ack(self, *messages: ReceivedMessage, return_errors: bool = False) -> dict[str, TernError]:
        """Ack *messages* at once: the group will not receive any of these again. SettlesFailed when
        it may receive some; with *return_errors* the errors are returned, by receipt handle.
        """
        return await self._end_leases([Settle(message.receipt_handle) for message in messages], return_errors)

    async def nack(
        self, *messages: ReceivedMessage, delay_ms: int | None = None, return_errors: bool = False
    ) -> dict[str, TernError]:
        """Give back failed *messages*: they come again after *delay_ms* (None: by the group's retry
        policy). After its last attempt a message becomes a dead letter. Errors: see `ack`.
        """
        if delay_ms is not None:
            check_integer("delay_ms", delay_ms, "an int of milliseconds, or None")
        settles = [Settle(message.receipt_handle, "nack", delay_ms=delay_ms) for message in messages]
        return await self._end_leases(settles, return_errors)

    async def release(self, *messages: ReceivedMessage, return_errors: bool = False) -> dict[str, TernError]:
        """Give back *messages* that no handler has seen: visible at once, and this attempt does not
        count. A loop does this by itself; a program does it for the rest of a `receive`. Errors:
        see `ack`.
        """
        return await self._end_leases(
            [Settle(message.receipt_handle, "release") for message in messages], return_errors
        )

    async def dead_letter(
        self, reason: str, *messages: ReceivedMessage, return_errors: bool = False
    ) -> dict[str, TernError]:
        """Make *messages* dead letters with a *reason* of at most 1 KiB, since no consumer of the
        group can process them. Errors: see `ack`.
        """
        settles = [Settle(message.receipt_handle, "dead_letter", reason=reason) for message in messages]
        return await self._end_leases(settles, return_errors)

    async def extend(
        self, invisible_ms: int, *messages: ReceivedMessage, return_errors: bool = False
    ) -> dict[str, TernError]:
        """Extend the leases of *messages* to *invisible_ms* from now. The handles stay the same.
        Errors: see `ack`.
        """
        check_integer("invisible_ms", invisible_ms, "an int of milliseconds")
        settles = [Settle(message.receipt_handle, "extend", invisible_ms) for message in messages]
        errors = await self._settle_open(settles)
        self._extended([settle for settle in settles if settle.receipt_handle not in errors])
        return _told(errors, len(settles), return_errors)

    async def _settle_open(self, settles: list[Settle]) -> dict[str, TernError]:
        return await self._drive(self._subscription.settle(self._course, settles, now_ms()))

    async def _end_leases(self, settles: list[Settle], return_errors: bool) -> dict[str, TernError]:
        errors = await self._settle_open(settles)
        self._done([settle.receipt_handle for settle in settles])
        return _told(errors, len(settles), return_errors)

    def _done(self, handles: list[str]) -> None:
        """Note that the messages with these handles are settled."""

    def _extended(self, settles: list[Settle]) -> None:
        """Note that these leases are extended."""


def _told(errors: dict[str, TernError], messages: int, return_errors: bool) -> dict[str, TernError]:
    if errors and not return_errors:
        raise SettlesFailed(errors, messages)
    return errors
