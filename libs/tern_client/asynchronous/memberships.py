"""The place of one member in a consumer group, for programs that share out queues among themselves.

- `heartbeat` every 30 s: a member without heartbeats for 120 s is removed.
- `assigned` returns the queues to pull. It is called again when the generation in a heartbeat's
  answer has moved.
- `lock` every 20 s, for ordered reading: only the queues in `locked` belong to the member.
- `close` leaves the group: its queues and locks are free at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.documents import read_document
from tern_client.calls.memberships import (
    assignments_request,
    heartbeat_request,
    leave_request,
    lock_request,
    member_heartbeat,
    unlock_request,
)
from tern_client.transport.calling import call
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport
from tern_wire.errors import TernError
from tern_wire.routing.membership import Strategy


class Membership(AsyncClient):
    """One member of a consumer group. It sends no heartbeats by itself: the program calls
    `heartbeat` every 30 s.

    Tasks may share a member, which owns its connections. Arguments beside those of all clients:

    - *subscriptions*: topic to filter, such as `A || B`, `*` or `sql:...`.
    - *member*: its id, up to 128 characters and unique in the group; by default a generated one.
    - *strategy*: `averagely` (default), `averagely-by-circle`, `by-config`, `by-machine-room`,
      `machine-room-nearby` or `consistent-hash`, as RocketMQ defines them.
    - *room*: its machine room. *queues*: the queues of each topic that it reads under `by-config`.

    Example:

        import asyncio

        from tern_client import Membership


        async def main() -> None:
            member = Membership("http://127.0.0.1:8080", "billing", {"orders": "*"})
            async with member:
                await member.heartbeat()  # every 30 s
                queues = await member.assigned("orders")
                print(queues)  # -> ['broker-a:0']
                locks = await member.lock("orders", queues)  # every 20 s, for ordered reading
                print(list(locks["locked"]))  # -> ['broker-a:0']


        asyncio.run(main())
    """

    __slots__ = ("_has_joined", "_says")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        group: str,
        subscriptions: Mapping[str, str],
        *,
        member: str = "",
        strategy: str = Strategy.AVERAGELY,
        room: str = "",
        queues: Mapping[str, Sequence[str]] | None = None,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
    ) -> None:
        """The arguments are explained at the class. InvalidField."""
        self._says = member_heartbeat(group, subscriptions, member, strategy, room, queues)
        self._has_joined = False
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )

    @property
    def member(self) -> str:
        """The id of the member."""
        return self._says.member

    async def heartbeat(self) -> dict[str, Any]:
        """Keep the membership for another 120 s. `generation` of the answer moves when assignments
        may have changed; `subscription_conflict` names topics with different filters.
        """
        self._has_joined = True
        return read_document(await self._call(heartbeat_request(self._says)))

    async def assigned(self, topic: str) -> list[str]:
        """Return the queues of *topic* for this member, such as `broker-a:3`; MemberNotFound after
        120 s without a heartbeat.
        """
        request = assignments_request(self._says.group, topic, member=self.member)
        return list(read_document(await self._call(request))["assignments"][self.member])

    async def lock(self, topic: str, queues: Iterable[str]) -> dict[str, Any]:
        """Lock queues or renew locks; return `locked` (queue to epoch) and `held` (queue to its
        member).
        """
        return read_document(await self._call(lock_request(self._says.group, topic, self.member, queues)))

    async def unlock(self, topic: str, queues: Iterable[str] = ()) -> list[str]:
        """Release locks, by default all of *topic*; return the released queues."""
        request = unlock_request(self._says.group, topic, self.member, queues)
        return list(read_document(await self._call(request))["unlocked"])

    async def _finish(self) -> None:
        if self._has_joined:
            # A membership without heartbeats ends as well.
            with suppress(TernError):
                await self._caller.drive(call(self._course, leave_request(self._says.group, self.member), now_ms()))
