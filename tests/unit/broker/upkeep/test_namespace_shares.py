"""One namespace takes its share of topics, queues and groups, and others go on making theirs; what is counted is what is there."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tern_broker.core import saving
from tern_broker.core.machine import StateMachine
from tern_broker.upkeep import namespace_shares
from tern_broker.upkeep.namespace_shares import NamespaceShares
from tern_wire.errors import LimitReached, error_from
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.routing.membership import read_heartbeat
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.producer_settings import read_producer_change
from tern_wire.settings.topic_settings import read_topic_change
from tests.support.raft.http_leader import config_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Totals of 20, so that 60 % are 12; 200 queues."""
    totals = {"TOPICS_MAX": 20, "GROUPS_MAX": 20, "PRODUCER_GROUPS_MAX": 20, "MEMBERS_MAX": 20, "QUEUES_MAX": 200}
    totals["QUEUE_LOCKS_MAX"] = 20
    for name, total in totals.items():
        monkeypatch.setattr(namespace_shares, name, total)
    yield


def apply(state: StateMachine, kind: CommandKind, **request: object) -> None:
    """One command."""
    body = b"".join(entry_parts(5, [(kind, [encode_msgpack(request)])]))
    (verdict,) = state.apply(memoryview(body), 0, 7).verdicts
    assert not isinstance(verdict, Exception), verdict


def shares_of(state: StateMachine, percent: int = 60) -> NamespaceShares:
    """Of a node."""
    return NamespaceShares(replace(config_of("a", Path("/a")), namespace_share_percent=percent), lambda: state)


def topic(name: str, queues: int = 1, mode: str = "declare") -> dict[str, object]:
    """A declaration."""
    return {"topic": name, "queues": queues, "mode": mode}


def make_topics(state: StateMachine, shares: NamespaceShares, namespace: str, count: int) -> int:
    """Make *count* topics as the leader does; how many there were before one was refused."""
    for number in range(count):
        asked = topic(f"{namespace}t{number}")
        try:
            release = shares.take_topic(read_topic_change(asked))
        except LimitReached:
            return number
        apply(state, CommandKind.CREATE_TOPIC, **asked)
        release()
    return count


@pytest.mark.parametrize("namespace", ["", "shop%"])
def test_a_loop_that_makes_topics_ends_at_its_share_and_others_go_on(namespace: str) -> None:
    """Also those that have no namespace: they are one tenant."""
    state = StateMachine()
    shares = shares_of(state)
    assert make_topics(state, shares, namespace, 30) == 12
    assert make_topics(state, shares, "other%", 8) == 8
    # What is there may still be declared, altered, and given queues.
    shares.take_topic(read_topic_change(topic(f"{namespace}t0", 5)))()
    apply(state, CommandKind.DELETE_TOPIC, topic=f"{namespace}t0", topic_id=0)
    assert make_topics(state, shares, f"{namespace}again-", 5) == 1


def test_what_is_asked_for_at_once_counts() -> None:
    """A loop with many requests on the way, none decided yet."""
    state = StateMachine()
    shares = shares_of(state)
    releases = [shares.take_topic(read_topic_change(topic(f"shop%t{number}"))) for number in range(12)]
    with pytest.raises(LimitReached):
        shares.take_topic(read_topic_change(topic("shop%more")))
    releases[0]()
    shares.take_topic(read_topic_change(topic("shop%more")))()
    for release in releases[1:]:
        release()
    assert not shares._asked


def test_queues_have_a_share_of_their_own() -> None:
    """Few topics with many queues; a refusal holds nothing back."""
    state = StateMachine()
    shares = shares_of(state)
    for number in range(2):
        apply(state, CommandKind.CREATE_TOPIC, **topic(f"shop%t{number}", 50))
    with pytest.raises(LimitReached, match=r"^Queues of namespace 'shop' in broker group 'broker-a': 100 of 120\."):
        shares.take_topic(read_topic_change(topic("shop%t2", 50)))
    with pytest.raises(LimitReached):
        shares.take_topic(read_topic_change(topic("shop%t0", 71, "alter")))
    shares.take_topic(read_topic_change(topic("shop%t0", 70, "alter")))()
    shares.take_topic(read_topic_change(topic("t2", 50)))()
    assert not shares._asked


def test_groups_of_both_kinds_have_a_share() -> None:
    """As topics."""
    state = StateMachine()
    shares = shares_of(state)
    for number in range(12):
        apply(state, CommandKind.CREATE_GROUP, group=f"shop%g{number}", mode="declare")
        apply(state, CommandKind.ALTER_PRODUCER_GROUP, producer_group=f"shop%p{number}", create=True, settings={})
    with pytest.raises(LimitReached, match="Consumer groups of namespace 'shop'"):
        shares.take_group(read_group_change({"group": "shop%more"}))
    with pytest.raises(LimitReached, match="Producer groups of namespace 'shop'"):
        shares.take_producer_group(
            read_producer_change({"producer_group": "shop%more", "create": True, "settings": {}})
        )
    for name in ("shop%g0", "more"):
        shares.take_group(read_group_change({"group": name}))()
    for name in ("shop%p0", "more"):
        shares.take_producer_group(read_producer_change({"producer_group": name, "create": True, "settings": {}}))()
    apply(state, CommandKind.DELETE_GROUP, group="shop%g0", group_id=0)
    apply(state, CommandKind.DELETE_PRODUCER_GROUP, producer_group="shop%p0")
    shares.take_group(read_group_change({"group": "shop%more"}))()


def test_members_of_all_groups_have_a_share() -> None:
    """Who is there goes on saying so; who leaves makes room."""
    state = StateMachine()
    shares = shares_of(state)

    def says(group: str, member: str) -> dict[str, object]:
        return {"role": "producer", "group": group, "member": member, "subscriptions": {}}

    for number in range(12):
        apply(state, CommandKind.MEMBERS, op="heartbeat", **says("shop%p", f"m{number}"))
    with pytest.raises(LimitReached, match="Members of namespace 'shop'"):
        shares.take_member(read_heartbeat(says("shop%q", "more")))
    shares.take_member(read_heartbeat(says("shop%p", "m0")))()
    shares.take_member(read_heartbeat(says("p", "more")))()
    loaded = saving.load(b"".join(saving.encode(saving.take(state))))
    assert loaded.clients.members.counts.of("shop%x") == 12
    apply(state, CommandKind.MEMBERS, op="leave", role="producer", group="shop%p", member="m0")
    shares.take_member(read_heartbeat(says("shop%q", "more")))()


def test_the_counts_are_those_of_a_state_that_was_loaded() -> None:
    """They are derived, and saved nowhere."""
    state = StateMachine()
    for number in range(3):
        apply(state, CommandKind.CREATE_TOPIC, **topic(f"shop%t{number}", 2))
        apply(state, CommandKind.CREATE_GROUP, group=f"g{number}", mode="declare")
    apply(state, CommandKind.ALTER_PRODUCER_GROUP, producer_group="shop%p", create=True, settings={})
    apply(state, CommandKind.DELETE_TOPIC, topic="shop%t1", topic_id=0)
    for one in (state, saving.load(b"".join(saving.encode(saving.take(state))))):
        assert (one.names.topics_of.of("shop%x"), one.names.queues_of.of("shop%x")) == (2, 4)
        assert (one.names.groups_of.of("x"), one.names.groups_of.of("shop%x")) == (3, 0)
        assert one.producers.counts.of("shop%x") == 1


def test_a_refusal_says_whose_limit_it_is_and_how_to_raise_it() -> None:
    """Through a link, too; an operator who gives each namespace everything has the totals alone."""
    state = StateMachine()
    make_topics(state, shares_of(state), "shop%", 12)
    with pytest.raises(LimitReached) as refused:
        shares_of(state).take_topic(read_topic_change(topic("shop%more")))
    error = refused.value
    assert str(error).startswith("Topics of namespace 'shop' in broker group 'broker-a': 12 of 12. ")
    assert "TERN_BROKER_NAMESPACE_SHARE_PERCENT" in error.detail
    assert not error.retryable
    assert str(error_from(error.code, error.fields)) == error.detail
    shares_of(state, 100).take_topic(read_topic_change(topic("shop%more")))()
    with pytest.raises(LimitReached):
        shares_of(state, 1).take_topic(read_topic_change(topic("new%t")))


def heartbeat(state: StateMachine, group: str) -> None:
    """A member m of *group*, which locks may be given to."""
    says = read_heartbeat({"group": group, "member": "m", "subscriptions": {}, "queues": {}})
    apply(state, CommandKind.MEMBERS, op="heartbeat", **says.document())


def test_locks_have_a_share_and_those_that_are_renewed_take_none() -> None:
    """By the namespace of the group; what is given back may be taken by others of it."""
    state = StateMachine()
    shares = shares_of(state)
    for group in ("shop%g", "g"):
        apply(state, CommandKind.CREATE_TOPIC, **topic(f"{group}-t", 20))
        apply(state, CommandKind.CREATE_GROUP, group=group, mode="declare")
        heartbeat(state, group)

    def lock(group: str, queues: list[int]) -> None:
        release = shares.take_locks(group, f"{group}-t", queues)
        apply(state, CommandKind.MEMBERS, op="lock", group=group, topic=f"{group}-t", member="m", queues=queues)
        release()

    lock("shop%g", list(range(12)))
    lock("shop%g", list(range(12)))
    with pytest.raises(LimitReached, match="Queue locks of namespace 'shop'"):
        lock("shop%g", [11, 12])
    lock("g", list(range(8)))
    asked = {"group": "shop%g", "topic": "shop%g-t", "member": "m"}
    apply(state, CommandKind.MEMBERS, op="unlock", queues=[0, 1], **asked)
    lock("shop%g", [12, 13])
    again = saving.load(b"".join(saving.encode(saving.take(state))))
    assert again.clients.locks.counts.of("shop%g") == state.clients.locks.counts.of("shop%g") == 12
    apply(state, CommandKind.MEMBERS, op="leave", role="consumer", group="shop%g", member="m")
    assert state.clients.locks.counts.of("shop%g") == 0
