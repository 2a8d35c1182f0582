"""Messages that come back: when, as which attempt, and when they do not come back any more; and receives that are repeated."""

import random

import pytest

from tern_broker.core import saving
from tern_wire.limits import DEAD_LETTER_REASON_SIZE_MAX_BYTES
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK, EXTEND, LEASE_OVER, NACK, RELEASE, SETTLED
from tern_wire.settings.retry_policy import CUSTOM, RetryPolicy
from tests.support.broker.entries import Log

TOKEN = b"0123456789abcdef"


def filled(messages: int, *, attempts: int = 16, delays_ms: tuple[int, ...] = (100, 500)) -> tuple[Log, int, int]:
    """A log with *messages* in queue 0 of topic t, and the retry policy of group g."""
    log = Log()
    topic, group = log.create()
    found = log.state.names.groups_by_id[group]
    found.max_attempts, found.retry = attempts, RetryPolicy(policy=CUSTOM, delays_ms=delays_ms)
    found.retry_delays_ms = delays_ms
    log.send(2, *((topic, 0, b"%d" % number, b"") for number in range(messages)))
    return log, topic, group


def offsets_of(granted: list) -> list[int]:  # type: ignore[type-arg]
    """All offsets of a receive."""
    return [int(offset) for pick, _, _ in granted for offset in pick.offsets]


def reject(log: Log, now_ms: int, *rows: list[int | str]) -> bytes:
    """Dead-letter [group, topic, queue, offset, lease, reason]; one status a row."""
    verdict = log.apply(now_ms, (CommandKind.DEAD_LETTER, encode_msgpack({"rows": list(rows)}))).verdicts[0]
    assert isinstance(verdict, bytes), verdict
    return verdict


def dying_of(log: Log, group: int, topic: int, queue: int = 0) -> dict[int, tuple[int, int, str]]:
    """What is dying: offset -> attempts, cause, reason."""
    delivery = log.state.leasing.deliveries[group, topic][queue]
    assert delivery is not None
    return {offset: (death.attempts, death.cause, death.reason) for offset, death in delivery.dying.items()}


def test_a_nacked_message_rests_exactly_as_long_as_asked_and_comes_back_as_the_next_attempt() -> None:
    """Not a millisecond early; others are not held up; the poll is woken by the entry of that time."""
    log, topic, group = filled(3)
    lease = log.receive(10)[0][1]
    row = (group, topic, 0, NACK, 1, lease, 250)
    assert bytes([SETTLED]) == log.settle(100, row)
    assert not log.state.is_due(349)
    log.apply(349)
    assert log.receive(349) == []
    assert log.state.is_due(350)
    assert topic in log.apply(350).woken_topics
    again = log.receive(350)
    assert (offsets_of(again), [attempt for _, _, attempt in again]) == ([1], [2])
    assert bytes([LEASE_OVER]) == log.settle(351, row), "the first lease holds it no longer"


def test_without_a_delay_the_group_s_table_says_how_long_the_last_one_for_all_further_attempts() -> None:
    """100 ms after the first attempt, 500 ms after each later one."""
    log, topic, group = filled(1)
    now = 10
    for delay_ms in (100, 500, 500, 500):
        ((_, lease, _),) = log.receive(now)
        assert bytes([SETTLED]) == log.settle(now, (group, topic, 0, NACK, 0, lease, -1))
        log.apply(now + delay_ms - 1)
        assert log.receive(now + delay_ms - 1) == []
        now += delay_ms
        log.apply(now)
    assert [attempt for _, _, attempt in log.receive(now)] == [5]


def test_a_delay_of_nothing_makes_it_visible_at_once() -> None:
    """And the attempt counts."""
    log, topic, group = filled(1)
    ((_, lease, _),) = log.receive(10)
    assert topic in log.apply(11).woken_topics or log.settle(11, (group, topic, 0, NACK, 0, lease, 0)) == bytes(
        [SETTLED]
    )
    assert [attempt for _, _, attempt in log.receive(11)] == [2]


@pytest.mark.parametrize("delay_ms", [0, 500])
def test_a_repeated_nack_is_success_as_long_as_nobody_has_received_the_message_since(delay_ms: int) -> None:
    """The answer to the first may have been lost with a leader. A lease that ended by itself is over for a nack, too."""
    log, topic, group = filled(2, attempts=2)
    lease = log.receive(10)[0][1]
    row = (group, topic, 0, NACK, 0, lease, delay_ms)
    assert log.settle(11, row, row) == bytes([SETTLED] * 2)
    assert log.settle(12, row) == bytes([SETTLED])
    log.apply(600)
    log.state = saving.load(b"".join(saving.encode(saving.take(log.state))))
    assert log.settle(601, row) == bytes([SETTLED])
    ((_, second, _),) = log.receive(602)
    assert log.settle(603, row) == bytes([LEASE_OVER])
    for _ in range(2):
        assert log.settle(604, (group, topic, 0, NACK, 0, second, 0)) == bytes([SETTLED]), "its last attempt"
    log.apply(2_000)
    assert log.settle(2_001, (group, topic, 0, NACK, 1, lease, 0)) == bytes([LEASE_OVER])


def test_nacks_of_one_lease_and_one_delay_are_one_run() -> None:
    """A batch costs one run, not one a message; another delay is another run; what was acked stays acked."""
    log, topic, group = filled(32)
    lease = log.receive(10)[0][1]
    rows = [(group, topic, 0, NACK, offset, lease, 400 if offset % 2 else 200) for offset in range(30)]
    assert bytes([SETTLED] * 32) == log.settle(
        20, *rows, (group, topic, 0, ACK, 30, lease, 0), (group, topic, 0, ACK, 31, lease, 0)
    )
    delivery = log.state.leasing.deliveries[group, topic][0]
    assert delivery is not None
    assert (len(delivery.rests), delivery.resting, delivery.leased, delivery.committed()) == (2, 30, 0, 0)
    assert not delivery.is_settled(3)
    assert delivery.is_settled(31)
    assert delivery.held_offsets().tolist() == list(range(30))
    log.apply(220)
    assert offsets_of(log.receive(220)) == list(range(0, 30, 2))
    log.apply(420)
    assert offsets_of(log.receive(420)) == list(range(1, 30, 2))


def test_in_one_command_the_first_word_about_a_message_counts() -> None:
    """Acked, then nacked or released: settled for good, and the second is told so; and the other way round."""
    log, topic, group = filled(3)
    lease = log.receive(10)[0][1]
    said = [(ACK, 0), (NACK, 0), (NACK, 1), (ACK, 1), (ACK, 2), (RELEASE, 2)]
    rows = [(group, topic, 0, action, offset, lease, 100) for action, offset in said]
    assert log.settle(20, *rows) == bytes([SETTLED, LEASE_OVER] * 3)
    log.apply(120)
    assert offsets_of(log.receive(120)) == [1]


@pytest.mark.parametrize("how", ["expired", "nacked", "nacked at once"])
def test_after_the_last_attempt_a_message_is_dying_neither_visible_nor_settled(how: str) -> None:
    """Two attempts are allowed; the death says how many there were and why."""
    log, topic, group = filled(2, attempts=2)
    log.ack_all(5, [log.receive(4, messages_max=1)[0]])
    now = 10
    for _ in range(2):
        ((_, lease, _),) = log.receive(now)
        if how == "expired":
            now += 1_000
            log.apply(now)
        else:
            log.settle(now, (group, topic, 0, NACK, 1, lease, 100 if how == "nacked" else 0))
            now += 100
            log.apply(now)
    log.apply(now + 1_000_000)
    assert log.receive(now + 1_000_000) == []
    assert dying_of(log, group, topic) == {1: (2, 1 if how == "expired" else 2, "")}
    delivery = log.state.leasing.deliveries[group, topic][0]
    assert delivery is not None
    assert (delivery.committed(), delivery.is_settled(1), delivery.held_offsets().tolist()) == (1, False, [1])
    assert list(log.state.leasing.condemned) == [(group, topic, 0)]
    dead = log.state.leasing.dead_topics.of(group)
    assert dead is not None
    assert (dead.name, dead.queues, dead.name in log.state.names.topics) == ("%DLQ%g", 2, False)


def test_a_released_message_has_not_been_tried() -> None:
    """A client that is gone never brings a message nearer to its death."""
    log, topic, group = filled(1, attempts=1)
    for now in range(10, 20):
        ((_, lease, attempt),) = log.receive(now)
        assert attempt == 1
        log.settle(now, (group, topic, 0, RELEASE, 0, lease, 0))
    assert dying_of(log, group, topic) == {}


def test_a_consumer_may_reject_a_message_with_a_reason_and_say_so_twice() -> None:
    """The reason is cut at 1 KiB between letters; a repeat is success; a lease that is over rejects nothing."""
    log, topic, group = filled(3)
    lease = log.receive(10)[0][1]
    assert reject(log, 11, [group, topic, 0, 1, lease, "ä" * 1000]) == bytes([SETTLED])
    assert reject(log, 12, [group, topic, 0, 1, lease, "again"]) == bytes([SETTLED])
    ((_, _, reason),) = dying_of(log, group, topic).values()
    assert reason == "ä" * (DEAD_LETTER_REASON_SIZE_MAX_BYTES // 2)
    log.apply(2000)
    assert reject(log, 2001, [group, topic, 0, 0, lease, ""]) == bytes([LEASE_OVER])
    assert offsets_of(log.receive(2002)) == [0, 2]


def test_a_seek_forgets_what_rests_and_what_is_dying() -> None:
    """The group begins again; what comes up of the old rests changes nothing."""
    log, topic, group = filled(4)
    lease = log.receive(10)[0][1]
    log.settle(11, (group, topic, 0, NACK, 0, lease, 500), (group, topic, 0, NACK, 1, lease, 900))
    reject(log, 12, [group, topic, 0, 2, lease, ""])
    seek = {"group": "g", "topic": "t", "offsets": {"0": 3}, "expected": {}}
    log.apply(13, (CommandKind.COMMIT_OFFSETS, encode_msgpack(seek)))
    log.apply(5000)
    assert offsets_of(log.receive(5001)) == [3]
    delivery = log.state.leasing.deliveries[group, topic][0]
    assert delivery is not None
    assert (delivery.unsettled, delivery.dying) == (1, {})


def test_what_was_never_leased_waits_while_too_much_of_the_queue_is_unsettled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rests count: a group that nacks everything must not grow the state without end. What came back goes out again all the same."""
    monkeypatch.setattr("tern_broker.core.delivery.picking.LEASED_PER_QUEUE_MAX", 3)
    log, topic, group = filled(9)
    ((_, lease, _),) = log.receive(10)
    log.settle(11, *((group, topic, 0, NACK, offset, lease, 100) for offset in range(3)))
    with pytest.raises(Exception, match="unsettled"):
        log.receive(12)
    log.apply(111)
    again = log.receive(111)
    assert offsets_of(again) == [0, 1, 2]
    log.ack_all(112, again)
    assert offsets_of(log.receive(113)) == [3, 4, 5]


# Attempt ids ------------------------------------------------------------------------------------------------------
def received(log: Log, now_ms: int, token: bytes, messages_max: int) -> list:  # type: ignore[type-arg]
    """A receive with an attempt id."""
    return log.receive(now_ms, messages_max=messages_max, token=token)


def test_the_leases_of_a_receive_with_an_attempt_id_are_found_again_until_they_are_over() -> None:
    """Also after a save, and only what is not settled yet; an id that nobody used, and one of another topic, find nothing."""
    log, topic, group = filled(4)
    granted = received(log, 10, TOKEN, 3)
    other = received(log, 11, b"f" * 16, 3)

    def found(token: bytes) -> list[int]:
        return [
            offset
            for _, lease in log.state.leasing.replays.find(group, topic, token)
            for offset in lease.offsets().tolist()
        ]

    assert (found(TOKEN), found(b"f" * 16), found(b"0" * 16)) == ([0, 1, 2], [3], [])
    log.settle(12, (group, topic, 0, ACK, 1, granted[0][1], 0), (group, topic, 0, EXTEND, 2, granted[0][1], 5_000))
    log.state = saving.load(b"".join(saving.encode(saving.take(log.state))))
    assert found(TOKEN) == [0, 2]
    log.apply(1_010)
    assert found(TOKEN) == [2]
    log.ack_all(1_011, other)
    assert found(b"f" * 16) == []
    assert log.state.leasing.replays.find(group, topic + 99, TOKEN) == []


def test_the_index_of_attempt_ids_does_not_grow_with_leases_that_are_over() -> None:
    """However many receives there were."""
    log, _, _ = filled(0)
    topic = log.state.names.topics["t"].topic_id
    for number in range(3_000):
        log.send(10, (topic, 0, b"m", b""))
        log.ack_all(11, received(log, 11, number.to_bytes(16, "little"), 1))
    assert len(log.state.leasing.replays) == 0


@pytest.mark.parametrize("seed", range(25))
def test_attempts_are_exact_and_nothing_is_lost_or_early_whatever_happens(seed: int) -> None:
    """Random nacks, rejects, acks, releases and expiries against a plain model of each message; the state is saved and loaded between.

    Model: visible from a time on, attempts made, held by a lease until a deadline, settled, or dying.
    """
    print("seed", seed)
    rng = random.Random(seed)
    attempts_max = rng.randrange(1, 6)
    log, topic, group = filled(0, attempts=attempts_max, delays_ms=(50, 300))
    now, sent = 10, 0
    visible: dict[int, int] = {}  # offset -> visible since
    attempts: dict[int, int] = {}
    held: dict[int, tuple[int, int]] = {}  # offset -> lease, deadline
    settled: set[int] = set()
    dead: set[int] = set()

    def failed(offset: int, visible_ms: int) -> None:
        if attempts[offset] >= attempts_max:
            dead.add(offset)
        else:
            visible[offset] = visible_ms

    for _ in range(300):
        now += rng.choice((1, 5, 49, 50, 300, 700))
        log.apply(now)
        for offset, (_, deadline) in list(held.items()):
            if deadline <= now:
                del held[offset]
                failed(offset, deadline)
        action = rng.random()
        if action < 0.2 and sent < 200:
            log.send(now, *((topic, 0, b"m", b"") for _ in range(10)))
            visible.update(dict.fromkeys(range(sent, sent + 10), now))
            sent += 10
        elif action < 0.5:
            for pick, lease, attempt in log.receive(now, messages_max=rng.randrange(1, 12)):
                for offset in pick.offsets.tolist():
                    assert visible.pop(offset) <= now, offset
                    attempts[offset] = attempts.get(offset, 0) + 1
                    assert attempts[offset] == attempt, offset
                    held[offset] = (lease, now + 1_000)
        elif held:
            chosen = rng.sample(sorted(held), min(len(held), rng.randrange(1, 8)))
            kind = rng.choice(("ack", "nack", "table", "release", "reject"))
            if kind == "reject":
                rows: list[list[int | str]] = [[group, topic, 0, offset, held[offset][0], "no"] for offset in chosen]
                assert set(reject(log, now, *rows)) == {SETTLED}
                dead.update(chosen)
            else:
                word, time_ms = {"ack": (ACK, 0), "nack": (NACK, 77), "table": (NACK, -1), "release": (RELEASE, 0)}[
                    kind
                ]
                assert set(
                    log.settle(now, *((group, topic, 0, word, offset, held[offset][0], time_ms) for offset in chosen))
                ) == {SETTLED}
                for offset in chosen:
                    if kind == "ack":
                        settled.add(offset)
                    elif kind == "release":
                        attempts[offset] -= 1
                        visible[offset] = now
                    else:
                        table_ms = (50, 300)[min(attempts[offset], 2) - 1]
                        failed(offset, now + (77 if kind == "nack" else table_ms))
            for offset in chosen:
                del held[offset]
        if rng.random() < 0.1:
            saved = b"".join(saving.encode(saving.take(log.state)))
            log.state = saving.load(saved)
            assert saved == b"".join(saving.encode(saving.take(log.state)))
        if (group, topic) in log.state.leasing.deliveries and (
            delivery := log.state.leasing.deliveries[group, topic][0]
        ):
            assert set(dying_of(log, group, topic)) == dead
            assert delivery.leased == len(held)
            unsettled = set(range(delivery.cursor)) - settled
            assert set(delivery.held_offsets().tolist()) == unsettled
            assert delivery.unsettled == len(unsettled)
            assert delivery.committed() == min(unsettled, default=delivery.cursor)
            assert delivery.available(sent) == sum(since <= now for since in visible.values())
    assert set(visible) | set(held) | settled | dead == set(range(sent))
