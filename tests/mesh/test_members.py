"""Membership, assignment and queue locks through real proxies and a replicated broker group: SDK, HTTP and command line."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_client import BlockingAdmin, BlockingMembership
from tern_wire.errors import MemberNotFound, QueueLockLost
from tern_wire.routing.membership import Strategy
from tests.support.mesh.mesh import Mesh, eventually

QUEUES = 12


def names(count: int = QUEUES) -> list[str]:
    """The queues of a topic of *count*."""
    return [f"broker-a:{number}" for number in range(count)]


def knows(mesh: Mesh, proxy: int, topic: str) -> bool:
    """Whether *proxy* has heard of *topic*."""
    return mesh.settled("GET", f"/v1/topics/{topic}/offsets", proxy=proxy).status_code == 200


@contextmanager
def crew(
    mesh: Mesh, name: str, *members: str, strategy: str = Strategy.AVERAGELY
) -> Iterator[list[BlockingMembership]]:
    """*members* of group *name*, which consume the topic of that name, turn and turn about through both proxies."""
    mesh.create(name, name, queues=QUEUES)
    for proxy in (0, 1):
        eventually(partial(knows, mesh, proxy, name), within_s=30, what=f"proxy {proxy} knows the topic")
    with ExitStack() as stack:
        found = [
            stack.enter_context(
                BlockingMembership(
                    f"http://127.0.0.1:{mesh.port_base + number % 2}",
                    name,
                    {name: "*"},
                    member=member,
                    strategy=strategy,
                )
            )
            for number, member in enumerate(members)
        ]
        for member in found:
            member.heartbeat()
        yield found


def readers(mesh: Mesh, group: str, strategy: str = "") -> dict[str, list[str]]:
    """Who reads which queues, as the second proxy says."""
    with BlockingAdmin(f"http://127.0.0.1:{mesh.port_base + 1}") as admin:
        found: dict[str, list[str]] = admin.assignments(group, group, strategy=strategy)["assignments"]
    return found


def moved(before: dict[str, list[str]], after: dict[str, list[str]]) -> int:
    """How many queues have another reader."""
    reader = {queue: member for member, share in before.items() for queue in share}
    return sum(reader.get(queue) != member for member, share in after.items() for queue in share)


def test_members_through_any_proxy_share_the_queues_and_one_that_leaves_gives_its_own_back(mesh: Mesh) -> None:
    """Every queue has one reader, at both proxies; the generation moves with the one that goes."""
    with crew(mesh, "share", "m1", "m2", "m3") as (first, second, third):
        assert [len(one.assigned("share")) for one in (first, second, third)] == [4, 4, 4]
        assert readers(mesh, "share") == {"m1": names()[:4], "m2": names()[4:8], "m3": names()[8:]}
        before = first.heartbeat()["generation"]
        assert first.heartbeat()["generation"] == before
        second.close()
        assert first.heartbeat()["generation"] > before
        assert readers(mesh, "share") == {"m1": names()[:6], "m3": names()[6:]}
        with pytest.raises(MemberNotFound), BlockingMembership(mesh.endpoint, "share", {}, member="m2") as stranger:
            stranger.assigned("share")


def test_consistent_hash_moves_two_shares_at_most(mesh: Mesh) -> None:
    """When one of four goes, and when one comes."""
    with crew(mesh, "ring", "a", "b", "c", "d", strategy=Strategy.CONSISTENT_HASH) as members:
        before = readers(mesh, "ring")
        assert sorted(queue for share in before.values() for queue in share) == sorted(names())
        members[1].close()
        after = readers(mesh, "ring")
        assert sorted(after) == ["a", "c", "d"]
        assert moved(before, after) <= 2 * QUEUES // 4
        with BlockingMembership(mesh.endpoint, "ring", {"ring": "*"}, member="e") as newcomer:
            newcomer.heartbeat()
            assert moved(after, readers(mesh, "ring", Strategy.CONSISTENT_HASH)) <= QUEUES // 4


@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_strategy_can_be_asked_for(mesh: Mesh, strategy: Strategy) -> None:
    """Each queue at most once; all of them but under by-config, where nobody has asked for any."""
    with crew(mesh, "ways", "m1", "m2", "m3"):
        shared = sorted(queue for share in readers(mesh, "ways", strategy).values() for queue in share)
        assert shared == ([] if strategy is Strategy.BY_CONFIG else sorted(names()))


def test_a_queue_has_one_holder_and_its_epoch_grows_when_the_next_one_takes_it(mesh: Mesh) -> None:
    """Renewing keeps the epoch; giving up and leaving free the queue."""
    with crew(mesh, "locked", "m1", "m2") as (first, second):
        mine = first.lock("locked", ["broker-a:0", "broker-a:1"])["locked"]
        assert sorted(mine) == ["broker-a:0", "broker-a:1"]
        assert first.lock("locked", ["broker-a:0"])["locked"] == {"broker-a:0": mine["broker-a:0"]}
        assert second.lock("locked", ["broker-a:0"])["held"] == {"broker-a:0": "m1"}
        assert first.unlock("locked", ["broker-a:0"]) in (
            ["broker-a:0"],
            [],
        )  # [] when the answer to the first try was lost
        theirs = second.lock("locked", ["broker-a:0"])["locked"]
        assert theirs["broker-a:0"] > mine["broker-a:0"]
        with BlockingAdmin(mesh.endpoint) as admin:
            with pytest.raises(QueueLockLost, match="broker-a:0"):
                admin.commit_offsets("locked", "locked", {"broker-a:0": 0}, epochs=mine)
            admin.commit_offsets("locked", "locked", {"broker-a:0": 0}, epochs=theirs)
            assert admin.group_offsets("locked", "locked")["broker-a:0"] == 0
        first.close()
        assert second.lock("locked", ["broker-a:1"])["locked"]["broker-a:1"] > mine["broker-a:1"]
        with BlockingAdmin(mesh.endpoint) as admin:
            locks = admin.locks("locked", "locked")["locks"]
        assert {queue: lock["member"] for queue, lock in locks.items()} == {"broker-a:0": "m2", "broker-a:1": "m2"}


def ternmq(mesh: Mesh, *arguments: str) -> Result:
    """The command line at the first proxy."""
    done = CliRunner().invoke(app, [*arguments, "--endpoint", mesh.endpoint])
    assert done.exit_code == 0, f"{arguments}: {done.stderr}"
    return done


def told(mesh: Mesh, *arguments: str) -> dict[str, Any]:
    """What it prints as JSON."""
    found: dict[str, Any] = json.loads(ternmq(mesh, *arguments, "-o", "json").stdout)
    return found


def test_members_that_subscribe_otherwise_are_reported_everywhere(mesh: Mesh) -> None:
    """In the heartbeat's answer, in the group's members, and as a warning of the command line; nobody is stopped."""
    with crew(mesh, "trap", "m1"), BlockingMembership(mesh.endpoint, "trap", {"trap": "A || B"}, member="m2") as other:
        assert other.heartbeat()["subscription_conflict"] == ["trap"]
        document = told(mesh, "group", "members", "trap")
        assert [member["subscriptions"] for member in document["members"]] == [{"trap": "*"}, {"trap": "tags:A || B"}]
        assert document["subscription_conflict"][0]["topic"] == "trap"
        shown = ternmq(mesh, "group", "members", "trap")
        assert "m2" in shown.stdout
        assert "differ on topic trap" in shown.stderr
        assert len(other.assigned("trap")) == QUEUES // 2


def test_the_command_line_shows_assignments_and_locks(mesh: Mesh) -> None:
    """As tables and as JSON."""
    with crew(mesh, "shown", "m1", "m2") as (first, _):
        first.lock("shown", ["broker-a:3"])
        assert told(mesh, "group", "assignments", "shown", "shown")["assignments"]["m1"] == names()[:6]
        circle = ternmq(mesh, "group", "assignments", "shown", "shown", "--strategy", "averagely-by-circle", "-m", "m2")
        assert "broker-a:1 broker-a:3" in circle.stdout
        assert told(mesh, "group", "locks", "shown", "shown")["locks"]["broker-a:3"]["member"] == "m1"
        assert "broker-a:3" in ternmq(mesh, "group", "locks", "shown", "shown").stdout
