"""Places of tails: which queues are behind, what is new, and that an id names exactly what was handed out."""

import pytest

from tern_proxy.core.tailing.event_ids import GroupPlace, read_id
from tern_proxy.core.tailing.places import Places
from tern_wire.errors import LimitReached
from tern_wire.limits_tails import TAIL_QUEUES_MAX

A, B = "broker-a", "broker-b"


def places_at(*offsets: int, topic_id: int = 5) -> Places:
    """Places in broker-a."""
    places = Places("orders")
    places.begin(A, GroupPlace(topic_id, offsets))
    return places


def test_a_queue_is_behind_until_it_is_read() -> None:
    """And each look begins with another queue, so that none waits for a long one."""
    places = places_at(0, 3, 7)
    places.learn(A, [(0, 4), (1, 3), (2, 9)])
    assert sorted(places.behind([A])) == [(A, 0), (A, 2)]
    assert {places.behind([A])[0] for _ in range(4)} == {(A, 0), (A, 2)}
    places.moved((A, 0), 4)
    assert places.behind([A]) == [(A, 2)]
    assert places.behind([B]) == []
    assert read_id("orders", places.event_id) == {A: GroupPlace(5, (4, 3, 7))}


def test_a_new_queue_is_read_from_its_first_message() -> None:
    """In a known broker group, and in one that the topic did not have before."""
    places = places_at(4)
    places.learn(A, [(0, 4), (2, 2)])
    assert not places.keep_to(B, 9)
    places.learn(B, [(0, 1)])
    assert sorted(places.behind([A, B])) == [(A, 2), (B, 0)]
    assert read_id("orders", places.event_id) == {A: GroupPlace(5, (4, 0, 0)), B: GroupPlace(9, (0,))}


def test_an_older_answer_takes_nothing_back() -> None:
    """Answers of a broker group and of its pulls may overtake each other."""
    places = places_at(4)
    places.learn(A, [(0, 9)])
    places.learn(A, [(0, 6)])
    places.moved((A, 0), 8)
    assert places.behind([A]) == [(A, 0)]


def test_a_topic_made_anew_is_read_from_its_first_message() -> None:
    """Its id is larger. A smaller one comes from routes of before, and changes nothing."""
    places = places_at(4, topic_id=5)
    assert not places.keep_to(A, 5)
    assert not places.keep_to(A, 4)
    assert places.offset((A, 0)) == 4
    assert places.keep_to(A, 6)
    places.learn(A, [(0, 1)])
    assert read_id("orders", places.event_id) == {A: GroupPlace(6, (0,))}


def test_a_queue_that_ends_before_its_place_begins_anew() -> None:
    """The broker group was made anew with the same ids; the others stay."""
    places = places_at(4, 7, 2)
    places.forget_beyond(A, [4, 6])
    assert read_id("orders", places.event_id) == {A: GroupPlace(5, (4, 0, 2))}


def test_a_topic_with_too_many_queues_is_refused() -> None:
    """At the begin, and when it grows."""
    with pytest.raises(LimitReached, match="offset"):
        places_at(*[0] * (TAIL_QUEUES_MAX + 1))
    places = places_at(*[0] * TAIL_QUEUES_MAX)
    places.keep_to(B, 1)
    with pytest.raises(LimitReached):
        places.learn(B, [(0, 0)])
