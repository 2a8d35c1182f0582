"""Groups moved in the replicated state: to the ends, by shifts, to offsets; what they held; what is refused and changes nothing."""

from typing import Any

import pytest

from tern_broker.core.tracing import state_of
from tern_wire.errors import GroupNotFound, InvalidField, LinkBodyMalformed, QueueNotFound, TernError, TopicNotFound
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK, LEASE_OVER, SETTLED
from tests.support.broker.entries import Log
from tests.support.broker.fifo_log import FifoLog


def seek(log: Log, to: Any, *, now_ms: int = 10, **more: Any) -> Any:
    """The verdict of one seek."""
    request = {"group": "g", "topic": "t", "to": to, "queues": None, **more}
    return log.apply(now_ms, (CommandKind.SEEK, encode_msgpack(request))).verdicts[0]


def moves(log: Log, to: Any, **more: Any) -> list[list[int]]:
    """[queue, before, after] of a seek that is not refused."""
    verdict = seek(log, to, **more)
    assert isinstance(verdict, dict), verdict
    rows: list[list[int]] = verdict["queues"]
    return rows


def filled(count: int = 10) -> tuple[Log, int]:
    """*count* messages in queue 0 of two; the topic's id."""
    log = Log()
    topic, _ = log.create()
    log.send(2, *((topic, 0, b"%d" % n, b"") for n in range(count)))
    return log, topic


def test_a_seek_goes_forward_and_backward_within_what_is_kept() -> None:
    """Also where the group has not begun: it begins there."""
    log, topic = filled()
    assert moves(log, "latest") == [[0, -1, 10], [1, -1, 0]]
    assert moves(log, {"shift": -4}) == [[0, 10, 6], [1, 0, 0]]
    assert moves(log, {"shift": 99}, queues=[0]) == [[0, 6, 10]]
    assert moves(log, {"offsets": {"0": 3}}) == [[0, 10, 3]]
    log.state.names.topics_by_id[topic].mins[0] = 5
    assert moves(log, {"offsets": {"0": 1}}) == [[0, 3, 5]]
    assert moves(log, {"shift": -99}) == [[0, 5, 5], [1, 0, 0]]
    assert moves(log, "earliest") == [[0, 5, 5], [1, 0, 0]]


def test_a_shift_of_a_group_that_has_not_begun_counts_from_where_it_would_begin() -> None:
    """earliest: from the oldest message; latest: from the end."""
    log, _ = filled()
    assert moves(log, {"shift": 3}) == [[0, -1, 3], [1, -1, 0]]
    other, _ = filled()
    other.state.names.groups["g"].start = "latest"
    assert moves(other, {"shift": -3}) == [[0, -1, 7], [1, -1, 0]]


def test_a_seek_ends_leases_and_what_came_back_and_wakes_the_topic() -> None:
    """Nothing of before is left: acks of it are refused, the messages come again from the new place on."""
    log, topic = filled(4)
    held = log.receive(3, messages_max=3, invisible_ms=10_000)
    applied = log.apply(
        2_002, (CommandKind.SEEK, encode_msgpack({"group": "g", "topic": "t", "to": "earliest", "queues": None}))
    )
    assert applied.woken_topics == {topic}
    group = log.state.names.groups["g"].group_id
    delivery = log.state.leasing.deliveries[group, topic][0]
    assert delivery is not None
    assert (delivery.committed(), delivery.unsettled) == (0, 0)
    assert set(log.ack_all(2_003, held)) == {LEASE_OVER}
    assert [offset for pick, _, _ in log.receive(2_004) for offset in pick.offsets.tolist()] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"to": {"offsets": {"0": 11}}}, InvalidField),
        ({"to": {"offsets": {"0": -1}}}, InvalidField),
        ({"to": {"offsets": {"9": 0}}}, QueueNotFound),
        ({"to": {"offsets": {"0": 1}}, "queues": [1]}, InvalidField),
        ({"to": "middle"}, InvalidField),
        ({"to": "latest", "queues": [2]}, QueueNotFound),
        ({"to": "latest", "group": "x"}, GroupNotFound),
        ({"to": "latest", "topic": "x"}, TopicNotFound),
        ({"to": {"shift": "far"}}, LinkBodyMalformed),
        ({"to": 5}, InvalidField),
        ({}, LinkBodyMalformed),
    ],
)
def test_what_is_refused_changes_nothing(request_: dict[str, Any], error: type[TernError]) -> None:
    """A typed error, and every queue where it was, also those before the bad one."""
    log, topic = filled()
    moves(log, {"offsets": {"0": 4}})
    body = encode_msgpack({"group": "g", "topic": "t", "queues": None, **request_})
    (verdict,) = log.apply(11, (CommandKind.SEEK, body)).verdicts
    assert isinstance(verdict, error), verdict
    group = log.state.names.groups["g"].group_id
    first, second = log.state.leasing.deliveries[group, topic]
    assert first is not None
    assert (first.committed(), second) == (4, None)


def test_a_trace_follows_a_message_through_its_states() -> None:
    """Waiting, leased, back, settled; the deadline and the attempts as the lease has them."""
    log, topic = filled(2)
    group = log.state.names.groups["g"].group_id

    def states() -> list[dict[str, Any]]:
        row = log.state.leasing.deliveries.get((group, topic), [])
        return [state_of(row[0] if row else None, offset) for offset in range(2)]

    assert states() == [{"state": "not-begun"}] * 2
    log.receive(5, messages_max=1)
    assert states() == [{"state": "leased", "attempts": 1, "until_ms": 1_005}, {"state": "waiting"}]
    log.apply(3_000)
    assert states()[0] in (
        {"state": "returned", "attempts": 1},
        {"state": "resting", "attempts": 1, "until_ms": 13_000},
    )
    moves(log, "latest", now_ms=3_001)
    assert states() == [{"state": "settled"}] * 2


@pytest.mark.parametrize("offset", [0, 3, 8])
def test_a_seek_begins_every_message_group_anew_from_there(offset: int) -> None:
    """What was held, parked or ready is forgotten; everything from the new place on comes once, in order within its message group."""
    log = FifoLog(queues=1)
    log.send_grouped(1, *((f"m{n % 3}", b"%d" % n) for n in range(12)))
    held = log.receive_in_order(2)
    assert [each.offset for each in held] == [0, 1, 2]
    log.settle_held(3, ACK, held[:1])
    moves(log, {"offsets": {"0": offset}})
    assert set(log.settle_held(11, ACK, held[1:])) <= {LEASE_OVER, SETTLED}
    seen: list[int] = []
    while got := log.receive_in_order(12):
        seen += [each.offset for each in got]
        assert len({each.offset % 3 for each in got}) == len(got)
        log.settle_held(13, ACK, got)
    assert sorted(seen) == list(range(offset, 12))
    for group in range(3):
        of_group = [number for number in seen if number % 3 == group]
        assert of_group == sorted(of_group)
