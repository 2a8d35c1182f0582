"""What has a deadline is kept as long as it is alive, and what comes due at one moment ends in entries of bounded work."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_broker.core import saving
from tern_broker.core.deadline_heap import STALE_MAX, DeadlineHeap
from tern_broker.core.delivery import leasing as leasing_module
from tern_broker.core.delivery.lease import Lease
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.members.members import Members
from tern_wire.limits import EXPIRES_MAX, INVISIBLE_MAX_MS, MEMBER_EXPIRY_MAX_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK, EXTEND, LEASE_OVER, NACK, RELEASE, SETTLED
from tern_wire.routing.membership import Role, read_heartbeat
from tests.support.broker.entries import Log

TOKEN = b"0123456789abcdef"
Row = tuple[int, int, int, int, int, int, int]


def filled(messages: int, queues: int = 1) -> tuple[Log, int, int]:
    """A log with *messages* in each queue of topic t."""
    log = Log()
    topic, group = log.create(queues=queues)
    for queue in range(queues):
        for _ in range(0, messages, 100):
            log.send(2, *((topic, queue, b"m", b"") for _ in range(min(messages, 100))))
    return log, topic, group


def bounded(leasing: Leasing) -> None:
    """Nothing is kept but what is alive, and as much again."""
    alive = {
        (item_id, group_id, topic_id, queue)
        for (group_id, topic_id), row in leasing.deliveries.items()
        for queue, delivery in enumerate(row)
        if delivery is not None
        for item_id in (*delivery.leases, *delivery.rests)
    }
    assert set(leasing.deadlines) == alive
    assert leasing.deadlines.pairs <= 2 * len(alive) + STALE_MAX


def taken_one_by_one(log: Log, now_ms: int, messages: int, invisible_ms: int) -> list[tuple[int, int, int]]:
    """(queue, offset, lease) of *messages* leases of one message each."""
    found: list[tuple[int, int, int]] = []
    while len(found) < messages:
        granted = log.receive(now_ms, messages_max=1, invisible_ms=invisible_ms)
        found += [(pick.row[2], int(pick.offsets[0]), lease) for pick, lease, _ in granted]
    return found


# The heap ---------------------------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 8), st.one_of(st.none(), st.integers(0, 6))), max_size=300))
def test_the_heap_is_what_a_dictionary_that_is_searched_would_be(steps: list[tuple[int, int | None]]) -> None:
    """Put, put again earlier or later, removed (None): the first one is always the least of what is true."""
    heap: DeadlineHeap[tuple[int]] = DeadlineHeap()
    model: dict[tuple[int], int] = {}
    for number, at_ms in steps:
        if at_ms is None:
            heap.remove((number,))
            model.pop((number,), None)
        else:
            heap.put((number,), at_ms)
            model[number,] = at_ms
        assert heap.first() == min(((time, item) for item, time in model.items()), default=None)
        assert (len(heap), set(heap)) == (len(model), set(model))


def test_times_that_change_for_ever_leave_a_bounded_heap() -> None:
    """Later and later, to and fro, and removed and put again."""
    heap: DeadlineHeap[tuple[int]] = DeadlineHeap()
    heap.put((0,), 1)
    for step in range(5 * STALE_MAX):
        heap.put((1,), 10 + step)
        heap.put((2,), 10 + step % 2)
        heap.put((3,), 5)
        heap.remove((3,))
        assert heap.pairs <= 2 * len(heap) + STALE_MAX
    assert heap.first() == (1, (0,))


# What clients do --------------------------------------------------------------------------------------------------
def test_leases_that_are_settled_at_once_leave_nothing_until_their_deadline() -> None:
    """A half a day away: each of them stayed until then."""
    log, topic, _ = filled(0)
    for now_ms in range(10, 10 + 2 * STALE_MAX):
        log.send(now_ms, (topic, 0, b"m", b""))
        log.ack_all(now_ms, log.receive(now_ms, invisible_ms=INVISIBLE_MAX_MS))
        bounded(log.state.leasing)
    assert len(log.state.leasing.deadlines) == 0


def test_a_lease_that_is_extended_for_ever_costs_what_it_did_at_first() -> None:
    """Each extension stayed in the heap as long as its lease lived, and came up again and again."""
    log, topic, group = filled(32)
    ((pick, lease, _),) = log.receive(10, invisible_ms=60_000)
    rows = [(group, topic, 0, EXTEND, int(offset), lease, 60_000) for offset in pick.offsets]
    for step in range(200):
        assert set(log.settle(10 + step * 20_000, *rows)) == {SETTLED}
        bounded(log.state.leasing)
    assert not log.state.is_due(10 + 199 * 20_000 + 59_999)
    assert log.state.is_due(10 + 199 * 20_000 + 60_000)


def test_extensions_of_an_entry_are_one_change_of_each_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many of its messages, and however often, they are extended in it."""
    log, topic, group = filled(96)
    granted = log.receive(10, messages_max=32) + log.receive(10, messages_max=64)
    watched: list[int] = []
    original = Leasing.watch

    def watch(self: Leasing, lease: Lease, *place: int) -> None:
        watched.append(lease.lease_id)
        original(self, lease, *place)

    monkeypatch.setattr(Leasing, "watch", watch)
    rows = [(group, topic, 0, EXTEND, int(offset), lease, 900) for pick, lease, _ in granted for offset in pick.offsets]
    log.settle(20, *rows, *rows)
    assert watched == [lease for _, lease, _ in granted]


@pytest.mark.parametrize("ends", ["seek", "group", "topic"])
def test_what_is_forgotten_leaves_no_deadline(ends: str) -> None:
    """Leases and rests of a queue in which the group begins again, of a deleted group, of a deleted topic."""
    log, topic, group = filled(40)
    leases = taken_one_by_one(log, 10, 30, INVISIBLE_MAX_MS)
    log.settle(11, *((group, topic, queue, NACK, offset, lease, 500_000) for queue, offset, lease in leases[:10]))
    log.receive(12, messages_max=1, token=TOKEN)
    assert (len(log.state.leasing.deadlines), len(log.state.leasing.replays)) == (31, 1)
    command = {
        "seek": (CommandKind.SEEK, {"group": "g", "topic": "t", "to": "earliest", "queues": None}),
        "group": (CommandKind.DELETE_GROUP, {"group": "g", "group_id": group}),
        "topic": (CommandKind.DELETE_TOPIC, {"topic": "t", "topic_id": topic}),
    }[ends]
    verdict = log.apply(13, (command[0], encode_msgpack(command[1]))).verdicts[0]
    assert isinstance(verdict, dict), verdict
    bounded(log.state.leasing)
    assert (len(log.state.leasing.deadlines), len(log.state.leasing.replays)) == (0, 0)


def test_one_attempt_id_for_ever_is_not_remembered_by_leases_that_are_over() -> None:
    """A client that has one attempt id for all its receives: each of them left its leases in the index."""
    log, topic, group = filled(0)
    for now_ms in range(10, 200):
        log.send(now_ms, (topic, 0, b"m", b""))
        log.ack_all(now_ms, log.receive(now_ms, messages_max=1, token=TOKEN))
        assert len(log.state.leasing.replays) == 0
    log.send(200, (topic, 0, b"m", b""))
    ((_, lease, _),) = log.receive(200, token=TOKEN)
    assert [found.lease_id for _, found in log.state.leasing.replays.find(group, topic, TOKEN)] == [lease]


def test_members_that_come_and_go_leave_nothing() -> None:
    """Each had a time, a day away, at which it would have been silent for too long."""
    members = Members()
    says = read_heartbeat({"role": Role.CONSUMER, "group": "g", "member": "m", "subscriptions": {"t": "*"}})
    for now_ms in range(3 * STALE_MAX):
        members.heartbeat(now_ms, says, {"t": 8}, MEMBER_EXPIRY_MAX_MS)
        members.leave(Role.CONSUMER, "g", "m")
        assert members._due.pairs <= STALE_MAX
    members.heartbeat(9_000, says, {"t": 8}, 5_000)
    assert members.expire(14_000) == [(Role.CONSUMER, "g", "m")]


# What comes due at once -------------------------------------------------------------------------------------------
def all_at_once(queues: int = 3, each: int = 1_000) -> tuple[Log, int, int, list[tuple[int, int, int]]]:
    """A log in which leases of one message each, in several queues, end at one moment; they, by number."""
    log, topic, group = filled(each, queues)
    return log, topic, group, sorted(taken_one_by_one(log, 10, queues * each, 1_000), key=lambda lease: lease[2])


def test_more_leases_than_an_entry_ends_end_with_the_next_ones() -> None:
    """The earliest first; the state says that it has more to do at once."""
    log, _, _, leases = all_at_once()
    for left in (len(leases) - EXPIRES_MAX, 0):
        assert log.state.is_due(1_010)
        applied = log.apply(1_010)
        assert len(log.state.leasing.deadlines) == left
        assert applied.woken_topics
    assert not log.state.is_due(1 << 60)
    assert log.state.counters.expired == len(leases)


@pytest.mark.parametrize("action", [ACK, NACK, EXTEND, RELEASE, None])
def test_nobody_settles_a_lease_that_is_over_and_waits_for_its_entry(action: int | None) -> None:
    """The holder's time is over whether or not the entry has come to it; None: a rejection. Then somebody else has the message."""
    log, topic, group, leases = all_at_once()
    log.apply(1_010)
    queue, offset, lease = leases[-1]
    if action is None:
        rows = {"rows": [[group, topic, queue, offset, lease, "no"]]}
        answer = log.apply(1_010, (CommandKind.DEAD_LETTER, encode_msgpack(rows))).verdicts[0]
    else:
        answer = log.settle(1_010, (group, topic, queue, action, offset, lease, 1_000))
    assert answer == bytes([LEASE_OVER])


def test_while_leases_wait_for_their_entry_those_that_are_not_over_are_settled() -> None:
    """An extended message of a lease of which others are over, too."""
    log, topic, group = filled(2 * EXPIRES_MAX + 10)
    ((pick, held, _),) = log.receive(9, messages_max=2, invisible_ms=1_000)
    taken_one_by_one(log, 9, 2 * EXPIRES_MAX, 1_000)
    ((late, late_lease, _),) = log.receive(9, messages_max=1, invisible_ms=50_000)
    kept, lost = (int(offset) for offset in pick.offsets)
    log.settle(10, (group, topic, 0, EXTEND, kept, held, 50_000))
    log.apply(1_009)
    rows = [(group, topic, 0, ACK, int(late.offsets[0]), late_lease, 0)]
    rows += [(group, topic, 0, ACK, offset, held, 0) for offset in (kept, lost)]
    assert log.state.leasing.is_behind
    assert log.settle(1_009, *rows) == bytes([SETTLED, SETTLED, LEASE_OVER])


# Every node the same ----------------------------------------------------------------------------------------------
def _some_rows(log: Log, rng: random.Random, place: tuple[int, int]) -> list[Row]:
    """Settles of some messages of some leases, also of such as are over."""
    rows: list[Row] = []
    for queue, delivery in enumerate(log.state.leasing.deliveries.get((place[0], place[1]), [])):
        for lease in list(delivery.leases.values()) if delivery is not None else ():
            for offset in lease.offsets().tolist():
                if rng.random() < 0.4:
                    action = rng.choice([ACK, ACK, NACK, RELEASE, EXTEND, EXTEND, EXTEND])
                    rows.append((*place, queue, action, offset, lease.lease_id, rng.choice([10, 50, 200])))
    return rows


@pytest.mark.parametrize("seed", range(30))
def test_a_node_that_loads_its_state_ends_leases_in_the_same_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in the heap of the others of what was: the digests and the states are equal after each entry."""
    monkeypatch.setattr(leasing_module, "EXPIRES_MAX", 3)
    rng = random.Random(seed)
    log, topic, group = filled(30, queues=2)
    other = saving.load(b"".join(saving.encode(saving.take(log.state))))
    now_ms, was_behind = 10, 0
    for _ in range(120):
        now_ms += rng.choice([0, 1, 5, 20, 100])
        before = len(log.bodies)
        if rng.random() < 0.4:
            log.receive(now_ms, messages_max=rng.randint(1, 4), invisible_ms=rng.choice([20, 100, 300]), first_queue=0)
        elif rows := _some_rows(log, rng, (group, topic)):
            log.settle(now_ms, *rows)
        if before == len(log.bodies):
            log.apply(now_ms)
        was_behind += log.state.leasing.is_behind
        if rng.random() < 0.5:
            other = saving.load(b"".join(saving.encode(saving.take(other))))
        for body in log.bodies[before:]:
            other.apply(memoryview(body), 100, len(log.bodies))
        assert other.digest == log.state.digest
        assert other.leasing.pack() == log.state.leasing.pack()
        for one in (log.state, other):
            bounded(one.leasing)
            assert one.is_due(now_ms) == one.leasing.is_behind
    assert was_behind, "some entry left something to the next"
