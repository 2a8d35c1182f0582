"""Membership, async and blocking, against a scripted proxy: what it asks for, and that closing leaves."""

import re

import pytest

from tern_client import BlockingMembership, Membership, RetryPolicy
from tern_wire.errors import IllegalMember, InvalidField, MemberNotFound, NoLeader
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, refused, said

QUICK = RetryPolicy(first_delay_ms=1, max_delay_ms=4, deadline_ms=8_000, attempt_timeout_ms=4_000)


def serve(asked: Asked) -> Reply:
    """A proxy with one member, which reads one queue."""
    path = asked.path.partition("?")[0]
    if path.endswith("/heartbeat"):
        return said({"generation": 3, "subscription_conflict": []})
    if path.endswith("/assignments"):
        return said({"assignments": {"w@1": ["broker-a:0"]}})
    return said({"locked": {"broker-a:0": 5}, "held": {}, "unlocked": ["broker-a:0"], "left": True})


async def test_a_member_says_what_it_is_and_leaves_when_it_is_closed() -> None:
    """Every request names the group, the member and what it wants; an id with `@` survives the path."""
    async with ScriptedProxy(answer=serve) as proxy:
        async with Membership(proxy.url, "g", {"t": "A || B"}, member="w@1", strategy="consistent-hash") as member:
            assert (await member.heartbeat())["generation"] == 3
            assert await member.assigned("t") == ["broker-a:0"]
            assert (await member.lock("t", ["broker-a:0"]))["locked"] == {"broker-a:0": 5}
            assert await member.unlock("t", ["broker-a:0", "broker-a:1"]) == ["broker-a:0"]
        beat, assigned, locked, unlocked, left = proxy.asked
        assert beat.document["subscriptions"] == {"t": "A || B"}
        assert (beat.document["member"], beat.document["strategy"]) == ("w@1", "consistent-hash")
        assert assigned.path == "/v1/groups/g/assignments?topic=t&member=w%401"
        assert locked.document == {"topic": "t", "member": "w@1", "queues": ["broker-a:0"]}
        assert unlocked.path == "/v1/groups/g/locks?topic=t&member=w%401&queues=broker-a%3A0%2Cbroker-a%3A1"
        assert left.path == "/v1/groups/g/members/w%401?role=consumer"
        assert [asked.method for asked in proxy.asked] == ["POST", "GET", "POST", "DELETE", "DELETE"]


async def test_who_never_joined_does_not_leave_and_who_cannot_leave_closes_anyway() -> None:
    """Silence ends a membership, too."""
    async with ScriptedProxy(answer=serve) as proxy:
        await Membership(proxy.url, "g", {}).close()
        assert proxy.asked == []
    async with ScriptedProxy(answer=serve) as proxy:
        member = Membership(proxy.url, "g", {}, policy=QUICK)
        await member.heartbeat()
        proxy.answer = lambda _: refused(MemberNotFound(member="w", group="g"))
        await member.close()


async def test_heartbeats_and_locks_are_repeated_until_they_arrive() -> None:
    """Said twice is as good as said once."""
    async with ScriptedProxy(refused(NoLeader()), answer=serve) as proxy:
        async with Membership(proxy.url, "g", {}, member="w", policy=QUICK) as member:
            assert (await member.heartbeat())["generation"] == 3
        assert [asked.path.partition("?")[0].rpartition("/")[2] for asked in proxy.asked] == [
            "heartbeat",
            "heartbeat",
            "w",
        ]


def test_threads_have_the_same() -> None:
    """As the async one; without an id it makes one that says where it runs."""
    with blocking_proxy(serve) as proxy:
        with BlockingMembership(proxy.url, "g", {"t": "*"}, member="w@1") as member:
            assert member.heartbeat()["generation"] == 3
            assert member.assigned("t") == ["broker-a:0"]
            assert member.lock("t", ["broker-a:0"])["locked"] == {"broker-a:0": 5}
            assert member.unlock("t") == ["broker-a:0"]
        assert [asked.method for asked in proxy.asked] == ["POST", "GET", "POST", "DELETE", "DELETE"]
        first, second = (BlockingMembership(proxy.url, "g", {}).member for _ in range(2))
        assert first != second
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*-[0-9]+-[0-9a-f]{8}", first)


def test_what_cannot_be_a_member_is_refused_before_anything_is_sent() -> None:
    """At the line that is wrong."""
    with pytest.raises(IllegalMember):
        BlockingMembership("http://127.0.0.1:1", "g", {}, member="no spaces")
    with pytest.raises(InvalidField):
        BlockingMembership("http://127.0.0.1:1", "g", {}, strategy="by-luck")
