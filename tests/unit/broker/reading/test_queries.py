"""Messages by key over a real store: offsets found, pages that go on, bounds, times, copies of retention, other topics' messages."""

import pytest

from tern_broker.reading import queries as module
from tern_broker.reading.queries import KeyQuery, find_position
from tern_wire.records.properties import MESSAGE_ID
from tests.support.broker.single_broker import HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles

FOREVER_MS = 1 << 52


def query(broker: SingleBroker, key: str, *, topic: str = "t", **more: object) -> KeyQuery:
    """A query, run to its end."""
    bounds = {"begin_ms": 0, "end_ms": FOREVER_MS, "count": 64, "size_max_bytes": 1 << 20, **more}
    found = KeyQuery(broker.store, broker.state.names.topics[topic], key, **bounds)  # type: ignore[arg-type]
    for _ in found.steps():
        pass
    return found


def bodies(found: KeyQuery) -> list[bytes]:
    """What was found says."""
    return [one.record.body for one in found.found]


def test_a_key_finds_its_messages_newest_first_with_their_offsets() -> None:
    """Whole keys only; each message's own id is a key, too."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    for number in range(6):
        broker.send("t", (number % 2, b"%d" % number), keys="all even" if number % 2 == 0 else "all odd")
        broker.pass_time(1)
    assert bodies(query(broker, "all")) == [b"5", b"4", b"3", b"2", b"1", b"0"]
    even = query(broker, "even")
    assert [(one.record.queue, one.offset) for one in even.found] == [(0, 2), (0, 1), (0, 0)]
    unique = even.found[1].record.properties[MESSAGE_ID]
    assert bodies(query(broker, unique)) == [b"2"]
    assert bodies(query(broker, "al")) == []


def test_a_batch_of_one_millisecond_finds_each_message_its_own_offset() -> None:
    """Many messages share a visible time; the position tells them apart."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    broker.send("t", *((0, b"%d" % number) for number in range(50)), keys="k")
    found = query(broker, "k")
    assert sorted((one.offset, int(one.record.body)) for one in found.found) == [(n, n) for n in range(50)]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_pages_go_on_where_the_one_before_ended(count: int) -> None:
    """Nothing twice, nothing left out, also when new messages come between two pages."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    for number in range(20):
        broker.send("t", (0, b"%d" % number), keys="k")
    seen: list[bytes] = []
    page = query(broker, "k", count=count)
    while True:
        seen += bodies(page)
        if page.next is None:
            break
        broker.send("t", (0, b"new"), keys="k")
        page = query(broker, "k", count=count, after=page.next)
    assert seen == [b"%d" % number for number in reversed(range(20))]


def test_a_long_chain_is_walked_in_bounded_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Truncated, and the next part finds the rest."""
    monkeypatch.setattr(module, "QUERY_STEPS_MAX", 200)
    broker = SingleBroker(FaultyFiles())
    broker.create()
    for number in range(30):
        broker.send("t", (0, b"%d" % number), keys="k")
    seen: list[bytes] = []
    after, parts = None, 0
    while parts == 0 or after is not None:
        page = query(broker, "k", after=after)
        assert page.is_truncated == (page.next is not None)
        seen += bodies(page)
        after, parts = page.next, parts + 1
    assert parts > 3
    assert len(seen) == len(set(seen)) == 30


def test_times_bound_what_is_found_to_the_millisecond() -> None:
    """The index knows seconds; the record decides."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    times = []
    for number in range(5):
        broker.pass_time(300)
        broker.send("t", (0, b"%d" % number), keys="k")
        times.append(broker.state.now_ms)
    assert bodies(query(broker, "k", begin_ms=times[1], end_ms=times[3])) == [b"3", b"2", b"1"]
    assert bodies(query(broker, "k", begin_ms=times[4] + 1)) == []


def test_what_was_stored_before_the_topic_was_made_is_another_topics() -> None:
    """A topic that is made again under its name begins without the messages of the one before."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    broker.send("t", (0, b"old"), keys="k")
    broker.pass_time(10)
    broker.state.names.topics["t"].created_ms = broker.state.now_ms
    broker.send("t", (0, b"new"), keys="k")
    assert bodies(query(broker, "k")) == [b"new"]


def test_a_message_that_is_in_no_queue_has_no_offset_and_one_delivered_later_has() -> None:
    """By reference: the entry of the other queue points at the same record, and is found by its position."""
    broker = SingleBroker(FaultyFiles())
    topic_id, _ = broker.create()
    broker.send("t", (0, b"a"), keys="k")
    (one,) = query(broker, "k").found
    broker.pass_time(HOUR_MS)
    (entry,) = broker.store.read_queue(topic_id, 0, 0, 1)
    offset = broker.deliver_again(topic_id, 1, entry)
    topic = broker.state.names.topics["t"]
    steps = find_position(broker.store, topic, 1, one.position)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    assert end.value.value == offset == 0


def test_what_retention_drops_between_two_steps_is_passed_over() -> None:
    """A walk is put off now and then; by the time it goes on, the log may begin later."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    broker.send("t", (0, b"old"), keys="k")
    for _ in range(600):
        broker.send("t", (0, b"other"), keys="k")
    found = KeyQuery(broker.store, broker.state.names.topics["t"], "k", 0, FOREVER_MS, 64, 1 << 20)
    steps = found.steps()
    next(steps)
    assert found.found
    broker.fill_segments("t", 6)
    broker.pass_time(100 * HOUR_MS)
    broker.send("t", (0, b"young"))
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position > 0
    for _ in steps:
        pass
    assert all(one.record.body == b"other" for one in found.found)


@pytest.mark.parametrize("place", [(0, 0), (0, 1 << 40), (1 << 40, 3), (7, 7)])
def test_a_place_that_names_nothing_finds_nothing_that_is_not_there(place: tuple[int, int]) -> None:
    """A cursor comes from a client: whatever it holds, the answer is some of the key's messages or none."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    for number in range(9):
        broker.send("t", (0, b"%d" % number), keys="k")
    assert set(bodies(query(broker, "k", after=place))) <= {b"%d" % number for number in range(9)}
