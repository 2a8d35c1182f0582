"""Whom a proxy asks about a key or a message group: the same one whatever it happens to see, or nobody."""

import pytest

from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.core.sending.owners import owner_of_several, owner_or_refuse
from tern_proxy.core.sending.topic import Topic
from tern_proxy.core.transactions.begins import Begin, HalfMessage, broker_group_of_key
from tern_wire.errors import OwnerUnknown, PlacementChanged, TopicsApart
from tern_wire.link.rows import key_hash, message_group_hash
from tern_wire.routing.placement import Placement, owners, slot_of_key, slot_of_message_group
from tern_wire.routing.route import TopicRoute

A, B, BOTH = ("broker-a",), ("broker-b",), ("broker-a", "broker-b")
BORN = Placement(epoch=1, groups=A)
GROWING = BORN.next(BOTH)
ENDED = GROWING.ended()


def slot_of(owner: str) -> int:
    """One that *owner* has when both share."""
    return owners(BOTH).index(owner)


def topic_of(placement: Placement, *hosts: str, name: str = "t", is_whole: bool = True) -> Topic:
    """The topic as a proxy sees it that hears of *hosts*, all of which say *placement*."""
    part = TopicRoute(topic_id=1, queues=4, type="MIXED", perm=6, placement=str(placement))
    return Topic(name, dict.fromkeys(hosts, part), is_whole=is_whole)


def key_of(owner: str) -> str:
    """An idempotency key of topic t that belongs to *owner* when both share."""
    keys = (f"k{number}" for number in range(1_000))
    return next(key for key in keys if owners(BOTH)[slot_of_key(key_hash(b"t", key.encode()))] == owner)


def begin_of(key: str, *topics: Topic, queue: str = "") -> Begin:
    """A transaction with one message for each of *topics*, the first one in *queue*."""
    halves = tuple(
        HalfMessage(topic=topic, message=PackedMessage(body=b"x", queue="" if number else queue), at="")
        for number, topic in enumerate(topics)
    )
    return Begin(producer_group="p", check_after_ms=0, key=key, halves=halves)


# Keys and message groups ------------------------------------------------------------------------------------------
def test_the_owner_of_before_is_asked_first_and_the_next_one_when_it_has_said_moved() -> None:
    """And once nothing moves, the owner alone."""
    slot = slot_of("broker-b")
    assert owner_or_refuse("t", GROWING, BOTH, slot) == "broker-a"
    assert owner_or_refuse("t", GROWING, BOTH, slot, "broker-a") == "broker-b"
    assert owner_or_refuse("t", GROWING, BOTH, slot, "broker-b") == "broker-a", "it has not heard of the move"
    assert owner_or_refuse("t", ENDED, BOTH, slot) == "broker-b"
    with pytest.raises(PlacementChanged):
        owner_or_refuse("t", ENDED, BOTH, slot, "broker-b")
    with pytest.raises(PlacementChanged):
        owner_or_refuse("t", GROWING, BOTH, slot_of("broker-a"), "broker-a")


@pytest.mark.parametrize(
    ("placement", "hosts", "owner", "moved_from", "missing"),
    [
        (GROWING, B, "broker-b", "", "broker-a"),
        (GROWING, A, "broker-b", "broker-a", "broker-b"),
        (ENDED, A, "broker-b", "", "broker-b"),
        (BORN, B, "broker-b", "", "broker-a"),
    ],
)
def test_an_owner_that_is_not_in_sight_is_named_and_nobody_is_asked_in_its_place(
    placement: Placement, hosts: tuple[str, ...], owner: str, moved_from: str, missing: str
) -> None:
    """Of before, of now, of a topic that is still being created, of a broker group that joins."""
    with pytest.raises(OwnerUnknown) as refused:
        owner_or_refuse("t", placement, hosts, slot_of(owner), moved_from)
    error = refused.value
    assert (error.code, error.status, error.retryable) == ("owner-unknown", 503, True)
    assert f"'{missing}'" in error.detail


def test_keys_and_message_groups_of_a_topic_are_refused_when_the_owner_of_before_is_not_in_sight() -> None:
    """As with whole routes, or not at all; messages without both go wherever the topic is."""
    whole, part = topic_of(GROWING, *BOTH), topic_of(GROWING, *B)
    key = key_hash(b"t", key_of("broker-b").encode())
    names = (f"m{number}" for number in range(1_000))
    hashes = (message_group_hash(name.encode()) for name in names)
    message_group = next(each for each in hashes if owners(BOTH)[slot_of_message_group(each)] == "broker-b")
    assert whole.queue_of_key(key, 0).broker_group == "broker-a"
    assert whole.queue_of_message_group(message_group).broker_group == "broker-a"
    with pytest.raises(OwnerUnknown):
        part.queue_of_key(key, 0)
    with pytest.raises(OwnerUnknown):
        part.queue_of_message_group(message_group)
    assert part.queue_at(0, B).broker_group == "broker-b"


def test_where_nobody_has_said_where_a_topic_is_placed_cold_routes_do_not_say_it_either() -> None:
    """They name some of the broker groups that have it; warm ones name all."""
    key = key_hash(b"t", b"k")
    with pytest.raises(OwnerUnknown) as refused:
        topic_of(Placement(), "broker-a", is_whole=False).queue_of_key(key, 0)
    assert "placement" in refused.value.detail
    assert topic_of(Placement(), "broker-a").queue_of_key(key, 0).broker_group == "broker-a"
    assert topic_of(BORN, "broker-a", is_whole=False).queue_of_key(key, 0).broker_group == "broker-a"


# Transactions -----------------------------------------------------------------------------------------------------
def test_a_transaction_of_one_topic_goes_where_its_key_belongs_or_nowhere() -> None:
    """Not to whoever happens to be in sight."""
    begin = begin_of(key_of("broker-b"), topic_of(ENDED, *BOTH))
    assert broker_group_of_key(begin, BOTH) == ("broker-b", False)
    assert broker_group_of_key(begin_of(key_of("broker-b"), topic_of(GROWING, *BOTH)), BOTH) == ("broker-a", False)
    for placement in (ENDED, GROWING):
        hidden = "broker-b" if placement is ENDED else "broker-a"
        hosts = tuple(name for name in BOTH if name != hidden)
        with pytest.raises(OwnerUnknown):
            broker_group_of_key(begin_of(key_of("broker-b"), topic_of(placement, *hosts)), hosts)
    pinned = begin_of(key_of("broker-b"), topic_of(ENDED, *BOTH), queue="broker-a:1")
    assert broker_group_of_key(pinned, A) == ("broker-a", True), "its sender has chosen"


def test_a_transaction_of_several_topics_follows_their_placements_and_not_who_hosts_them_now() -> None:
    """Its own key's owner where all are placed, or one that follows from the placements alone."""
    key = key_of("broker-b")
    wide, narrow = topic_of(ENDED, *BOTH), topic_of(BORN, *BOTH, name="u")
    assert broker_group_of_key(begin_of(key, wide, topic_of(ENDED, *BOTH, name="u")), BOTH) == ("broker-b", False)
    assert broker_group_of_key(begin_of(key, wide, narrow), BOTH) == ("broker-a", True), "u is hosted by b, not placed"
    with pytest.raises(OwnerUnknown):
        broker_group_of_key(begin_of(key, topic_of(ENDED, *B), narrow), B)
    with pytest.raises(TopicsApart):
        broker_group_of_key(begin_of(key, topic_of(Placement(epoch=1, groups=B), *BOTH), narrow), BOTH)


def test_while_one_of_several_topics_moves_a_key_is_taken_only_where_it_belongs_before_and_after() -> None:
    """Nobody can say MOVED about such a key, since it is stored wherever it is sent."""
    slot = slot_of("broker-b")
    both = Placement(epoch=1, groups=BOTH)
    growing = [("t", both, BOTH), ("u", GROWING, BOTH)]
    with pytest.raises(OwnerUnknown) as refused:
        owner_of_several(growing, slot)
    assert "'u'" in refused.value.detail
    assert owner_of_several(growing, slot_of("broker-a")) == ("broker-a", False)
    assert owner_of_several([("t", GROWING, BOTH), ("u", BORN, A)], slot) == ("broker-a", True)
    assert owner_of_several([("t", GROWING, BOTH), ("u", both, BOTH)], slot) == ("broker-a", False)
    assert owner_of_several([("t", GROWING, BOTH), ("u", both, BOTH)], slot, "broker-a") == ("broker-b", False)
    three = ("broker-a", "broker-b", "broker-c")
    wide = Placement(epoch=1, groups=three)
    shrinking = [("t", wide.next(BOTH), three), ("u", wide.next(("broker-b", "broker-c")), three)]
    with pytest.raises(OwnerUnknown):
        # Before one of both has begun, or after it has ended, it is another one.
        owner_of_several(shrinking, owners(three).index("broker-a"))
    many = [(f"t{number}", GROWING, BOTH) for number in range(9)]
    with pytest.raises(OwnerUnknown):
        owner_of_several(many, slot)
