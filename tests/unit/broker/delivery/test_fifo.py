"""Delivery in the order of message groups: what is handed out, what waits, what an event makes visible."""

import numpy as np
import pytest

from tern_broker.core.applied import Applied
from tern_broker.core.delivery import fifo_picking, parked
from tern_broker.core.trimming import apply_trim
from tern_broker.waiting.waiters import Waiters
from tern_wire.errors import GroupConflict, LimitReached, TernError
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK, EXTEND, LEASE_OVER, NACK, RELEASE, SETTLED
from tests.support.broker.fifo_log import FifoLog, Held


def filled(*message_groups: str) -> FifoLog:
    """A log with one queue and a message of each of *message_groups*."""
    log = FifoLog(queues=1)
    log.send_grouped(2, *((name, b"m") for name in message_groups))
    return log


def offsets(held: list[Held]) -> list[int]:
    """Where they lie."""
    return [each.offset for each in held]


def test_the_next_message_of_a_message_group_comes_only_when_the_one_before_is_settled() -> None:
    """Several message groups come in one receive, one message of each; an ack brings the next one."""
    log = filled("a", "a", "b", "a", "b")
    first = log.receive_in_order(10)
    assert offsets(first) == [0, 2]
    assert log.receive_in_order(11) == []
    assert log.settle_held(12, ACK, first[:1]) == bytes([SETTLED])
    second = log.receive_in_order(13)
    assert offsets(second) == [1]
    log.settle_held(14, ACK, [*second, first[1]])
    assert offsets(log.receive_in_order(15)) == [3, 4]


def test_messages_without_a_message_group_wait_for_nobody() -> None:
    """They have no order, in a group that is ordered, too."""
    log = filled("", "a", "", "a", "")
    assert offsets(log.receive_in_order(10)) == [0, 1, 2, 4]


def test_a_nack_holds_up_its_own_message_group_only() -> None:
    """While it rests nothing of the group comes, others go on; then it is the next of its group."""
    log = filled("a", "b", "a", "b")
    held = log.receive_in_order(10)
    log.settle_held(11, NACK, held[:1], 5_000)
    log.settle_held(12, ACK, held[1:])
    assert offsets(log.receive_in_order(13)) == [3]
    log.apply(5_011)
    again = log.receive_in_order(5_012)
    assert [(each.offset, each.attempt) for each in again] == [(3, 2), (0, 2)]
    log.settle_held(5_013, ACK, again)
    assert offsets(log.receive_in_order(5_014)) == [2]


def test_an_expired_lease_comes_back_before_what_follows_it() -> None:
    """The order holds over a consumer that died; the attempt counts."""
    log = filled("a", "a")
    held = log.receive_in_order(10)
    log.apply(1_010)
    again = log.receive_in_order(1_011)
    assert [(each.offset, each.attempt) for each in again] == [(0, 2)]
    assert log.settle_held(1_012, ACK, held) == bytes([LEASE_OVER])
    log.settle_held(1_013, ACK, again)
    assert offsets(log.receive_in_order(1_014)) == [1]


def test_extending_and_releasing_keep_the_order() -> None:
    """An extended message holds its message group as long; a released one is the next again and its attempt does not count."""
    log = filled("a", "a", "b", "b")
    first, second = log.receive_in_order(10)
    log.settle_held(11, EXTEND, [first], 9_000)
    log.settle_held(12, RELEASE, [second])
    again = log.receive_in_order(13)
    assert [(each.offset, each.attempt) for each in again] == [(2, 1)]
    log.apply(2_000)
    assert offsets(log.receive_in_order(2_001)) == [2]
    assert log.settle_held(8_000, ACK, [first]) == bytes([SETTLED])


def test_a_message_that_dies_blocks_its_message_group_until_it_is_buried() -> None:
    """Rejected or out of attempts: the next one comes when the leader has put it into the dead-letter queue."""
    log = filled("a", "a", "b", "b")
    log.group.max_attempts = 1
    held = log.receive_in_order(10)
    assert log.reject(11, held[0]) == bytes([SETTLED])
    log.settle_held(12, NACK, held[1:], 100)
    assert log.receive_in_order(13) == []
    assert log.bury(14, 0, 0)
    assert offsets(log.receive_in_order(15)) == [1]
    assert not log.bury(16, 0, 0)
    assert log.bury(17, 0, 2)
    assert offsets(log.receive_in_order(18)) == [3]


def test_messages_that_are_blocked_are_looked_at_once() -> None:
    """However many wait behind one message, the next receive goes on behind them, and its scan reads nothing of them again."""
    log = filled("a", *["a"] * 3_000)
    (held,) = log.receive_in_order(10)
    assert log.receive_in_order(11) == []
    delivery = log.delivery(0)
    assert (delivery.cursor, delivery.parked.count, delivery.available(log.topic.ends[0])) == (3_001, 3_000, 0)
    log.send_grouped(12, ("b", b"m"), ("a", b"m"))
    assert offsets(log.receive_in_order(13)) == [3_001]
    for expected in range(1, 50):
        log.settle_held(14, ACK, [held])
        (held,) = log.receive_in_order(15)
        assert held.offset == expected


def test_a_receive_that_meets_only_blocked_messages_has_moved_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry looks at a bounded number; the same request in the next entry continues there."""
    monkeypatch.setattr(fifo_picking, "FIFO_SCAN_MESSAGES_MAX", 10)
    log = filled("a", *["a"] * 30, "b")
    log.receive_in_order(10, 1)
    cursors = []
    for now_ms in (11, 12, 13):
        picks = log.picker().pick(log.request())
        assert picks is not None
        found = log.lease(now_ms, picks)
        cursors.append(log.delivery(0).cursor)
    assert (cursors, offsets(found)) == ([20, 30, 32], [31])
    assert log.receive_in_order(14) == []


def test_receives_of_one_entry_share_what_there_is_and_the_last_ones_wait_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody gets what another one picked; who comes when the entry has looked at enough is asked to come again."""
    monkeypatch.setattr(fifo_picking, "FIFO_SCAN_MESSAGES_MAX", 5)
    log = filled("a", "b", "a", "c", "d", "e", "f", "g")
    picker = log.picker()
    first, second, third = (picker.pick(log.request(messages_max=2)) for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is None
    assert offsets(log.lease(10, [*first, *second])) == [0, 1, 3, 4]
    assert offsets(log.receive_in_order(11)) == [5, 6, 7]


def test_a_proposal_that_is_out_of_date_leases_nothing_twice() -> None:
    """Apply has the last word: the same rows again, after the lease, after its end, and after a seek."""
    log = filled("a", "b", "a")
    picks = log.picker().pick(log.request())
    assert picks is not None
    assert offsets(log.lease(10, picks)) == [0, 1]
    assert log.lease(11, picks) == []
    log.apply(5_000)
    assert log.lease(5_001, picks) == []
    old = log.picker().pick(log.request())
    assert old is not None
    log.seek(5_002, 0, 0)
    assert log.lease(5_003, old) == []
    assert [(each.offset, each.attempt) for each in log.receive_in_order(5_004)] == [(0, 1), (1, 1)]


def test_a_message_that_was_freed_in_the_same_entry_is_parked_and_comes_next() -> None:
    """The leader saw it blocked; before its command the entry settles what blocked it."""
    log = filled("a", "a")
    held = log.receive_in_order(10, 1)
    picks = log.picker().pick(log.request())
    assert picks is not None
    log.settle_held(11, ACK, held)
    assert log.lease(12, picks) == []
    assert log.delivery(0).available(2) == 1
    assert offsets(log.receive_in_order(13)) == [1]


def test_with_too_many_parked_the_queue_stands_still_until_some_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost; what is at hand still goes out; polls are not woken in vain."""
    monkeypatch.setattr(parked, "FIFO_PARKED_PER_QUEUE_MAX", 3)
    log = filled(*["a"] * 8, "b")
    (held,) = log.receive_in_order(10)
    assert log.receive_in_order(11) == []
    assert (log.delivery(0).cursor, log.delivery(0).available(9)) == (4, 0)
    seen = [held.offset]
    woken: list[Applied] = []
    log.heard = woken.append
    log.settle_held(12, ACK, [held])
    held, *_ = log.receive_in_order(13)
    assert woken[-1].woken_topics == {log.topic_id}, "there is room: it is looked at again"
    seen.append(held.offset)
    while held.offset < 7:
        log.settle_held(12, ACK, [held])
        held, *others = log.receive_in_order(13)
        seen += [held.offset, *offsets(others)]
    assert sorted(seen) == list(range(9))


def test_a_size_limit_cuts_a_receive_but_one_message_always_goes_out() -> None:
    """A message larger than the budget must not block its message group, and a smaller one behind it must not overtake it."""
    log = FifoLog(queues=1)
    log.send_grouped(2, ("a", b"x"), ("b", bytes(5_000)), ("b", b"x"), ("c", b"x"))
    assert offsets(log.receive_in_order(10, size_max_bytes=400)) == [0]
    assert offsets(log.receive_in_order(11, size_max_bytes=400)) == [1]
    assert offsets(log.receive_in_order(12, size_max_bytes=400)) == [3]


def test_a_group_that_never_settles_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on leased messages, as without order."""
    monkeypatch.setattr(fifo_picking, "LEASED_PER_QUEUE_MAX", 2)
    log = filled("a", "b", "c")
    held = log.receive_in_order(10)
    assert offsets(held) == [0, 1]
    with pytest.raises(LimitReached):
        log.receive_in_order(11)
    log.settle_held(12, ACK, held[:1])
    assert offsets(log.receive_in_order(13)) == [2]


def test_a_group_that_starts_latest_begins_in_all_queues_with_its_first_receive() -> None:
    """It sees only what comes after that, in order."""
    log = FifoLog(queues=3)
    log.group.start = "latest"
    log.send_grouped(2, *((f"g{number}", b"old") for number in range(20)))
    ends = list(log.topic.ends)
    assert log.receive_in_order(10) == []
    places = log.send_grouped(11, *((f"g{number}", b"new") for number in range(20)))
    found = log.receive_in_order(12)
    assert sorted((each.queue, each.offset) for each in found) == sorted(places)
    assert all(offset >= ends[queue] for queue, offset in places)


def test_a_parked_poll_is_woken_when_a_message_group_is_unblocked() -> None:
    """By an ack, and by a burial; not while everything is blocked."""
    log = filled("a", "a", "a")
    waiters, woken = Waiters(lambda: log.state), list[object]()
    first = log.receive_in_order(10)
    log.receive_in_order(11)

    def park() -> None:
        waiters.park(log.group_id, log.topic_id, 99.0, woken.append)

    park()
    assert woken == []
    waiters.applied(acked(log, 12, first))
    assert woken == [1]
    second = log.receive_in_order(13)
    log.reject(14, second[0])
    park()
    assert woken == [1]
    heard: list[Applied] = []
    log.heard = heard.append
    assert log.bury(15, 0, 1)
    waiters.applied(heard[-1])
    assert woken == [1, 1]


def acked(log: FifoLog, now_ms: int, held: list[Held]) -> Applied:
    """Ack everything; what the entry did."""
    heard: list[Applied] = []
    log.heard = heard.append
    log.settle_held(now_ms, ACK, held)
    return heard[-1]


def test_retention_drops_parked_messages_and_counts_them_but_keeps_what_is_in_hand() -> None:
    """The head rests and was copied; what waited behind it was never received, so it goes as anything unread."""
    log = filled("a", "a", "a", "b", "b", "a")
    held = log.receive_in_order(10)
    log.receive_in_order(11)
    assert log.delivery(0).held_offsets().tolist() == [0, 3]
    trim = {"index": 1, "position": 1, "term": 1, "crc": 1, "mins": [[log.topic_id, [5]]]}
    done = apply_trim(trim, log.state.names, log.state.leasing.deliveries)
    assert done.lost == [(log.group_id, log.topic_id, 0, 3)]
    assert done.floors == [(log.topic_id, 0, 0)]
    log.settle_held(12, ACK, held)
    assert offsets(log.receive_in_order(13)) == [5]
    assert log.delivery(0).committed() == 5


def alter(log: FifoLog, **change: object) -> object:
    """Change the group or the topic; the verdict."""
    kind = CommandKind.ALTER_GROUP if "group" in change else CommandKind.ALTER_TOPIC
    return log.apply(50, (kind, encode_msgpack({"mode": "alter", **change}))).verdicts[0]


def test_a_group_without_order_gets_one_only_when_nothing_of_it_is_held() -> None:
    """What is leased has no message group that apply could know; once settled, the order begins at the cursor."""
    log = FifoLog(queues=1)
    log.group.is_fifo = False
    log.send_grouped(2, ("a", b"m"), ("a", b"m"), ("a", b"m"))
    granted = log.receive(10, messages_max=1)
    assert isinstance(alter(log, group="g", fifo=True), GroupConflict)
    assert isinstance(alter(log, topic="t", type="FIFO"), GroupConflict)
    assert (log.group.is_fifo, log.topic.kind) == (False, "MIXED")
    log.ack_all(51, granted)
    assert not isinstance(alter(log, topic="t", type="FIFO"), TernError)
    assert offsets(log.receive_in_order(52)) == [1]
    assert log.receive_in_order(53) == []


def test_a_group_that_loses_its_order_keeps_its_leases_and_gets_what_was_parked() -> None:
    """Handles stay good; parked messages are visible at once, each for the first time."""
    log = filled("a", *["a"] * 2_000, "b")
    held = log.receive_in_order(10)
    assert offsets(held) == [0, 2_001]
    assert not isinstance(alter(log, group="g", fifo=False), TernError)
    seen: list[int] = []
    while granted := log.receive(52, messages_max=500, invisible_ms=9_000):
        assert {attempt for _, _, attempt in granted} == {1}
        seen += [offset for pick, _, _ in granted for offset in pick.offsets.tolist()]
    assert seen == list(range(1, 2_001))
    assert log.settle_held(53, ACK, held) == bytes([SETTLED, SETTLED])


def test_a_hostile_lease_command_gets_an_error_or_nothing() -> None:
    """Blocks that do not add up, unknown ids, offsets that are not there: the state stays as it is."""
    log = filled("a", "b")
    picks = log.picker().pick(log.request())
    assert picks is not None
    good = picks[0].payload()
    for payload in (good[:20], good[:-1], good + b"x", good[:12] + b"\xff\xff" + good[14:]):
        assert isinstance(log.apply(10, (CommandKind.LEASE_FIFO, payload)).verdicts[0], TernError)
    for at in (0, 4, 8):
        verdict = log.apply(11, (CommandKind.LEASE_FIFO, good[:at] + b"\x63\0\0\0" + good[at + 4 :])).verdicts[0]
        assert isinstance(verdict, np.ndarray)
        assert not verdict["lease"].any()
    rng = np.random.default_rng(5)
    for _ in range(200):
        rows = [
            (int(rng.integers(-3, 5)), int(rng.integers(0, 3)), int(rng.integers(-3, 3)))
            for _ in range(int(rng.integers(0, 6)))
        ]
        pick = fifo_picking.FifoPick(picks[0].row, picks[0].offsets, picks[0].entries, rows=rows)
        assert isinstance(log.apply(12, (CommandKind.LEASE_FIFO, pick.payload())).verdicts[0], np.ndarray)
        assert log.delivery(0).cursor <= 2
    log.reload()
