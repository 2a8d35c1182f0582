"""When segments go, and what must not go with them."""

import numpy as np
import pytest

from tern_store.retention import DiskUse, Pressure, RetentionRules, SegmentAge, plan_trim, pressure
from tern_wire.errors import OffsetExpired
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.timer_rows import TIMER_ROWS
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles
from tests.support.files.timer_calls import due

RULES = RetentionRules()
NOW = 1_000 * HOUR_MS
EMPTY = DiskUse(10, 100)


def ages(*hours: float) -> list[SegmentAge]:
    """Segments of 100 bytes whose newest entries are so many hours old."""
    return [SegmentAge(n * 100, n * 100 + 100, NOW - round(hour * HOUR_MS)) for n, hour in enumerate(hours)]


def plan(segments: list[SegmentAge], disk: DiskUse = EMPTY, *, hour: int = 4, asked: bool = False, **rules: int) -> int:
    """Where the log would begin; 0 if nothing goes."""
    end = segments[-1].end + 100 if segments else 100
    found = plan_trim(RetentionRules(**rules), segments, disk, end=end, now_ms=NOW, hour=hour, asked=asked)
    return 0 if found is None else found.position


@pytest.mark.parametrize(
    ("hours", "position"),
    [((72,), 0), ((72 + 1 / HOUR_MS,), 100), ((73, 72.5, 72, 1), 200), ((71, 90), 0), ((), 0), ((-5, 90), 0)],
)
def test_segments_older_than_the_retention_go_at_the_hour(hours: tuple[float, ...], position: int) -> None:
    """Exactly 72 hours is not older; a young one keeps all behind it; a clock set back makes nothing old."""
    assert plan(ages(*hours)) == position
    assert plan(ages(*hours), hour=5) == 0
    assert plan(ages(*hours), hour=5, asked=True) == position


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        (74, Pressure.NONE),
        (75, Pressure.CLEAN),
        (76, Pressure.CLEAN),
        (85, Pressure.FORCE),
        (86, Pressure.FORCE),
        (90, Pressure.REFUSE),
        (91, Pressure.REFUSE),
    ],
)
def test_a_filling_disk_asks_for_more(used: int, wanted: Pressure) -> None:
    """75: old ones at any hour. 85: the oldest though it is young. 90: and no new messages."""
    disk = DiskUse(used, 100)
    assert pressure(RULES, disk) is wanted
    assert plan(ages(80, 1), disk, hour=12) == (100 if wanted is not Pressure.NONE else 0)
    assert plan(ages(2, 1), disk, hour=12) == (100 if wanted in {Pressure.FORCE, Pressure.REFUSE} else 0)
    forced = plan_trim(RULES, ages(2, 1), disk, end=300, now_ms=NOW, hour=12)
    assert forced is None or forced.forced


def test_a_log_larger_than_its_bytes_loses_its_oldest_segments() -> None:
    """What is left is as large as asked for, or a little larger."""
    segments = ages(3, 2, 1)
    assert plan(segments, hour=12, size_max_bytes=200) == 200
    assert plan(segments, hour=12, size_max_bytes=201) == 100
    assert plan(segments, hour=12, size_max_bytes=400) == 0
    assert plan(segments, hour=12, size_max_bytes=1) == 300


def old_broker(files: FaultyFiles) -> tuple[SingleBroker, int, int]:
    """Three full segments that are older than the retention, one that is not; topic and group."""
    broker = SingleBroker(files)
    topic_id, group_id = broker.create("t", 1, "g")
    broker.send("t", (0, b"first"), keys="first")
    broker.fill_segments("t", 3)
    broker.pass_time(73 * HOUR_MS)
    broker.send("t", (0, b"young"))
    broker.save()
    return broker, topic_id, group_id


def test_old_segments_go_on_demand_and_readers_are_told_the_oldest_offset() -> None:
    """Also after a restart from the saved state, and after one that makes everything again from the log's new beginning."""
    files = FaultyFiles()
    broker, topic_id, _ = old_broker(files)
    end = broker.state.names.topics_by_id[topic_id].ends[0]
    broker.trimmer.trim_now()
    broker.retain()
    topic = broker.state.names.topics_by_id[topic_id]
    oldest = topic.mins[0]
    assert 0 < oldest < end == topic.ends[0]
    assert broker.store.log.start.position == 3 << 16
    assert not broker.store.find("t", "first")
    broker.save()
    broker.save()
    for turn in range(3):
        assert broker.state.names.topics_by_id[topic_id].mins[0] == oldest
        assert len(broker.pull(topic_id, 0, oldest)) == end - oldest
        assert broker.pull(topic_id, 0, oldest)[-1] == b"young"
        assert not broker.pull(topic_id, 0, oldest - 1)
        expired = OffsetExpired(offset=oldest - 1, min_offset=oldest)
        assert str(oldest) in str(expired)
        broker.close()
        if turn == 1:
            for path in files.paths():
                if "consumequeue" in path.parts:
                    files.unlink(path)
        broker = SingleBroker(files)
        assert bool(broker.store.rebuilding) == (turn >= 1)  # until it is saved
        assert broker.store.log.start.position == 3 << 16


def test_old_segments_go_at_their_hour_without_being_asked() -> None:
    """At noon they stay, at four they go."""
    broker, _, _ = old_broker(FaultyFiles())
    broker.retain(steps=3)
    assert broker.store.log.start.position == 0
    broker.hour = 4
    broker.retain(steps=3)
    assert broker.store.log.start.position == 3 << 16


def test_nothing_goes_before_a_saved_state_lies_behind_it() -> None:
    """A start needs one."""
    broker, _, _ = old_broker(FaultyFiles())
    broker.store.applied = None
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 0


def test_unread_messages_that_go_are_counted_for_their_group() -> None:
    """The group goes on behind them."""
    broker, topic_id, group_id = old_broker(FaultyFiles())
    broker.ack(*[row for row, _ in broker.receive(messages_max=1)])
    broker.trimmer.trim_now()
    broker.retain()
    oldest = broker.state.names.topics_by_id[topic_id].mins[0]
    assert broker.lost == [(group_id, topic_id, 0, oldest - 1)]
    bodies = []
    while received := broker.receive():
        bodies += [body for _, body in received]
        broker.ack(*[row for row, _ in received])
    assert bodies[-1] == b"young"
    delivery = broker.state.leasing.deliveries[group_id, topic_id][0]
    assert delivery is not None
    assert delivery.cursor == broker.state.names.topics_by_id[topic_id].ends[0]


@pytest.mark.parametrize("rebuilt", [False, True])
def test_what_a_group_holds_is_copied_forward(rebuilt: bool) -> None:
    """A leased message and one that waits to be delivered again survive their segment, with their keys."""
    files = FaultyFiles()
    broker, topic_id, _ = old_broker(files)
    (row, body), *_ = broker.receive(messages_max=1)
    assert body == b"first"
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 3 << 16
    assert [found.position >= 3 << 16 for found in broker.store.find("t", "first")] == [True]
    broker.save()
    broker.close()
    if rebuilt:
        for path in files.paths():
            if "consumequeue" in path.parts:
                files.unlink(path)
    broker = SingleBroker(files)
    broker.pass_time(61_000)  # the lease ends: delivered again
    again = [(row, body) for row, body in broker.receive() if body == b"first"]
    assert len(again) == 1
    assert broker.ack(again[0][0]) == b"\0"
    assert row[4] == again[0][0][4] == 0
    assert broker.state.names.topics_by_id[topic_id].mins[0] > 0


def test_messages_younger_in_visibility_than_in_age_are_copied_forward() -> None:
    """Delivered by reference, as a fired delayed message, a retry or a dead letter: the record is old, the queue entry is not."""
    broker = SingleBroker(FaultyFiles())
    topic_id, _ = broker.create("t", 3, "g")
    for queue, name in enumerate((b"delayed", b"retried", b"dead-lettered")):
        broker.send("t", (queue, name), keys=name.decode())
    entries = [broker.store.read_queue(topic_id, queue, 0, 1)[0] for queue in range(3)]
    broker.fill_segments("t", 3)
    broker.pass_time(73 * HOUR_MS)
    for queue, entry in enumerate(entries):
        broker.deliver_again(topic_id, queue, tuple(entry.tolist()))
    broker.send("t", (0, b"young"))
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 3 << 16
    topic = broker.state.names.topics_by_id[topic_id]
    for queue, name in enumerate((b"delayed", b"retried", b"dead-lettered")):
        assert name in broker.pull(topic_id, queue, topic.mins[queue])
        assert len(broker.store.find("t", name.decode())) == 1
    # Visible long enough: now they go as all others do.
    broker.fill_segments("t", 2)
    broker.pass_time(73 * HOUR_MS)
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 5 << 16
    assert not broker.store.find("t", "delayed")
    assert not len(broker.store.moved)


def test_a_pending_timer_keeps_its_record() -> None:
    """In the oldest segment: the copy is what is delivered later, at the same time."""
    files = FaultyFiles()
    broker, topic_id, _ = old_broker(files)
    position, size, tag = broker.store.read_queue(topic_id, 0, 0, 1)[0].tolist()
    due_ms = broker.state.now_ms + 30 * 24 * HOUR_MS
    broker.store.timers.add(np.array([(due_ms, 77, position, size, topic_id, 0, 0, tag)], TIMER_ROWS))
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 3 << 16
    assert broker.store.timers.pending == 1
    (timer,) = due(broker.store.timers, due_ms, 10)
    assert (int(timer["timer_id"]), int(timer["deliver_ms"])) == (77, due_ms)
    where, what = np.array([int(timer["position"])]), np.array([int(timer["size"])])
    assert b"first" in bytes(broker.store.log.read_records(where, what))
    assert int(timer["position"]) >= 3 << 16


def test_a_segment_that_is_mostly_needed_is_kept_whole() -> None:
    """More than a fifth of it is leased: nothing is copied, it stays until that is over; what lies before it goes."""
    broker, topic_id, _ = old_broker(FaultyFiles())
    row, _ = broker.receive(messages_max=1)[0]
    broker.ack(row)
    held = [row for _ in range(20) for row, _ in broker.receive(messages_max=1)]
    in_second = [row for row in held if broker.store.read_queue(topic_id, 0, row[4], 1)["position"][0] >= 1 << 16]
    assert in_second
    broker.ack(*[row for row in held if row not in in_second])
    before = broker.store.log.end_position
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 1 << 16
    assert broker.store.log.end_position < before + 4_000
    broker.ack(*in_second)
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position == 3 << 16


@pytest.mark.parametrize("is_restarted", [False, True])
def test_segments_that_could_not_go_yet_go_with_the_next_saved_state(is_restarted: bool) -> None:
    """A node whose newest state lay before the place drops the same segments as the others, a little later; also after a restart."""
    files = FaultyFiles()
    broker, topic_id, _ = old_broker(files)
    applied, broker.store.applied = broker.store.applied, None
    (position,) = [3 << 16]
    (boundary,) = [boundary for boundary in broker.store.boundaries() if boundary.position == position]
    loaded = broker.store.load_boundary(boundary)
    assert loaded is not None
    broker.store.want_trim(loaded[0], [(topic_id, 0, 5)])
    assert broker.store.wanted_trim() is None
    broker.store.applied = applied
    broker.save()
    if is_restarted:
        broker.close()
        broker = SingleBroker(files)
    job = broker.store.wanted_trim()
    assert job is not None
    job.run()
    broker.store.trimmed(job)
    assert broker.store.log.start.position == position
    assert broker.store.wanted_trim() is None


def test_a_damaged_state_at_a_segment_s_start_only_moves_the_place() -> None:
    """The log begins at the next one; nothing stands still, though the disk asks for the oldest segment alone."""
    files = FaultyFiles()
    broker = SingleBroker(files)
    broker.create("t", 1, "g")
    drop_oldest = {"topic": "t", "mode": "alter", "attributes": {"when_full": "drop-oldest"}}
    broker.ask(CommandKind.ALTER_TOPIC, encode_msgpack(drop_oldest))
    broker.fill_segments("t", 3)
    broker.save()
    (first, *_) = broker.store.boundaries()
    files.content(DIRECTORY / "state" / first.name)[60] ^= 1
    broker.trimmer.disk_used(DiskUse(86, 100))
    broker.retain(steps=2)
    assert broker.store.log.start.position == 2 << 16
