"""What travels about members, assignments and locks: operations told apart, a heartbeat that says little, an older broker's answer."""

from typing import Any, cast

import msgspec
import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.limits import MEMBER_EXPIRY_MS
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.members import (
    GroupMember,
    HeldLock,
    LeaveGroup,
    LockQueues,
    MemberHeard,
    MemberRequest,
    QueueLocks,
    TellHeartbeat,
    UnlockQueues,
)
from tern_wire.link.requests import body_parts, read_body
from tern_wire.routing.membership import Heartbeat, Role, Strategy, read_heartbeat


def body(head: dict[str, Any]) -> bytes:
    """A body with any head."""
    return b"".join(body_parts(head))


def told_apart(data: bytes) -> MemberRequest:
    """The request in *data*, which its op names."""
    request, _ = read_head(cast(Any, MemberRequest), data)
    return cast(MemberRequest, request)


@pytest.mark.parametrize(
    "asked",
    [
        TellHeartbeat(group="g", member="m", subscriptions={"t": "*"}),
        LeaveGroup(role="producer", group="g", member="m"),
        LockQueues(group="g", topic="t", member="m", queues=[0, 3]),
        UnlockQueues(group="g", topic="t", member="m", queues=[]),
    ],
)
def test_what_members_do_is_told_apart_by_its_op(asked: MemberRequest) -> None:
    """Locks and unlocks have the same fields."""
    data = b"".join(head_parts(asked))
    assert (
        read_body(data)[0]["op"]
        == {
            TellHeartbeat: "heartbeat",
            LeaveGroup: "leave",
            LockQueues: "lock",
            UnlockQueues: "unlock",
        }[type(asked)]
    )
    assert told_apart(data) == asked


@pytest.mark.parametrize(
    "head",
    [
        {"op": "sing", "group": "g", "member": "m"},
        {"group": "g", "member": "m"},
        {"op": "heartbeat", "group": "g", "member": 7},
        {"op": "heartbeat", "group": "g", "member": "m", "queues": {"t": "broker-a:3"}},
        {"op": "lock", "group": "g", "topic": "t", "member": "m", "queues": ["3"]},
    ],
)
def test_an_op_that_is_none_and_fields_of_another_type_are_refused(head: dict[str, Any]) -> None:
    """Before anybody looks at what they say."""
    with pytest.raises(LinkBodyMalformed):
        told_apart(body(head))


def test_a_heartbeat_has_the_fields_of_what_a_member_says() -> None:
    """What it leaves out is what `read_heartbeat` takes it for, and so does an older broker."""
    says = Heartbeat(
        role=Role.PRODUCER,
        group="g",
        member="m",
        address="10.0.0.7",
        version="1",
        strategy=Strategy.BY_CONFIG,
        room="hz",
        subscriptions={"t": "tags:a"},
        queues={"t": ["broker-a:3"]},
    )
    assert TellHeartbeat.__struct_fields__ == tuple(says.document())
    assert GroupMember.__struct_fields__ == (*says.document(), "joined_at", "heard_at")
    for said in (says, Heartbeat(role=Role.CONSUMER, group="g", member="m")):
        data = b"".join(head_parts(TellHeartbeat(**said.document())))
        assert read_heartbeat(read_body(data)[0]) == said
        told = told_apart(data)
        assert read_heartbeat(msgspec.structs.asdict(told)) == said


def test_a_broker_that_does_not_say_how_long_a_member_may_be_silent_means_the_usual_time() -> None:
    """As before the time could be set."""
    heard = {"joined": True, "members": 1, "generation": 7, "subscription_conflict": [], "expires_ms": 9}
    assert read_head(MemberHeard, body(heard))[0].expiry_ms == MEMBER_EXPIRY_MS
    assert read_head(MemberHeard, body({**heard, "expiry_ms": 5_000}))[0].expiry_ms == 5_000


def test_locks_travel_as_rows_that_may_get_more_columns() -> None:
    """By the queue's number as text, which is what MessagePack maps of ours have as keys."""
    data = b"".join(head_parts(QueueLocks(locks={"3": HeldLock("m", 7, 1_000)})))
    assert read_body(data)[0] == {"locks": {"3": ["m", 7, 1_000]}}
    assert read_head(QueueLocks, body({"locks": {"3": ["m", 7, 1_000, "more"]}}))[0].locks["3"].epoch == 7
    with pytest.raises(LinkBodyMalformed):
        read_head(QueueLocks, body({"locks": {"3": ["m", 7]}}))
