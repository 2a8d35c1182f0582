"""Leases as apply sees them: receive, ack, expiry, extension, release, seek."""

import random

import pytest

from tern_broker.core import saving
from tern_broker.core.delivery import picking
from tern_broker.core.feature_level import EXPECTED_NOT_BEGUN_LEVEL
from tern_wire.errors import LimitReached, OffsetMoved
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.consumer_offsets import NOT_BEGUN
from tern_wire.link.rows import ACK, EXTEND, LEASE_OVER, LEASE_UNKNOWN, RELEASE, SETTLED
from tests.support.broker.entries import Log


def filled(messages: int, **create: str) -> tuple[Log, int, int]:
    """A log with *messages* in queue 0 of topic t."""
    log = Log()
    topic, group = log.create(**create)  # type: ignore[arg-type]
    log.send(2, *((topic, 0, b"%d" % number, b"") for number in range(messages)))
    return log, topic, group


def offsets_of(granted: list) -> list[int]:  # type: ignore[type-arg]
    """All offsets of a receive."""
    return [int(offset) for pick, _, _ in granted for offset in pick.offsets]


def test_nobody_else_gets_a_leased_message_until_its_lease_is_over() -> None:
    """Two receives share nothing; after the deadline the unsettled ones come back with the next attempt."""
    log, topic, group = filled(5)
    first = log.receive(10, messages_max=3)
    second = log.receive(11)
    assert (offsets_of(first), offsets_of(second)) == ([0, 1, 2], [3, 4])
    assert log.receive(12) == []
    assert bytes([SETTLED]) == log.settle(13, (group, topic, 0, ACK, 1, first[0][1], 0))
    log.apply(1010)
    again = log.receive(1010)
    assert offsets_of(again) == [0, 2]
    assert [attempt for _, _, attempt in again] == [2]


def test_an_ack_is_final_and_may_be_repeated() -> None:
    """The same ack again is success; with the lease over and the message redelivered it is not."""
    log, topic, group = filled(2)
    granted = log.receive(10)
    lease = granted[0][1]
    assert bytes([SETTLED, SETTLED]) == log.ack_all(11, granted)
    assert bytes([SETTLED]) == log.settle(12, (group, topic, 0, ACK, 0, lease, 0))
    log.apply(5000)
    assert log.receive(5001) == []
    assert bytes([LEASE_OVER]) == log.settle(5002, (group, topic, 0, EXTEND, 0, lease, 100))
    assert bytes([LEASE_UNKNOWN]) == log.settle(5003, (99, topic, 0, ACK, 0, lease, 0))


def test_an_expired_handle_does_not_ack_the_next_holder_s_message() -> None:
    """The old lease's ack is refused while the message is unsettled elsewhere."""
    log, topic, group = filled(1)
    old = log.receive(10)[0][1]
    log.apply(2000)
    assert bytes([LEASE_OVER]) == log.settle(2001, (group, topic, 0, ACK, 0, old, 0))
    new = log.receive(2002)
    assert bytes([LEASE_OVER]) == log.settle(2003, (group, topic, 0, ACK, 0, old, 0))
    assert bytes([SETTLED]) == log.ack_all(2004, new)


def test_extending_one_message_keeps_only_that_one() -> None:
    """The lease's other messages come back at its deadline; the handle of the extended one stays good."""
    log, topic, group = filled(3)
    lease = log.receive(10)[0][1]
    assert bytes([SETTLED]) == log.settle(20, (group, topic, 0, EXTEND, 1, lease, 5000))
    log.apply(1500)
    assert offsets_of(log.receive(1501, invisible_ms=100_000)) == [0, 2]
    assert bytes([SETTLED]) == log.settle(4000, (group, topic, 0, ACK, 1, lease, 0))


def test_a_released_message_is_visible_at_once_and_the_attempt_does_not_count() -> None:
    """What was leased for a client that is gone."""
    log, topic, group = filled(2)
    lease = log.receive(10)[0][1]
    log.settle(11, (group, topic, 0, RELEASE, 0, lease, 0), (group, topic, 0, RELEASE, 1, lease, 0))
    again = log.receive(12)
    assert sorted(offsets_of(again)) == [0, 1]
    assert {1} == {attempt for _, _, attempt in again}


def test_a_size_limit_cuts_a_receive_but_one_message_always_goes_out() -> None:
    """A message larger than the budget must not block its queue."""
    log, topic, _ = filled(0)
    log.send(2, (topic, 0, b"x" * 5000, b""), (topic, 0, b"y", b""), (topic, 0, b"z", b""))
    assert offsets_of(log.receive(10, size_max_bytes=100)) == [0]
    assert offsets_of(log.receive(11, size_max_bytes=100)) == [1]


def test_a_group_that_starts_latest_sees_only_what_comes_after_its_first_receive() -> None:
    """The start is fixed in all queues by the first receive, though it found nothing."""
    log, topic, _ = filled(3, start="latest")
    assert log.receive(10) == []
    log.send(11, (topic, 0, b"new", b""), (topic, 1, b"new", b""))
    assert offsets_of(log.receive(12)) == [3, 0]


def test_a_seek_moves_the_cursor_and_ends_the_leases() -> None:
    """Commit offsets with and without an expectation."""
    log, topic, group = filled(5)
    lease = log.receive(10, messages_max=2)[0][1]
    seek = {"group": "g", "topic": "t", "offsets": {"0": 4}, "expected": {"0": 1}}
    assert isinstance(log.apply(11, (CommandKind.COMMIT_OFFSETS, encode_msgpack(seek))).verdicts[0], OffsetMoved)
    seek["expected"] = {"0": 0}
    log.apply(12, (CommandKind.COMMIT_OFFSETS, encode_msgpack(seek)))
    assert bytes([SETTLED]) == log.settle(13, (group, topic, 0, ACK, 0, lease, 0))
    assert offsets_of(log.receive(14)) == [4]


def commit(log: Log, offset: int, expected: dict[str, int]) -> object:
    """The verdict on a commit in queue 0."""
    command = {"group": "g", "topic": "t", "offsets": {"0": offset}, "expected": expected}
    return log.apply(11, (CommandKind.COMMIT_OFFSETS, encode_msgpack(command))).verdicts[0]


def test_a_group_begins_once_if_it_is_expected_not_to_have_begun() -> None:
    """Of two such commits the first counts; a refused one does not begin, and the other queue does not matter."""
    log, _, _ = filled(5)
    log.apply(10, (CommandKind.RAISE, encode_msgpack({"level": EXPECTED_NOT_BEGUN_LEVEL})))
    refused = commit(log, 3, {"0": NOT_BEGUN, "1": 4})
    assert isinstance(refused, OffsetMoved)
    assert refused.fields["queue"] == 1
    assert commit(log, 2, {"0": NOT_BEGUN}) == {"offsets": {"0": 2}}
    again = commit(log, 4, {"0": NOT_BEGUN})
    assert isinstance(again, OffsetMoved)
    assert (again.fields["actual"], again.fields["expected"]) == (2, NOT_BEGUN)


def test_below_its_level_no_offset_is_that_of_a_group_that_has_not_begun() -> None:
    """As the release before decides it: the group begins at its start, and no offset is equal to -1."""
    log, _, _ = filled(5)
    refused = commit(log, 3, {"0": NOT_BEGUN})
    assert isinstance(refused, OffsetMoved)
    assert refused.fields["actual"] == 0


def test_a_lease_proposed_against_an_old_state_is_refused_not_granted_twice() -> None:
    """Apply has the last word: the same rows applied twice lease once."""
    log, _, _ = filled(4)
    granted = log.receive(10)
    body = log.bodies[-1]
    verdict = log.state.apply(memoryview(body), 0, 99).verdicts[0]
    assert granted
    assert verdict["lease"].tolist() == [0]  # type: ignore[index,call-overload]


def test_a_group_that_never_settles_is_told_so_and_not_given_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on leased messages in a queue; acks make room; the other queue goes on."""
    monkeypatch.setattr(picking, "LEASED_PER_QUEUE_MAX", 3)
    log, topic, _ = filled(5)
    granted = log.receive(10, messages_max=3)
    assert offsets_of(granted) == [0, 1, 2]
    with pytest.raises(LimitReached):
        log.receive(11)
    log.send(12, (topic, 1, b"m", b""))
    assert [pick.row[2] for pick, _, _ in log.receive(13)] == [1]
    log.ack_all(14, granted)
    assert offsets_of(log.receive(15)) == [3, 4]


@pytest.mark.parametrize("seed", range(30))
def test_every_message_is_acked_once_whatever_happens_and_a_reload_changes_nothing(seed: int) -> None:
    """Random sends, receives, acks, extends, releases, expiries, with the state saved and loaded in between.

    Invariants: no message to two holders within a lease; every message is settled at the end; the reloaded state is equal.
    """
    print("seed", seed)
    rng = random.Random(seed)
    log, topic, group = filled(0)
    log.state.names.groups_by_id[group].max_attempts = 1_000
    now, sent, settled = 10, 0, set()
    held: dict[tuple[int, int], tuple[int, int]] = {}  # (queue, offset) -> lease, deadline
    for _ in range(400):
        now += rng.choice((1, 5, 50, 700))
        action = rng.random()
        if action < 0.2 and sent < 300:
            count = rng.randrange(1, 20)
            log.send(now, *((topic, rng.randrange(2), b"m", b"") for _ in range(count)))
            sent += count
        elif action < 0.55:
            log.apply(now)
            for pick, lease, _ in log.receive(now, messages_max=rng.randrange(1, 12), first_queue=rng.randrange(2)):
                for offset in pick.offsets.tolist():
                    key = (pick.row[2], offset)
                    assert key not in settled
                    assert key not in held or held[key][1] <= now, f"two holders of {key} at {now}"
                    held[key] = (lease, now + 1000)
        elif held:
            keys = rng.sample(sorted(held), min(len(held), rng.randrange(1, 8)))
            kind = rng.choice((ACK, ACK, EXTEND, RELEASE))
            rows = [(group, topic, queue, kind, offset, held[queue, offset][0], 300) for queue, offset in keys]
            for key, status in zip(keys, log.settle(now, *rows), strict=True):
                lease, deadline = held[key]
                assert (status == SETTLED) == (now < deadline), (key, status, now, deadline)
                if status != SETTLED or kind == RELEASE:
                    del held[key]
                elif kind == ACK:
                    del held[key]
                    settled.add(key)
                else:
                    held[key] = (lease, now + 300)
        if rng.random() < 0.1:
            saved = b"".join(saving.encode(saving.take(log.state)))
            log.state = saving.load(saved)
            assert saved == b"".join(saving.encode(saving.take(log.state)))
    for _ in range(1000):
        now += 100_000
        log.apply(now)
        granted = log.receive(now)
        if not granted:
            break
        settled.update((pick.row[2], offset) for pick, _, _ in granted for offset in pick.offsets.tolist())
        log.ack_all(now, granted)
    assert sent == len(settled)
    assert log.state.names.topics["t"].ends == [
        delivery.committed() if delivery else 0 for delivery in log.state.leasing.deliveries[group, topic]
    ]
