"""Calls about planned reads: plans, and leases that keep planned ranges from retention."""

from collections.abc import Mapping, Sequence
from typing import Any

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.reads import end_lease_request, plan_request, renew_lease_request, take_lease_request
from tern_wire.paths import READ_LEASES_PATH

# One topic as the API describes it: {"topic": "orders", "begin": {"broker-a:3": 17}}.
TopicRanges = Mapping[str, Any]


class ReadCalls(AsyncClient):
    """Calls of Admin about planned reads and their leases."""

    __slots__ = ()

    async def plan_read(
        self, topics: Sequence[TopicRanges], *, sizes: bool = False, step_bytes: int = 0
    ) -> dict[str, Any]:
        """Return oldest and next offset of every queue of *topics*, in one request.

        - *topics*: each `{"topic": NAME}`, with `time`, and by queue `begin`, `end`,
          `budget_bytes`.
        - *sizes*: also the stored bytes of the ranges.
        - *step_bytes*: cut the ranges into parts of at most so many bytes.
        """
        return read_document(await self._call(plan_request(topics, sizes=sizes, step_bytes=step_bytes)))

    async def take_read_lease(self, topics: Sequence[TopicRanges], duration: str | int = "1h") -> dict[str, Any]:
        """Keep *topics* from retention for *duration* (`10m`, or ms), and return the lease with the
        kept ranges.

        *topics*: each `{"topic": NAME}`, with `begin` and `end` by queue for less than all that is
        there now. OffsetExpired when retention has overtaken a range.
        """
        return read_document(await self._call(take_lease_request(topics, duration)))

    async def renew_read_lease(self, lease: str, duration: str | int = "1h") -> dict[str, Any]:
        """Let *lease* last for *duration* from now. ReadLeaseNotFound when it is over,
        ReadLeaseBroken when a full disk did not let it hold its messages.
        """
        return read_document(await self._call(renew_lease_request(lease, duration)))

    async def end_read_lease(self, lease: str) -> None:
        """End *lease*: retention may drop its messages. ReadLeaseNotFound when it is over."""
        await self._call(end_lease_request(lease))

    async def read_leases(self) -> list[dict[str, Any]]:
        """Return all read leases that the caller may see, the first one to end first."""
        document = read_document(await self._call(get_request(READ_LEASES_PATH)))
        return list(document["leases"])
