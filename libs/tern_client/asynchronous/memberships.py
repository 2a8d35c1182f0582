"""One member's place in a consumer group.

member = Membership(endpoints, "billing", {"orders": "A || B"})
await member.heartbeat()                       every 30 s; a member is gone after 120 s of silence
for queue in await member.assigned("orders"):  pull it; ask again when the generation in a heartbeat's answer has moved
await member.lock("orders", [queue])           for ordered reading: every 20 s, and only what is `locked` is yours
await member.close()                           leaves: its queues and locks are free at once
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
    """One member of a consumer group. Owns its connections; it does nothing by itself, so send heartbeats.

    May be shared between tasks: one can send the heartbeats.
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
        """*subscriptions*: topic -> filter, as `A || B`, `*`, or `sql:...`. *member*: by default an id that nobody else has."""
        self._says = member_heartbeat(group, subscriptions, member, strategy, room, queues)
        self._has_joined = False
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )

    @property
    def member(self) -> str:
        """Its id."""
        return self._says.member

    async def heartbeat(self) -> dict[str, Any]:
        """Say that it lives. `generation` moves when assignments may have; `subscription_conflict` names topics to mend."""
        self._has_joined = True
        return read_document(await self._call(heartbeat_request(self._says)))

    async def assigned(self, topic: str) -> list[str]:
        """The queues of *topic* that it is to read, as `broker-a:3`; MemberNotFound when it is not heard any more."""
        request = assignments_request(self._says.group, topic, member=self.member)
        return list(read_document(await self._call(request))["assignments"][self.member])

    async def lock(self, topic: str, queues: Iterable[str]) -> dict[str, Any]:
        """Lock queues or renew: `locked` (queue -> epoch) and `held` (queue -> who has it)."""
        return read_document(await self._call(lock_request(self._says.group, topic, self.member, queues)))

    async def unlock(self, topic: str, queues: Iterable[str] = ()) -> list[str]:
        """Give up locks, all of *topic* by default; those that it had."""
        request = unlock_request(self._says.group, topic, self.member, queues)
        return list(read_document(await self._call(request))["unlocked"])

    async def _finish(self) -> None:
        if self._has_joined:
            # Silence ends a membership, too.
            with suppress(TernError):
                await self._caller.drive(call(self._course, leave_request(self._says.group, self.member), now_ms()))
