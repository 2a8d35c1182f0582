"""Making room spares what a consumer group has not read: it is copied, or keeps the log as it is; a topic may say that its oldest may go."""

from typing import Any

import numpy as np
import pytest

from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.unread import Holder, held_by
from tern_store import unread
from tern_store.retention import DiskUse, RetentionRules
from tern_store.unread import UnreadScan
from tern_store.visibility_times import offset_at, visible_at
from tern_wire.errors import DiskFull, error_from
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tests.sim.planted.planting import changed
from tests.support.broker.single_broker import HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles

SEGMENT = 1 << 16
FULL, HALF = DiskUse(86, 100), DiskUse(50, 100)


def broker_of(files: FaultyFiles | None = None, **attributes: str) -> tuple[SingleBroker, int, int]:
    """A broker whose topic "t" has *attributes*; ids of topic and group."""
    broker = SingleBroker(files or FaultyFiles())
    topic_id, group_id = broker.create("t", 1, "g")
    if attributes:
        broker.ask(CommandKind.ALTER_TOPIC, encode_msgpack({"topic": "t", "mode": "alter", "attributes": attributes}))
    return broker, topic_id, group_id


def read(broker: SingleBroker, count: int, group: str = "g", topic: str = "t") -> list[bytes]:
    """Receive and ack so many."""
    found: list[bytes] = []
    while len(found) < count:
        got = broker.receive(topic, group, min(32, count - len(found)))
        assert got
        broker.ack(*(row for row, _ in got))
        found += [body for _, body in got]
    return found


def seek(broker: SingleBroker, offset: int) -> None:
    """The group goes to *offset* of its only queue."""
    request = {"group": "g", "topic": "t", "to": {"offsets": {"0": offset}}}
    answer = broker.ask(CommandKind.SEEK, encode_msgpack(request))
    assert not isinstance(answer, Exception), answer


def make_room(broker: SingleBroker, steps: int = 50) -> None:
    """Save, and let retention look at a disk that is 86 % full."""
    broker.save()
    broker.trimmer.disk_used(FULL)
    broker.retain(steps)


def begin(broker: SingleBroker) -> int:
    """Which segment the log begins with."""
    return broker.store.log.start.position // SEGMENT


def whole_segments(broker: SingleBroker) -> int:
    """Segments that may go: all but the last."""
    return len(broker.store.log.segment_bases) - 1


def test_a_full_disk_drops_nothing_that_a_group_has_not_read() -> None:
    """Not a message, however long it goes on; and everything once the group has read on."""
    broker, topic_id, _ = broker_of()
    broker.fill_segments("t", 4)
    end = broker.state.names.topics_by_id[topic_id].ends[0]
    read(broker, 1)
    make_room(broker)
    holder = broker.trimmer.holder
    assert holder is not None
    assert (begin(broker), broker.lost, holder.topic, holder.group) == (0, [], "t", "g")
    assert 10 < holder.messages < end
    assert len(broker.pull(topic_id, 0, 1)) == end - 1
    read(broker, end - 1)
    make_room(broker)
    assert begin(broker) >= 3
    assert broker.lost == []
    assert broker.trimmer.holder is None


def test_a_topic_that_nobody_has_begun_to_read_is_unread() -> None:
    """Its first group begins with the oldest message: a producer may be there a day before its consumer."""
    broker, topic_id, _ = broker_of()
    broker.fill_segments("t", 3)
    make_room(broker)
    assert begin(broker) == 0
    holder = broker.trimmer.holder
    assert holder is not None
    assert (holder.topic, holder.group) == ("t", "")
    assert broker.state.names.topics_by_id[topic_id].mins == [0]


def test_a_topic_that_says_so_drops_its_oldest() -> None:
    """And what its group had not read is counted."""
    broker, topic_id, group_id = broker_of(when_full="drop-oldest")
    broker.fill_segments("t", 3)
    read(broker, 1)
    make_room(broker)
    assert begin(broker) >= 2
    ((group, topic, queue, first), *_) = broker.lost
    assert (group, topic, queue, first > 0) == (group_id, topic_id, 0, True)
    assert sum(row[3] for row in broker.lost) == broker.state.names.topics_by_id[topic_id].mins[0] - 1


@pytest.mark.parametrize("said", ["refuse", "Drop-Oldest", "", "yes"])
def test_whatever_else_a_topic_says_refuses(said: str) -> None:
    """A word of a later release must not lose messages."""
    broker, _, _ = broker_of(when_full=said)
    broker.fill_segments("t", 2)
    make_room(broker)
    assert begin(broker) == 0


def few_unread(files: FaultyFiles) -> tuple[SingleBroker, int, int]:
    """Topic "t" of which the first, third and last of eight messages are unread by g, in front of four segments of another topic that is read."""
    broker, topic_id, _ = broker_of(files)
    broker.create("big", 1, "h")
    broker.send("t", *((0, b"%d" % number) for number in range(8)))
    read(broker, 3)
    broker.fill_segments("big", 4)
    read(broker, broker.state.names.topics["big"].ends[0], "h", "big")
    return broker, topic_id, 3


def test_few_unread_messages_do_not_keep_the_log() -> None:
    """They are copied, keep their offsets, and are received as if nothing had been; also by a node that has made its queues again from the log."""
    files = FaultyFiles()
    broker, topic_id, first = few_unread(files)
    make_room(broker)
    assert begin(broker) >= 3
    assert broker.lost == []
    assert broker.state.names.topics_by_id[topic_id].mins == [first]
    broker.save()
    broker.save()
    for turn in range(3):
        assert broker.pull(topic_id, 0, first) == [b"%d" % number for number in range(first, 8)], turn
        assert broker.state.names.topics_by_id[topic_id].mins == [first]
        times = [visible_at(broker.store, topic_id, 0, offset) for offset in range(first, 8)]
        assert all(time_ms >= 1_000_000_000_000 for time_ms in times)
        bounds = {"least": first, "end": 8}
        assert offset_at(broker.store, topic_id, 0, times[0], **bounds) == first
        assert offset_at(broker.store, topic_id, 0, times[-1] + 1, **bounds) == 8
        broker.close()
        if turn:
            for path in files.paths():
                if "consumequeue" in path.parts:
                    files.unlink(path)
        broker = SingleBroker(files)
        assert bool(broker.store.rebuilding) == (turn >= 1)
    assert read(broker, 5) == [b"%d" % number for number in range(first, 8)]
    broker.send("t", (0, b"next"))
    assert read(broker, 1) == [b"next"]


def test_copies_are_copied_again_as_the_log_goes_on() -> None:
    """Three times round, in a store that was made again in between."""
    files = FaultyFiles()
    broker, topic_id, first = few_unread(files)
    bodies = [b"%d" % number for number in range(first, 8)]
    for turn in range(3):
        make_room(broker)
        for _ in range(2):
            broker.save()
        broker.close()
        for path in files.paths():
            if "consumequeue" in path.parts:
                files.unlink(path)
        broker = SingleBroker(files)
        before = begin(broker)
        # Its files begin with this one, behind the copies: one read has both.
        broker.send("t", (0, b"turn %d" % turn))
        bodies.append(b"turn %d" % turn)
        assert broker.pull(topic_id, 0, first) == bodies
        broker.fill_segments("big", 3)
        big, group = broker.state.names.topics["big"], broker.state.names.groups["h"]
        reading = broker.state.leasing.delivery(group.group_id, big, 0)
        read(broker, big.ends[0] - reading.cursor, "h", "big")
        make_room(broker)
        assert begin(broker) > before
        assert broker.pull(topic_id, 0, first) == bodies
    assert broker.lost == []
    assert read(broker, len(bodies)) == bodies


def test_what_is_older_than_its_retention_goes_read_or_not() -> None:
    """Though the segment in which it lies is young: its first half is 73 hours old, the rest was read."""
    broker, topic_id, _ = broker_of()
    broker.create("big", 1, "h")
    broker.send("t", *((0, bytes(3_000)) for _ in range(9)))
    broker.pass_time(73 * HOUR_MS)
    broker.fill_segments("big", 3)
    read(broker, broker.state.names.topics["big"].ends[0], "h", "big")
    broker.send("t", (0, b"young"))
    make_room(broker)
    assert begin(broker) >= 2
    assert broker.state.names.topics_by_id[topic_id].mins == [9]
    assert read(broker, 1) == [b"young"]


def test_a_group_that_goes_back_is_behind_again() -> None:
    """Also between the look at the log and the entry that would drop it."""
    broker, topic_id, _ = broker_of()
    broker.fill_segments("t", 3)
    end = broker.state.names.topics_by_id[topic_id].ends[0]
    read(broker, end)
    broker.save()
    broker.trimmer.disk_used(FULL)
    submit = broker.proposer.submit

    def sought(proposal: Any) -> None:
        broker.proposer.submit = submit  # type: ignore[method-assign]
        seek(broker, 1)
        submit(proposal)

    broker.proposer.submit = sought  # type: ignore[method-assign]
    broker.retain()
    assert begin(broker) == 0
    assert (broker.state.names.topics_by_id[topic_id].mins, broker.lost) == ([0], [])
    assert len(read(broker, end - 1)) == end - 1


def test_what_waits_behind_an_earlier_message_of_its_message_group_is_unread() -> None:
    """It was looked at, and nobody has received it."""
    delivery = FifoDelivery(0)
    for offset in range(3):
        delivery.look(1 + offset, offset, 7, 0, 8, 60_000)
    assert (delivery.cursor, delivery.unread_from()) == (3, 1)
    assert Delivery(3).unread_from() == 3


def test_a_group_that_starts_with_the_latest_holds_nothing_before_it() -> None:
    """What it has never wanted is not unread."""
    broker, topic_id, _ = broker_of()
    broker.fill_segments("t", 3)
    request = {"group": "late", "invisible_ms": 60_000, "start": "latest"}
    broker.ask(CommandKind.CREATE_GROUP, encode_msgpack(request))
    topic = broker.state.names.topics_by_id[topic_id]
    late = broker.state.names.groups["late"]
    broker.state.leasing.delivery(late.group_id, topic, 0)
    make_room(broker)
    assert begin(broker) >= 2


def test_a_log_that_is_larger_than_it_may_be_drops_its_oldest_as_before() -> None:
    """A limit of bytes is a retention that an operator has set, not want of room."""
    broker = SingleBroker(FaultyFiles(), rules=RetentionRules(size_max_bytes=2 * SEGMENT))
    broker.create("t", 1, "g")
    broker.fill_segments("t", 4)
    broker.save()
    broker.retain()
    assert begin(broker) >= 2


def test_rows_of_unread_messages_are_looked_at_once() -> None:
    """A scan remembers how far everything lies behind the place, so that a long copy does not read the whole queue at each step."""
    broker, topic_id, _ = few_unread(FaultyFiles())
    make_room(broker)
    reads = 0
    read_queue = broker.store.read_queue

    def counted(topic_id: int, queue: int, offset: int, count: int) -> Any:
        nonlocal reads
        reads += 1
        return read_queue(topic_id, queue, offset, count)

    broker.store.read_queue = counted  # type: ignore[method-assign]
    scan = broker.trimmer._scan
    ranges = [(topic_id, 0, 3, 8)]
    assert list(scan.find(ranges, 1 << 20)) == []
    before = reads
    assert list(scan.find(ranges, 1 << 20)) == []
    assert reads == before
    list(scan.find([(topic_id, 0, 2, 8)], 1 << 20))
    assert reads > before, "a group that has gone back is looked at anew"
    assert np.all(broker.store.read_queue(topic_id, 0, 3, 5)["position"] >= scan.position)


@pytest.mark.parametrize(
    ("holder", "parts"),
    [
        (Holder("orders", "billing", 1), ("Group 'billing'", "1 message of topic 'orders'", "ternmq topic alter orders --when-full drop-oldest")),
        (Holder("orders", "", 12_345), ("No consumer group", "12,345 messages", "'orders'")),
        (Holder("shop%orders", "shop%billing", 2), ("A group of namespace 'shop'", "a topic of namespace 'shop'")),
        (Holder("%DLQ%billing", "", 3), ("dead letters of group 'billing'", "redrive or purge")),
        (Holder("%DLQ%shop%billing", "", 3), ("dead letters of a group of namespace 'shop'",)),
    ],
)  # fmt: skip
def test_who_is_refused_hears_who_holds_the_space(holder: Holder, parts: tuple[str, ...]) -> None:
    """And what to do; of another namespace not the names. The same text through a link, and none where a release of before told nothing."""
    said = held_by(holder)
    for part in parts:
        assert part in said
    if "shop" in holder.topic:
        assert "orders" not in said
        assert "billing" not in said
    error = DiskFull(broker_group="broker-a", held_by=said)
    assert error.detail == str(error_from("disk-full", error.fields))
    assert error.detail.endswith(f"reads and acks go on. {said}")
    assert str(DiskFull(broker_group="broker-a")).endswith("reads and acks go on.")
    assert held_by(None) == ""


def test_measuring_what_is_unread_takes_steps() -> None:
    """A segment of a million small messages must not keep the core loop; and it is known early when it is too much."""
    broker, topic_id, _ = few_unread(FaultyFiles())
    broker.fill_segments("t", 2)
    end = broker.state.names.topics_by_id[topic_id].ends[0]
    position = 6 * SEGMENT

    def steps(size_max_bytes: int) -> tuple[int, bool]:
        measuring, count = UnreadScan(broker.store, position).measure([(topic_id, 0, 3, end)], size_max_bytes), 0
        while True:
            try:
                next(measuring)
            except StopIteration as ended:
                return count, ended.value
            count += 1

    whole = sum(len(body) + 200 for body in broker.pull(topic_id, 0, 3))
    with changed((unread, "STEP_ENTRIES", 4)):
        all_steps, is_more = steps(2 * whole)
        assert (all_steps, is_more) == (-(-(end - 3) // 4), False)
        few_steps, is_more = steps(whole // 4)
        assert is_more
        assert few_steps < all_steps // 2
    # A COPY is given no more than it takes, and one record at least.
    found = list(UnreadScan(broker.store, position).find([(topic_id, 0, 3, end)], 10_000))
    assert 1 < sum(len(rows) for rows, _ in found) <= 8
    (only,) = UnreadScan(broker.store, position).find([(topic_id, 0, 8, end)], 1)
    assert len(only[0]) == 1
