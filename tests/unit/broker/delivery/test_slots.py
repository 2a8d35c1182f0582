"""Slots: which queue a message group's messages go to, before, while and after a topic grows."""

import random

import numpy as np
import pytest

from tern_broker.core.delivery import slots
from tern_broker.core.delivery.slots import SLOTS
from tern_broker.link.checked_send import check_send
from tern_wire.errors import LinkBodyMalformed, PropertyConflictsWithType, TernError
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import ACK, NO_KEY, NO_QUEUE, SEND_ROW, SEND_ROWS, message_group_hash
from tern_wire.link.sends import Send
from tern_wire.records.properties import MESSAGE_GROUP, encode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import encode_record
from tests.support.broker.fifo_log import FifoLog

NAMES = [f"g{number}" for number in range(64)]


def slot_of(name: str) -> int:
    """The slot of a message group."""
    return message_group_hash(name.encode()) % SLOTS


def places(log: FifoLog, now_ms: int, names: list[str] | None = None) -> dict[str, int]:
    """Send one message of each; the queue of each."""
    names = NAMES if names is None else names
    sent = log.send_grouped(now_ms, *((name, b"m") for name in names))
    return {name: queue for name, (queue, _) in zip(names, sent, strict=True)}


def raw_send(log: FifoLog, name: str, queue: int, *, hashed: int | None = None) -> memoryview:
    """The raw bytes of a link SEND of one message."""
    record = encode_record(b"t", queue, b"m", encode_properties([(MESSAGE_GROUP, name)]), born_ms=5)
    crc = int.from_bytes(record[8:12], "big")
    found = message_group_hash(name.encode()) if hashed is None else hashed
    return memoryview(SEND_ROW.pack(len(record), 0, queue, 0, 0, crc, 0, NO_KEY, 0, found) + record)


def test_a_slot_belongs_to_the_queue_of_its_number() -> None:
    """Slot modulo queues; the record says the same queue as the verdict."""
    log = FifoLog(queues=5)
    assert places(log, 2) == {name: slot_of(name) % 5 for name in NAMES}
    send = check_send(Send(topics=["t"], rows=1), raw_send(log, "g7", 0), log.state, random.Random(1))
    _, rows, records = send.payload(3, bytes(8))
    queue = slot_of("g7") % 5
    assert np.frombuffer(rows, SEND_ROWS)["queue"].tolist() == [queue]
    assert decode_record(records).queue == queue


def test_growth_moves_a_slot_only_when_nothing_of_it_is_unsettled() -> None:
    """While a message waits, is leased, rests or was never looked at, the slot stays; with the send after that it moves."""
    log = FifoLog(queues=2)
    home = places(log, 2)
    log.grow(7)
    assert places(log, 3) == home, "nobody has begun: a group may still come and read it all"
    held = log.receive_in_order(10, 256)
    assert places(log, 11) == home, "in hand"
    while held:
        log.settle_held(12, ACK, held)
        held = log.receive_in_order(13, 256)
    moved = places(log, 14)
    assert moved == {name: slot_of(name) % 7 for name in NAMES}
    log.grow(8)
    assert places(log, 15) == moved, "never looked at"


def test_a_slot_waits_for_every_ordered_group_and_for_no_other() -> None:
    """A second ordered group that is behind holds it; one without order does not."""
    log = FifoLog(queues=1)
    log.create("t2", group="behind")
    home = places(log, 2, ["a"])
    names = log.state.names
    for group, is_fifo in (("behind", True), ("g", True)):
        names.groups[group].is_fifo = is_fifo
        log.state.leasing.delivery(names.groups[group].group_id, log.topic, 0)
    log.grow(1024)
    log.settle_held(3, ACK, log.receive_in_order(3))
    assert places(log, 4, ["a"]) == home
    behind = log.state.leasing.deliveries[names.groups["behind"].group_id, log.topic_id]
    behind[0].seek(2)  # type: ignore[union-attr]
    log.settle_held(5, ACK, log.receive_in_order(5))
    assert places(log, 6, ["a"]) == {"a": slot_of("a")}


def test_a_slot_that_holds_nothing_any_more_moves_though_nobody_reads() -> None:
    """Retention has dropped what was in it."""
    log = FifoLog(queues=1)
    home = places(log, 2, ["a"])
    log.grow(1024)
    assert places(log, 3, ["a"]) == home
    log.topic.mins[0] = 2
    assert places(log, 4, ["a"]) == {"a": slot_of("a")}


def test_slots_are_saved_and_go_with_their_topic() -> None:
    """After a load they are where they were; 10 KiB for a topic with message groups, nothing for others."""
    log = FifoLog(queues=2)
    log.create("plain", group="other")
    home = places(log, 2)
    log.grow(9)
    log.reload()
    assert places(log, 3) == home
    (packed,) = log.state.slots.pack()["tables"]
    assert len(packed[1]) + len(packed[2]) == 10 * SLOTS
    assert packed[3] == []
    log.state.slots.drop(log.apply(4), log.topic_id, 0)
    assert log.state.slots.pack() == {"tables": [], "left": []}


def test_apply_refuses_a_row_that_is_not_in_its_slot_s_queue() -> None:
    """Whoever wrote it: no order would hold for it."""
    log = FifoLog(queues=4)
    wrong = (slot_of("a") + 1) % 4
    record = encode_record(b"t", wrong, b"m", encode_properties([(MESSAGE_GROUP, "a")]), born_ms=5)
    row = SEND_ROW.pack(len(record), log.topic_id, wrong, 0, 0, 0, 0, NO_KEY, 0, message_group_hash(b"a"))
    verdicts = log.apply(2, (CommandKind.SEND, SEND_HEAD.pack(1, 0) + row + record)).verdicts[0]
    assert isinstance(verdicts, np.ndarray)
    assert verdicts["status"].tolist() == [NO_QUEUE]
    assert log.topic.ends == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("queue", "hashed", "error"), [(1, None, PropertyConflictsWithType), (0, 77, LinkBodyMalformed)]
)
def test_a_send_whose_message_group_cannot_be_is_refused(
    queue: int, hashed: int | None, error: type[TernError]
) -> None:
    """A queue beside a message group; a row whose hash is not that of the record's message group."""
    log = FifoLog(queues=2)
    with pytest.raises(error):
        check_send(Send(topics=["t"], rows=1), raw_send(log, "a", queue, hashed=hashed), log.state, random.Random(1))


def test_a_group_that_comes_after_a_move_gets_every_message_group_in_the_order_sent() -> None:
    """Two moves, messages before, between and after them; a group that reads from the beginning waits queue by queue."""
    log = FifoLog(queues=1)
    names = [f"g{number}" for number in range(40)]
    sent: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for now_ms, queues in ((10, 1), (1_000, 5), (2_000, 13)):
        log.grow(queues)
        for _ in range(3):
            for name, place in zip(names, log.send_grouped(now_ms, *((name, b"m") for name in names)), strict=True):
                sent[name].append(place)
        while held := log.receive_in_order(now_ms, 256):
            log.settle_held(now_ms, ACK, held)
    assert max(len({queue for queue, _ in line}) for line in sent.values()) == 3, "some have moved twice"
    for queue in range(13):
        log.seek(3_000, queue, 0)
    owner = {place: name for name, line in sent.items() for place in line}
    seen: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    rng = random.Random(7)
    now_ms = 3_000
    while sum(map(len, seen.values())) < 9 * len(names):
        held = log.receive_in_order(now_ms, rng.randrange(1, 60), first_queue=rng.randrange(13))
        assert held, f"{sum(map(len, seen.values()))} came, then no more"
        assert len({owner[each.queue, each.offset] for each in held}) == len(held), "two of one message group at once"
        for each in held:
            seen[owner[each.queue, each.offset]].append((each.queue, each.offset))
        if rng.random() < 0.2:
            log.reload()
        log.settle_held(now_ms, ACK, held)
    assert seen == sent


def test_a_slot_that_has_left_too_many_queues_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is remembered of it has a bound; once retention has dropped what lay in the first, it may move again."""
    monkeypatch.setattr(slots, "HOMES_MAX", 2)
    log, slot = FifoLog(queues=1), slot_of("g9")
    homes = []
    for queues in (100, 110, 120, 130):
        log.grow(queues)
        homes.append(places(log, 10, ["g9"])["g9"])
        while held := log.receive_in_order(11):
            log.settle_held(11, ACK, held)
    assert homes == [slot % 100, slot % 110, slot % 120, slot % 120]
    log.topic.mins[slot % 100] = log.topic.ends[slot % 100]
    assert places(log, 12, ["g9"]) == {"g9": slot % 130}
