"""Messages that wait, as apply sees them: when a send sets a timer, what fires, what is recalled, and what no leader of ours would write."""

import numpy as np
import pytest

from tern_broker.core import StateMachine, saving
from tern_wire.errors import AlreadyDelivered, LinkBodyMalformed, NotScheduled, TernError
from tern_wire.limits import TIMER_DELAY_MAX_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import (
    FLAG_KEYED,
    KEY_REUSED,
    MALFORMED,
    NO_KEY,
    REPLAYED,
    SCHEDULED,
    SCHEDULED_BEFORE,
    SEND_ROW,
    SENT,
    key_hash,
)
from tern_wire.link.timer_rows import TIMER_ROWS
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.write import encode_record
from tests.support.broker.entries import Log

FAR_MS = TIMER_DELAY_MAX_MS + 2 * 24 * 3_600_000


def payload(*messages: tuple[int, int, bytes, bytes, int], message_group: int = 0) -> bytes:
    """A SEND of (topic id, queue, body, key, deliver_ms)."""
    rows, records = [], []
    for topic_id, queue, body, key, deliver_ms in messages:
        record = encode_record(b"t", queue, body, b"", born_ms=5)
        crc = int.from_bytes(record[8:12], "big")
        hashed = key_hash(b"t", key) if key else NO_KEY
        flags, tag = FLAG_KEYED if key else 0, tag_hash("T")
        rows.append(SEND_ROW.pack(len(record), topic_id, queue, flags, tag, crc, 0, hashed, deliver_ms, message_group))
        records.append(record)
    return SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)


def send(log: Log, now_ms: int, *messages: tuple[int, int, bytes, bytes, int]) -> tuple[list[int], list[int]]:
    """Statuses and offsets, or timers' ids."""
    verdicts = log.apply(now_ms, (CommandKind.SEND, payload(*messages))).verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    return verdicts["status"].tolist(), verdicts["offset"].tolist()


def timer(topic_id: int, deliver_ms: int, timer_id: int = 500, queue: int = 0) -> bytes:
    """One row of a FIRE."""
    return np.array([(deliver_ms, timer_id, timer_id, 100, topic_id, queue, 0, 7)], TIMER_ROWS).tobytes()


def cancel(topic_id: int, deliver_ms: int, timer_id: int, *, is_pending: bool = True) -> bytes:
    """A CANCEL_TIMER."""
    fields = {"topic": "t", "topic_id": topic_id, "deliver_ms": deliver_ms, "timer_id": timer_id}
    return encode_msgpack({**fields, "is_pending": is_pending})


def test_what_is_due_later_becomes_a_timer_and_the_rest_is_visible() -> None:
    """By the entry's time: a timer has its record's place, topic, queue and tag, and the position as its id."""
    log = Log()
    topic, _ = log.create()
    applied = log.apply(
        1_000,
        (
            CommandKind.SEND,
            payload((topic, 0, b"a", b"", 0), (topic, 1, b"b", b"", 1_001), (topic, 0, b"c", b"", 1_000)),
        ),
    )
    verdicts = applied.verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts["status"].tolist() == [SENT, SCHEDULED, SENT]
    assert log.state.names.topics["t"].ends == [2, 0]
    (timers,) = applied.timers
    assert timers.dtype == TIMER_ROWS
    (row,) = timers
    position = int(row["position"])
    assert (row["deliver_ms"], row["topic_id"], row["queue"], row["tag"]) == (1_001, topic, 1, tag_hash("T"))
    assert verdicts["offset"][1] == row["timer_id"] == position
    record = b"".join(log.bodies)[position - 100 :][: int(row["size"])]
    assert record == encode_record(b"t", 1, b"b", b"", born_ms=5)
    assert log.state.timing.pending == {topic: 1}


def test_a_key_remembers_that_its_message_waits() -> None:
    """Repeats in the same entry and later get the timer's id, also when it was delivered long ago; another body is refused."""
    log = Log()
    topic, _ = log.create()
    first = (topic, 1, b"a", b"k", 5_000)
    statuses, ids = send(log, 1_000, first, first, (topic, 0, b"x", b"k", 9_000))
    assert statuses == [SCHEDULED, SCHEDULED_BEFORE, KEY_REUSED]
    assert ids[0] == ids[1]
    again = (topic, 0, b"a", b"k", 6_000)
    assert send(log, 2_000, again) == ([SCHEDULED_BEFORE], ids[:1])
    log.apply(5_000, (CommandKind.FIRE, timer(topic, 5_000, ids[0], 1)))
    assert send(log, 6_000, again) == ([SCHEDULED_BEFORE], ids[:1])
    state = saving.load(b"".join(saving.encode(saving.take(log.state))))
    verdicts = state.apply(
        memoryview(b"".join(entry_parts(7_000, [(CommandKind.SEND, [payload(again)])]))), log.position, 99
    ).verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert (verdicts["status"].tolist(), verdicts["queue"].tolist()) == ([SCHEDULED_BEFORE], [1])
    # A key whose message was visible at once stays what it was, whatever time the repeat asks for.
    assert send(log, 7_000, (topic, 0, b"n", b"now", 0)) == ([SENT], [0])
    assert send(log, 7_001, (topic, 0, b"n", b"now", 9_000))[0] == [REPLAYED]


def test_times_that_no_proxy_would_write_are_refused() -> None:
    """Beyond the longest delay, or with a message group; the others of the entry go on."""
    log = Log()
    topic, _ = log.create()
    statuses, _ = send(
        log, 1_000, (topic, 0, b"a", b"k", FAR_MS), (topic, 0, b"b", b"", 2_000), (topic, 0, b"c", b"", 0)
    )
    assert statuses == [MALFORMED, SCHEDULED, SENT]
    assert send(log, 1_000, (topic, 0, b"a", b"k", 0))[0] == [SENT], "the refused one has not taken the key"
    grouped = log.apply(1_000, (CommandKind.SEND, payload((topic, 0, b"g", b"", 2_000), message_group=9))).verdicts[0]
    assert isinstance(grouped, np.ndarray)
    assert grouped["status"].tolist() != [SCHEDULED]
    assert log.state.timing.pending == {topic: 1}


def test_what_fires_is_appended_in_order_and_wakes_its_topic() -> None:
    """Several queues and topics in one entry; rows of a topic that is gone are dropped."""
    log = Log()
    topic, _ = log.create()
    other, _ = log.create("u", 1, "h")
    _, ids = send(
        log, 1_000, *((topic, n % 2, b"%d" % n, b"", 2_000 + n) for n in range(6)), (other, 0, b"o", b"", 2_000)
    )
    rows = [timer(topic, 2_000 + n, ids[n], n % 2) for n in (1, 0, 3, 2)]
    applied = log.apply(2_003, (CommandKind.FIRE, b"".join([*rows, timer(other, 2_000, ids[6])])))
    assert applied.verdicts == [{"fired": 5, "dropped": 0}]
    assert applied.woken_topics == {topic, other}
    places = {queue: [entry[0] for entry in log.queues[topic, queue]] for queue in (0, 1)}
    assert places == {0: [ids[0], ids[2]], 1: [ids[1], ids[3]]}
    assert len(applied.fired[0]) == 5
    assert log.state.timing.pending == {topic: 2}
    log.apply(2_004, (CommandKind.DELETE_TOPIC, encode_msgpack({"topic": "t", "topic_id": topic})))
    gone = log.apply(2_010, (CommandKind.FIRE, timer(topic, 2_004, ids[4]) + timer(topic, 2_005, ids[5])))
    assert gone.verdicts == [{"fired": 0, "dropped": 2}]
    assert (len(gone.fired[0]), gone.appends, gone.woken_topics) == (2, [], set())
    assert log.state.timing.pending == {}


@pytest.mark.parametrize(
    "rows",
    [
        lambda topic: timer(topic, 5_001),
        lambda topic: timer(topic, 5_000)[:-1],
        lambda topic: timer(topic, 5_000) * 2,
        lambda topic: timer(topic + 1, 5_000),
    ],
    ids=["early", "cut", "more than wait", "of nobody"],
)
def test_a_fire_that_is_not_so_changes_nothing(rows: object) -> None:
    """Refused alike on every node; the state is what it was."""
    log = Log()
    topic, _ = log.create()
    send(log, 1_000, (topic, 0, b"a", b"", 5_000))
    applied = log.apply(5_000, (CommandKind.FIRE, rows(topic)))  # type: ignore[operator]
    assert isinstance(applied.verdicts[0], LinkBodyMalformed)
    assert (applied.fired, applied.appends) == ([], [])
    assert log.state.names.topics["t"].ends == [0, 0]
    assert log.state.timing.pending == {topic: 1}


def test_a_recall_succeeds_once_and_says_why_it_does_not() -> None:
    """Pending: gone. Found by two recalls of one entry: one of them. Not pending: too late, or recalled before."""
    log = Log()
    topic, _ = log.create()
    _, (timer_id, other) = send(log, 1_000, (topic, 0, b"a", b"", 5_000), (topic, 0, b"b", b"", 5_000))
    twice = log.apply(
        2_000,
        (CommandKind.CANCEL_TIMER, cancel(topic, 5_000, timer_id)),
        (CommandKind.CANCEL_TIMER, cancel(topic, 5_000, timer_id)),
    )
    assert twice.verdicts[0] == {"recalled": 1}
    assert isinstance(twice.verdicts[1], NotScheduled)
    assert [(int(row["deliver_ms"][0]), int(row["timer_id"][0])) for row in twice.recalled] == [(5_000, timer_id)]
    assert log.state.timing.pending == {topic: 1}

    def refused(now_ms: int, timer_id: int) -> type[object]:
        command = (CommandKind.CANCEL_TIMER, cancel(topic, 5_000, timer_id, is_pending=False))
        return type(log.apply(now_ms, command).verdicts[0])

    assert refused(4_999, timer_id) is NotScheduled
    log.apply(5_000, (CommandKind.FIRE, timer(topic, 5_000, other)))
    assert refused(5_000, other) is AlreadyDelivered
    assert log.state.timing.pending == {}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"topic": "t", "topic_id": "x", "deliver_ms": 1, "timer_id": 1, "is_pending": True},
        {"topic": "t", "topic_id": 1, "deliver_ms": None, "timer_id": 1, "is_pending": False},
        {"topic": "t", "topic_id": 1, "deliver_ms": 1 << 63, "timer_id": 1, "is_pending": True},
        {"topic": "t", "topic_id": -1, "deliver_ms": 1, "timer_id": 1, "is_pending": True},
        [1, 2],
    ],
)
def test_a_malformed_recall_is_refused_and_changes_nothing(request_: object) -> None:
    """Whatever a map may hold."""
    log = Log()
    topic, _ = log.create()
    send(log, 1_000, (topic, 0, b"a", b"", 5_000))
    applied = log.apply(2_000, (CommandKind.CANCEL_TIMER, encode_msgpack(request_)))
    assert isinstance(applied.verdicts[0], TernError)
    assert applied.recalled == []
    assert log.state.timing.pending == {topic: 1}


def test_what_waits_is_counted_in_a_saved_state() -> None:
    """The counts come back as they were."""
    log = Log()
    topic, _ = log.create()
    send(log, 1_000, *((topic, 0, b"%d" % n, b"", 5_000) for n in range(7)))
    state: StateMachine = saving.load(b"".join(saving.encode(saving.take(log.state))))
    assert state.timing.pending == {topic: 7}
    assert state.timing.pack() == [(topic, 7)]
