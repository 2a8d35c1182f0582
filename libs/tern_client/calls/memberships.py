"""Members of groups: the requests and answers about them as values (pure), and Membership, one member's place in a consumer group.

member = BlockingMembership(endpoints, "billing", {"orders": "A || B"})
member.heartbeat()                         every 30 s; a member is gone after 120 s of silence
for queue in member.assigned("orders"):    pull it; ask again when the generation in a heartbeat's answer has moved
member.lock("orders", [queue])             for ordered reading: every 20 s, and only what is `locked` is yours
member.close()                             leaves: its queues and locks are free at once
"""

import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from tern_client.calls.documents import get_request, read_document
from tern_client.client import AsyncClient, BlockingClient
from tern_client.transport.blocking_transport import BlockingTransport
from tern_client.transport.calling import call
from tern_client.transport.credentials import FileName
from tern_client.transport.exchange import Request
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport, now_ms
from tern_wire import paths
from tern_wire.errors import TernError
from tern_wire.names import check_group, check_topic
from tern_wire.routing.membership import Heartbeat, Role, Strategy, check_member, read_heartbeat


# Requests ---------------------------------------------------------------------------------------------------------
def heartbeat_request(says: Heartbeat) -> Request:
    """A member says that it lives."""
    document = {name: value for name, value in says.document().items() if name != "group"}
    return _post(paths.heartbeat_path(says.group), document)


def leave_request(group: str, member: str, role: str = Role.CONSUMER) -> Request:
    """A member goes."""
    path = paths.member_path(check_group(group), quote(check_member(member), safe=""))
    return Request("DELETE", f"{path}?role={Role(role)}")


def members_request(group: str, role: str = Role.CONSUMER) -> Request:
    """Who is in *group*."""
    return get_request(paths.members_path(check_group(group)), role=Role(role))


def assignments_request(group: str, topic: str, *, member: str = "", strategy: str = "") -> Request:
    """Who reads which queues of *topic*; only *member*'s when it is given."""
    wanted = {"member": member, "strategy": strategy}
    query = {name: value for name, value in wanted.items() if value}
    return get_request(paths.assignments_path(check_group(group)), topic=check_topic(topic), **query)


def locks_request(group: str, topic: str) -> Request:
    """Who holds which queues of *topic*."""
    return get_request(paths.locks_path(check_group(group)), topic=check_topic(topic))


def lock_request(group: str, topic: str, member: str, queues: Iterable[str]) -> Request:
    """Lock queues, or renew locks."""
    document = {"topic": check_topic(topic), "member": check_member(member), "queues": list(queues)}
    return _post(paths.locks_path(check_group(group)), document)


def unlock_request(group: str, topic: str, member: str, queues: Iterable[str] = ()) -> Request:
    """Give up locks; all of *topic* when *queues* is empty."""
    named = ",".join(queues)
    query = {"queues": named} if named else {}
    read = get_request(
        paths.locks_path(check_group(group)), topic=check_topic(topic), member=check_member(member), **query
    )
    return Request("DELETE", read.path)


def _post(path: str, document: Mapping[str, Any]) -> Request:
    # Said twice is as good as said once, and a lock taken twice is renewed.
    return Request("POST", path, (("Content-Type", paths.JSON),), json.dumps(document).encode())


def _own_id() -> str:
    """An id for a member that names none: where it runs, and something that nobody else has."""
    host = "".join(
        letter for letter in socket.gethostname() if letter.isascii() and (letter.isalnum() or letter in "-.")
    )
    return f"{host.strip('-.')[:64] or 'client'}-{os.getpid()}-{os.urandom(4).hex()}"


def _says(
    group: str,
    subscriptions: Mapping[str, str],
    member: str,
    strategy: str,
    room: str,
    queues: Mapping[str, Sequence[str]] | None,
) -> Heartbeat:
    return read_heartbeat(
        {
            "group": group,
            "member": member or _own_id(),
            "strategy": strategy,
            "room": room,
            "subscriptions": dict(subscriptions),
            "queues": {topic: list(names) for topic, names in (queues or {}).items()},
        }
    )


# Members ----------------------------------------------------------------------------------------------------------
class Membership(AsyncClient):
    """One member of a consumer group. Owns its connections; it does nothing by itself, so send heartbeats."""

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
        self._says = _says(group, subscriptions, member, strategy, room, queues)
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


class BlockingMembership(BlockingClient):
    """As Membership, for threads. May be shared between them: one can send the heartbeats."""

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
        transport: BlockingTransport | None = None,
    ) -> None:
        """As Membership."""
        self._says = _says(group, subscriptions, member, strategy, room, queues)
        self._has_joined = False
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )

    @property
    def member(self) -> str:
        """Its id."""
        return self._says.member

    def heartbeat(self) -> dict[str, Any]:
        """As Membership."""
        self._has_joined = True
        return read_document(self._call(heartbeat_request(self._says)))

    def assigned(self, topic: str) -> list[str]:
        """As Membership."""
        request = assignments_request(self._says.group, topic, member=self.member)
        return list(read_document(self._call(request))["assignments"][self.member])

    def lock(self, topic: str, queues: Iterable[str]) -> dict[str, Any]:
        """As Membership."""
        return read_document(self._call(lock_request(self._says.group, topic, self.member, queues)))

    def unlock(self, topic: str, queues: Iterable[str] = ()) -> list[str]:
        """As Membership."""
        return list(read_document(self._call(unlock_request(self._says.group, topic, self.member, queues)))["unlocked"])

    def _finish(self) -> None:
        if self._has_joined:
            with suppress(TernError):
                self._caller.drive(call(self._course, leave_request(self._says.group, self.member), now_ms()))
