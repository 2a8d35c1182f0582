"""Receives with a filter, over a real store: exactly what is wanted, once and in order; the rest is consumed; bounds and budgets hold."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tern_broker.core.delivery.fifo_picking import looked_in_vain
from tern_broker.core.delivery.picking import ReceiveRequest
from tern_broker.proposal import Proposal
from tern_broker.waiting import filter_scan
from tern_broker.waiting.filter_scan import compiled_text, look_with
from tern_wire.filters import compile_filter
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import ACK
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles

Row = tuple[int, ...]


def filled(count: int, seed: int) -> tuple[SingleBroker, list[int]]:
    """Messages in queue 0 with random tags, two of which have one hash; the offsets of those with tag Aa."""
    broker = SingleBroker(FaultyFiles())
    broker.create(queues=1)
    rng, number = random.Random(seed), 0
    wanted: list[int] = []
    while number < count:
        size, tag = min(rng.randrange(1, 7), count - number), rng.choice(["Aa", "BB", "C", ""])
        broker.send("t", *((0, b"%d" % n) for n in range(number, number + size)), tag=tag)
        wanted += range(number, number + size) if tag == "Aa" else ()
        number += size
    return broker, wanted


def receive(
    broker: SingleBroker,
    tags: str | None = "Aa",
    sql: str | None = None,
    *,
    messages_max: int = 32,
    size_max_bytes: int = 1 << 20,
    monotonic: Callable[[], float] = lambda: 0.0,
    looks: int = 1_000,
) -> list[tuple[int, Row]]:
    """One receive, proposed again as long as it looks in vain; offsets, and rows that settle them."""
    request = ReceiveRequest(
        group=broker.state.names.groups["g"],
        topic=broker.state.names.topics["t"],
        messages_max=messages_max,
        size_max_bytes=size_max_bytes,
        invisible_ms=60_000,
        first_queue=0,
        look=look_with(compile_filter(tags, sql), broker.store, monotonic),
    )
    answers: list[tuple[Any, list[Any]]] = []
    for _ in range(looks):
        broker.proposer.submit(Proposal(CommandKind.LEASE, 64, lambda *answer: answers.append(answer), receive=request))
        broker.run()
        verdicts, picks = answers.pop()
        if not looked_in_vain(picks, verdicts):
            break
    else:
        return []
    held = zip(picks, verdicts.tolist() if verdicts is not None else (), strict=True) if picks else ()
    return [
        (offset, (pick.row[0], pick.row[1], pick.row[2], ACK, offset, lease, 0))
        for pick, (lease, _, _) in held
        if lease
        for offset in pick.offsets.tolist()
    ]


def committed(broker: SingleBroker) -> int:
    """The group's committed offset."""
    (row,) = broker.state.leasing.deliveries.values()
    assert row[0] is not None
    return row[0].committed()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("tags", "sql"), [("Aa", None), (None, "TAGS = 'Aa'")])
def test_receives_of_any_size_get_what_is_wanted_once_and_in_order(
    seed: int, tags: str | None, sql: str | None
) -> None:
    """However much fits into one; when all is acked, the group's progress is the queue's end."""
    broker, wanted = filled(150, seed)
    rng = random.Random(seed)
    seen: list[int] = []
    while True:
        got = receive(broker, tags, sql, messages_max=rng.randrange(1, 9), size_max_bytes=rng.choice([1, 400, 1 << 20]))
        if not got:
            break
        seen += [offset for offset, _ in got]
        broker.ack(*(row for _, row in got))
    assert seen == wanted
    assert committed(broker) == 150


def test_what_is_dropped_is_consumed_at_once_and_what_is_held_is_not() -> None:
    """Progress stands before the first message that is held, wherever that is."""
    broker, wanted = filled(60, seed=3)
    got = receive(broker)
    assert [offset for offset, _ in got] == wanted[: len(got)]
    assert committed(broker) == wanted[0]
    broker.ack(*(row for _, row in got[:1]))
    assert committed(broker) == wanted[1]


def test_messages_that_came_back_pass_the_filter_again() -> None:
    """The same one gets them again; for another one they are dropped, as fresh ones would be."""
    broker, wanted = filled(40, seed=5)
    first = [offset for offset, _ in receive(broker, messages_max=100)]
    assert first == wanted
    broker.pass_time(61_000)
    again: list[int] = []
    while got := receive(broker, messages_max=3):
        again += [offset for offset, _ in got]
    assert again == wanted
    broker.pass_time(61_000)
    assert receive(broker, "C", messages_max=100) == []
    assert committed(broker) == 40


def test_one_look_is_bounded_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is over it stops where it is; what was passed over stays passed over."""
    broker, _ = filled(200, seed=1)
    monkeypatch.setattr(filter_scan, "SQL_PAGE_ENTRIES", 10)

    def clock() -> Iterator[float]:
        now_s = 0.0
        while True:
            yield now_s
            now_s += filter_scan.LOOK_S / 3

    ticks = clock()
    places = []
    for _ in range(100):
        receive(broker, None, "TAGS = 'nobody'", monotonic=lambda: next(ticks), looks=1)
        places.append(committed(broker))
        if places[-1] == 200:
            break
    steps = np.diff([0, *places])
    assert places[-1] == 200
    assert 0 < steps.max() <= 30


@pytest.mark.parametrize("tags", ["Aa", "nobody"])
def test_a_look_whose_time_is_over_before_it_begins_looks_all_the_same(tags: str) -> None:
    """A process that waits for a core must not tell a client that nothing is there, nor stay where it is."""
    broker, wanted = filled(200, seed=1)
    now_s = 0.0

    def late() -> float:
        nonlocal now_s
        now_s += 2 * filter_scan.LOOK_S
        return now_s

    got = [offset for offset, _ in receive(broker, tags, messages_max=100, monotonic=late)]
    assert got == (wanted[:100] if tags == "Aa" else [])
    assert committed(broker) == (wanted[0] if tags == "Aa" else 200)


def test_a_subscription_is_read_as_members_write_it() -> None:
    """SQL behind its prefix, tags with and without one, everything."""
    assert compiled_text("sql:a > 1").sql == "a > 1"
    assert compiled_text("tags:A || B").text == compiled_text("B||A").text
    assert compiled_text("*").is_all
