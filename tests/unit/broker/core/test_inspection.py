"""What a comparison of the nodes looks at: a bounded piece of each part, however much is held, and all of it within a round."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tern_broker.core import StateMachine, saving
from tern_broker.core.applied import Part
from tern_broker.core.delivery.slots import SlotTable
from tern_broker.core.members.queue_locks import QueueLock
from tern_broker.core.topics import Group, Topic
from tern_broker.core.windows import Windowed
from tern_wire.limits import INSPECTED_ROWS_MAX
from tern_wire.link.codec import encode_msgpack
from tests.support.broker.half_messages import TransactionLog
from tests.support.broker.staged_log import StagedLog

ROWS = 3 * INSPECTED_ROWS_MAX + 10
LAST = ROWS - 1
# Far more than the rows of a window with their names, and far less than all rows.
WINDOW_SIZE_MAX_BYTES = 48 * 1_024


def large() -> TransactionLog:
    """Topics, groups, producer groups, locks and open transactions for several windows each."""
    log = TransactionLog()
    for number in range(ROWS):
        log.state.names.put(Topic(1_000 + number, f"topic-{number}", ends=[5] * 8, mins=[0] * 8))
        log.state.names.put(Group(10_000 + number, f"group-{number}"))
        log.state.clients.locks._put((f"group-{number}", "t", 0), QueueLock("m", number + 1, 5))
        log.producer_group(f"p-{number}")
    numbers = [log.begin_one(2, check_after_ms=60_000) for _ in range(ROWS)]
    log.end(3, *numbers[: ROWS // 3])
    return log


def round_of(state: StateMachine) -> list[int]:
    """What a round of DIGESTs sees."""
    return [state.inspection.witness(turn, 0) for turn in range(state.inspection.turns)]


def rename_a_topic(log: TransactionLog) -> None:
    """The last one."""
    log.state.names.topics[f"topic-{LAST}"].created_ms += 1


def alter_a_group(log: TransactionLog) -> None:
    """The last one."""
    log.state.names.groups[f"group-{LAST}"].invisible_ms += 1


def alter_a_lock(log: TransactionLog) -> None:
    """The last one."""
    log.state.clients.locks._locks[f"group-{LAST}", "t", 0] = QueueLock("other", 1, 5)


def alter_a_producer_group(log: TransactionLog) -> None:
    """The last one."""
    log.state.producers.by_name[f"p-{LAST}"].committed += 1


def alter_a_transaction(log: TransactionLog) -> None:
    """The youngest one."""
    table = log.state.transactions.table
    table.set(list(table.slots.values())[-1], begun_ms=1)


def alter_an_outcome(log: TransactionLog) -> None:
    """Of one that has ended."""
    log.state.transactions.outcomes._youngest[ROWS // 3 - 1]["ended_ms"] += 1


ALTERATIONS = [
    rename_a_topic,
    alter_a_group,
    alter_a_lock,
    alter_a_producer_group,
    alter_a_transaction,
    alter_an_outcome,
]


@pytest.mark.parametrize("alter", ALTERATIONS)
def test_a_round_sees_every_row(alter: Callable[[TransactionLog], None]) -> None:
    """Also the last one of many."""
    log = large()
    before = round_of(log.state)
    alter(log)
    assert round_of(log.state) != before


def parts(state: StateMachine) -> dict[str, Any]:
    """The parts that may be large, by name."""
    return {name: part for name, part in state.parts.items() if isinstance(part, Windowed)}


def test_a_window_is_small_however_much_is_held() -> None:
    """All windows of a part together are as large as what it packs, and none of them is much larger than the others."""
    state = large().state
    assert set(parts(state)) == {
        "metadata",
        "slots",
        "clients",
        "producers",
        "transactions",
        "principals",
        "read_leases",
        "publications",
    }
    for name, part in parts(state).items():
        sizes = [len(encode_msgpack(part.window(number))) for number in range(part.windows())]
        assert max(sizes) < WINDOW_SIZE_MAX_BYTES, f"{name}: {sizes}"
        assert sum(sizes) > 0.9 * len(encode_msgpack(part.pack())) - 64, f"{name} leaves something out"
        assert len(encode_msgpack(part.window(part.windows()))) < 200, f"{name}: nothing lies behind the last window"
    small: list[Part] = [part for part in state.parts.values() if not isinstance(part, Windowed)]
    assert {len(encode_msgpack(part.pack())) < 64 for part in small if part is not state.leasing} == {True}


def test_a_loaded_state_is_looked_at_as_the_one_that_was_saved() -> None:
    """Wherever the rows lie in memory: open transactions have other slots, and locks another table."""
    state = large().state
    again = saving.load(b"".join(saving.encode(saving.take(state))))
    assert round_of(again) == round_of(state)


def test_slots_are_looked_at_some_topics_at_a_time() -> None:
    """Each table has 10 KiB."""
    state = StateMachine()
    for number in range(100):
        state.slots._tables[number] = SlotTable(np.zeros(1_024, np.uint16), np.zeros(1_024, np.int64))
    before = round_of(state)
    sizes = [len(encode_msgpack(state.slots.window(number))) for number in range(state.slots.windows())]
    assert max(sizes) < 400 * 1_024
    state.slots._tables[99].lasts[1_023] += 1
    assert round_of(state) != before


def test_stages_are_looked_at_some_chunks_at_a_time() -> None:
    """Many chunks in one stage, many stages of one query, many queries: each row is seen, and no window has them all."""
    log = StagedLog()
    for number in range(3 * INSPECTED_ROWS_MAX):
        log.stage(b"a", chunk=number)
        log.stage(b"a", batch=1, partition=number)
        log.stage(b"a", query=f"q-{number}")
    publications = log.state.publications
    sizes = [len(encode_msgpack(publications.window(number))) for number in range(publications.windows())]
    assert max(sizes) < WINDOW_SIZE_MAX_BYTES
    before = round_of(log.state)
    for altered in (publications.queries["q"].stages[1, LAST - 10, 0], publications.queries[f"q-{LAST - 10}"]):
        altered.begun_ms += 1
        assert round_of(log.state) != before
        altered.begun_ms -= 1
    chunk = list(publications.queries["q"].stages[0, 0, 0].chunks.values())[-1]
    chunk.messages = bytes(len(chunk.messages))
    assert round_of(log.state) != before
