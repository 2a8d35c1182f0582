"""Members of groups: the heartbeat of a member, and requests about members as values."""

import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tern_client.calls.documents import get_request
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.names import check_group, check_topic
from tern_wire.routing.membership import Heartbeat, Role, check_member, read_heartbeat


# Requests ---------------------------------------------------------------------------------------
def heartbeat_request(says: Heartbeat) -> Request:
    """Request to keep a membership alive."""
    document = {name: value for name, value in says.document().items() if name != "group"}
    return _post(paths.heartbeat_path(says.group), document)


def leave_request(group: str, member: str, role: str = Role.CONSUMER) -> Request:
    """Request to remove a member."""
    path = paths.member_path(check_group(group), quote(check_member(member), safe=""))
    return Request("DELETE", f"{path}?role={Role(role)}")


def members_request(group: str, role: str = Role.CONSUMER) -> Request:
    """Request the members of *group*."""
    return get_request(paths.members_path(check_group(group)), role=Role(role))


def assignments_request(group: str, topic: str, *, member: str = "", strategy: str = "") -> Request:
    """Request which member reads which queues of *topic*; with *member*, only its queues."""
    wanted = {"member": member, "strategy": strategy}
    query = {name: value for name, value in wanted.items() if value}
    return get_request(paths.assignments_path(check_group(group)), topic=check_topic(topic), **query)


def locks_request(group: str, topic: str) -> Request:
    """Request the locks of queues of *topic*."""
    return get_request(paths.locks_path(check_group(group)), topic=check_topic(topic))


def lock_request(group: str, topic: str, member: str, queues: Iterable[str]) -> Request:
    """Request to lock queues, or to renew locks."""
    document = {"topic": check_topic(topic), "member": check_member(member), "queues": list(queues)}
    return _post(paths.locks_path(check_group(group)), document)


def unlock_request(group: str, topic: str, member: str, queues: Iterable[str] = ()) -> Request:
    """Request to release locks; all of *topic* when *queues* is empty."""
    named = ",".join(queues)
    query = {"queues": named} if named else {}
    read = get_request(
        paths.locks_path(check_group(group)), topic=check_topic(topic), member=check_member(member), **query
    )
    return Request("DELETE", read.path)


def _post(path: str, document: Mapping[str, Any]) -> Request:
    # Repeatable: a second heartbeat changes nothing, and a second lock renews the first.
    return Request("POST", path, (("Content-Type", paths.JSON),), json.dumps(document).encode())


def _own_id() -> str:
    """Return a unique id for a member without a name: its host, its process, and random digits."""
    host = "".join(
        letter for letter in socket.gethostname() if letter.isascii() and (letter.isalnum() or letter in "-.")
    )
    return f"{host.strip('-.')[:64] or 'client'}-{os.getpid()}-{os.urandom(4).hex()}"


def member_heartbeat(
    group: str,
    subscriptions: Mapping[str, str],
    member: str,
    strategy: str,
    room: str,
    queues: Mapping[str, Sequence[str]] | None,
) -> Heartbeat:
    """Return the heartbeat of a member, with a unique id where *member* is ""; InvalidField."""
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
