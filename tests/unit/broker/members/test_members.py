"""Members of groups: heartbeats, silence, conflicts, generations, seats; and that a saved state goes on as if nothing had been."""

import random

import pytest

from tern_broker.core.members import members as members_module
from tern_broker.core.members.members import Members
from tern_wire.errors import LimitReached
from tern_wire.limits import HEARTBEAT_INTERVAL_MS, MEMBER_EXPIRY_MS
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.routing.membership import Heartbeat, Role, Strategy, read_heartbeat

QUEUES = [f"broker-a:{number}" for number in range(24)]


def beat(
    member: str, group: str = "billing", *, role: Role = Role.CONSUMER, text: str = "*", **more: object
) -> Heartbeat:
    """A heartbeat of *member*, which subscribes to `orders` with *text*."""
    return read_heartbeat({"role": role, "group": group, "member": member, "subscriptions": {"orders": text}, **more})


def shares(members: Members, strategy: Strategy = Strategy.AVERAGELY) -> dict[str, list[str]]:
    """Who reads what of `orders`."""
    found: dict[str, list[str]] = members.assignments("billing", "orders", QUEUES, strategy)["assignments"]
    return found


def saved(members: Members) -> Members:
    """*members* after a restart."""
    loaded = Members()
    loaded.unpack(decode_msgpack(encode_msgpack(members.pack())))
    return loaded


def test_a_member_joins_once_and_stays_while_it_is_heard() -> None:
    """The generation moves with the first heartbeat, not with the next ones; silence of 120 s ends it, not a ms earlier."""
    members = Members()
    first = members.heartbeat(1_000, beat("a"), {"orders": 8})
    assert (first["joined"], first["members"]) == (True, 1)
    for beats in range(1, 10):
        again = members.heartbeat(1_000 + beats * HEARTBEAT_INTERVAL_MS, beat("a"), {"orders": 8})
        assert (again["joined"], again["generation"]) == (False, first["generation"])
        assert not members.expire(1_000 + beats * HEARTBEAT_INTERVAL_MS)
    last_ms = 1_000 + 9 * HEARTBEAT_INTERVAL_MS
    assert not members.is_due(last_ms + MEMBER_EXPIRY_MS - 1)
    assert members.is_due(last_ms + MEMBER_EXPIRY_MS)
    assert members.expire(last_ms + MEMBER_EXPIRY_MS) == [(Role.CONSUMER, "billing", "a")]
    assert not members.is_due(1 << 60)
    assert not members.has(Role.CONSUMER, "billing", "a")


def test_how_long_a_member_may_be_silent_is_said_when_it_comes_and_saved() -> None:
    """Later heartbeats do not change it, so that replicas that load a state and those that do not let go of it at the same time."""
    members = Members()
    members.heartbeat(0, beat("short"), {"orders": 8}, 5_000)
    members.heartbeat(0, beat("usual"), {"orders": 8})
    members.heartbeat(4_000, beat("short"), {"orders": 8}, 1_000)
    for kept in (members, saved(members)):
        assert [kept.is_due(now_ms) for now_ms in (5_000, 8_999, 9_000)] == [False, False, True]
        assert kept.expire(9_000) == [(Role.CONSUMER, "billing", "short")]
        assert kept.expire(MEMBER_EXPIRY_MS) == [(Role.CONSUMER, "billing", "usual")]


def test_the_generation_moves_with_every_change_and_never_comes_back() -> None:
    """Joins, leaves, another filter, another strategy, a topic that grew or went; also after the group was empty."""
    members = Members()
    seen = [members.heartbeat(0, beat("a"), {"orders": 8})["generation"]]
    for says, queues in (
        (beat("b"), 8),
        (beat("b", text="A"), 8),
        (beat("b", text="A", strategy=Strategy.CONSISTENT_HASH), 8),
        (beat("a"), 16),
        (beat("a"), 0),
        (beat("a"), 16),
    ):
        seen.append(members.heartbeat(0, says, {"orders": queues})["generation"])
    assert members.leave(Role.CONSUMER, "billing", "b")
    assert members.leave(Role.CONSUMER, "billing", "a")
    assert not members.leave(Role.CONSUMER, "billing", "a")
    seen.append(members.heartbeat(0, beat("a"), {"orders": 8})["generation"])
    assert seen == sorted(set(seen))


def test_members_that_subscribe_otherwise_are_reported_and_not_stopped() -> None:
    """RocketMQ's trap: in one group all must subscribe alike. Both answers and the description name the topic and who says what."""
    members = Members()
    assert not members.heartbeat(0, beat("a", text="A || B"), {})["subscription_conflict"]
    assert not members.heartbeat(0, beat("b", text="A || B"), {})["subscription_conflict"]
    assert members.heartbeat(0, beat("c", text="A"), {})["subscription_conflict"] == ["orders"]
    assert members.heartbeat(1, beat("a", text="A || B"), {})["subscription_conflict"] == ["orders"]
    says = beat("d", text="A || B")
    more = read_heartbeat({**says.document(), "subscriptions": {**says.subscriptions, "returns": "*"}})
    assert members.heartbeat(1, more, {})["subscription_conflict"] == ["orders", "returns"]
    orders, returns = members.describe(Role.CONSUMER, "billing")["subscription_conflict"]
    assert orders["filters"] == [
        {"filter": "A || B", "count": 3, "members": ["a", "b", "d"]},
        {"filter": "A", "count": 1, "members": ["c"]},
    ]
    assert [(said["filter"], said["count"]) for said in returns["filters"]] == [("", 3), ("*", 1)]
    for gone in ("c", "d"):
        members.leave(Role.CONSUMER, "billing", gone)
    assert members.describe(Role.CONSUMER, "billing")["subscription_conflict"] == []


def test_producers_are_members_of_their_own_group_and_never_in_conflict() -> None:
    """A producer group may bear the name of a consumer group; who sends to what is not a subscription."""
    members = Members()
    members.heartbeat(0, beat("p1", role=Role.PRODUCER), {"orders": 8})
    answer = members.heartbeat(0, read_heartbeat({"role": "producer", "group": "billing", "member": "p2"}), {})
    assert (answer["members"], answer["subscription_conflict"]) == (2, [])
    members.heartbeat(0, beat("c"), {"orders": 8})
    assert [row["member"] for row in members.describe(Role.PRODUCER, "billing")["members"]] == ["p1", "p2"]
    assert [row["member"] for row in members.describe(Role.CONSUMER, "billing")["members"]] == ["c"]
    assert list(shares(members)) == ["c"]


def test_only_members_that_subscribe_to_the_topic_read_it() -> None:
    """And the strategy is the asked one, else that of the first subscriber; all that are named are told."""
    members = Members()
    for name, strategy in (("a", Strategy.AVERAGELY_BY_CIRCLE), ("b", Strategy.AVERAGELY)):
        members.heartbeat(0, beat(name, strategy=strategy), {"orders": 24})
    members.heartbeat(0, read_heartbeat({"group": "billing", "member": "0", "subscriptions": {"returns": ""}}), {})
    found = members.assignments("billing", "orders", QUEUES, None)
    assert found["strategy"] == "averagely-by-circle"
    assert found["strategies"] == ["averagely", "averagely-by-circle"]
    assert found["assignments"]["a"] == QUEUES[::2]
    assert members.assignments("billing", "orders", QUEUES, Strategy.AVERAGELY)["assignments"]["a"] == QUEUES[:12]
    broadcast = members.assignments("billing", "orders", QUEUES, None, is_broadcast=True)
    assert broadcast["assignments"] == {"a": QUEUES, "b": QUEUES}
    nobody = members.assignments("other", "orders", QUEUES, None)
    assert (nobody["assignments"], nobody["unassigned"], nobody["generation"]) == ({}, QUEUES, 0)


def test_by_config_and_rooms_come_from_the_heartbeats() -> None:
    """What a member asks for, and where it runs; queues that are left over are named."""
    members = Members()
    members.heartbeat(0, beat("a", queues={"orders": ["broker-a:3", "broker-a:99"]}), {})
    members.heartbeat(0, beat("b", room="hz"), {})
    found = members.assignments("billing", "orders", QUEUES, Strategy.BY_CONFIG)
    assert found["assignments"] == {"a": ["broker-a:3"], "b": []}
    assert found["unassigned"] == [queue for queue in QUEUES if queue != "broker-a:3"]
    near = members.assignments("billing", "orders", ["hz--a:0", "sh--b:0"], Strategy.MACHINE_ROOM_NEARBY)
    assert near["assignments"] == {"a": ["sh--b:0"], "b": ["hz--a:0"]}


@pytest.mark.parametrize("seed", range(20))
def test_queues_stay_with_their_members_through_joins_leaves_and_crashes(seed: int) -> None:
    """Under consistent-hash one change moves at most 2/n of the queues, whoever joins, leaves or falls silent; each has one reader."""
    rng = random.Random(seed)
    members, now_ms = Members(), 0
    living: dict[str, int] = {}
    for step in range(120):
        now_ms += HEARTBEAT_INTERVAL_MS // 2
        before = shares(members, Strategy.CONSISTENT_HASH)
        if len(living) < 2 or rng.random() < 0.45:
            living[name := f"m{rng.randrange(1_000)}-{step}"] = now_ms
            members.heartbeat(now_ms, beat(name), {"orders": 24})
        elif rng.random() < 0.5:
            name = rng.choice(sorted(living))
            del living[name]
            assert members.leave(Role.CONSUMER, "billing", name)
        else:
            name = rng.choice(sorted(living))
            del living[name]  # it crashes: the others are heard until it is silent for too long
            due_ms = max(now_ms, _heard(members, name) + MEMBER_EXPIRY_MS)
            while now_ms < due_ms:
                now_ms = min(due_ms, now_ms + HEARTBEAT_INTERVAL_MS)
                for other in living:
                    members.heartbeat(now_ms, beat(other), {"orders": 24})
                assert [gone for _, _, gone in members.expire(now_ms)] == ([name] if now_ms == due_ms else [])
        for other in living:
            members.heartbeat(now_ms, beat(other), {"orders": 24})
        after = shares(members, Strategy.CONSISTENT_HASH)
        assert sorted(after) == sorted(living)
        assert sorted(queue for share in after.values() for queue in share) == sorted(QUEUES)
        reader = {queue: name for name, share in before.items() for queue in share}
        moved = sum(reader.get(queue, name) != name for name, share in after.items() for queue in share)
        assert moved <= -(-2 * len(QUEUES) // max(len(before), len(after))), step
        if rng.random() < 0.2:
            members = saved(members)
            assert shares(members, Strategy.CONSISTENT_HASH) == after


def _heard(members: Members, name: str) -> int:
    rows = members.describe(Role.CONSUMER, "billing")["members"]
    return int(next(row["heard_at"] for row in rows if row["member"] == name))


@pytest.mark.parametrize("seed", range(10))
def test_a_saved_state_goes_on_like_the_one_that_was_never_saved(seed: int) -> None:
    """The same calls give the same answers and the same next save, whatever came before the save."""
    rng = random.Random(seed)
    live, loaded = Members(), Members()
    now_ms = 0
    for _ in range(300):
        now_ms += rng.randrange(HEARTBEAT_INTERVAL_MS)
        says = beat(
            f"m{rng.randrange(12)}",
            rng.choice(["billing", "shipping"]),
            role=rng.choice(list(Role)),
            text=rng.choice("AB*"),
        )
        assert live.is_due(now_ms) == loaded.is_due(now_ms)
        assert live.expire(now_ms) == loaded.expire(now_ms)
        if rng.random() < 0.3:
            leaving = (says.role, says.group, says.member)
            assert live.leave(*leaving) == loaded.leave(*leaving)
        else:
            queues = {"orders": rng.choice([8, 8, 8, 16])}
            assert live.heartbeat(now_ms, says, queues) == loaded.heartbeat(now_ms, says, queues)
        assert live.pack() == loaded.pack()
        if rng.random() < 0.1:
            loaded = saved(live)


def test_too_many_members_or_words_are_refused_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per group, in all, and bytes; who is in may go on, and a place that becomes free is free."""
    monkeypatch.setattr(members_module, "MEMBERS_PER_GROUP_MAX", 2)
    monkeypatch.setattr(members_module, "MEMBERS_MAX", 3)
    members = Members()
    for name, group in (("a", "billing"), ("b", "billing"), ("a", "shipping")):
        members.heartbeat(0, beat(name, group), {})
    before = members.pack()
    for name, group in (("c", "billing"), ("b", "shipping")):
        with pytest.raises(LimitReached):
            members.heartbeat(1, beat(name, group), {})
    assert members.pack() == before
    members.heartbeat(1, beat("a"), {})
    members.leave(Role.CONSUMER, "billing", "b")
    members.heartbeat(1, beat("c"), {})
    monkeypatch.setattr(members_module, "GROUP_MEMBERS_SIZE_MAX_BYTES", 200)
    before = members.pack()
    with pytest.raises(LimitReached):
        members.heartbeat(2, beat("c", text="A" * 200), {})
    assert members.pack() == before
    assert members.heartbeat(2, beat("c"), {})["joined"] is False


def test_what_members_once_said_is_forgotten() -> None:
    """A client that subscribes to other topics all the time does not make the state grow."""
    members = Members()
    for number in range(500):
        topic = f"t{number}"
        says = read_heartbeat({"group": "billing", "member": "a", "subscriptions": {topic: "*"}})
        members.heartbeat(number, says, {topic: 1})
    (crew,) = members.pack()["crews"]
    assert crew["queues"] == {"t499": 1}
