"""Topics that several broker groups share: what one of them stores, replays and lets go of, by the state machine alone."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

from tern_wire.errors import TernError
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import (
    ACK,
    FLAG_KEYED,
    FLAG_PINNED,
    FLAG_SENT_ON,
    MOVED,
    NO_KEY,
    REPLAYED,
    SEND_ROW,
    SENT,
    key_hash,
    message_group_hash,
)
from tern_wire.records.properties import MESSAGE_GROUP, encode_properties
from tern_wire.records.write import encode_record
from tern_wire.routing.placement import Placement, owners, slot_of_key, slot_of_message_group
from tests.support.broker.fifo_log import FifoLog

BORN = Placement(epoch=1, groups=("broker-a",))
GROWING = BORN.next(["broker-a", "broker-b"])
ENDED = GROWING.ended()
OWNERS = owners(GROWING.groups)


def keys_of(owner: str, count: int) -> list[bytes]:
    """Idempotency keys that belong to *owner* when both share the topic."""
    found = (key for key in (f"k{number}".encode() for number in range(100_000)) if owner_of(key) == owner)
    return list(islice(found, count))


def owner_of(key: bytes) -> str:
    """Which of both has it then."""
    return OWNERS[slot_of_key(key_hash(b"t", key))]


def message_groups_of(owner: str, count: int, *, inner_slot: int = -1) -> list[str]:
    """As keys_of; all in the slot *inner_slot* of the broker group's own."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        hashed = message_group_hash(f"m{number}".encode())
        if OWNERS[slot_of_message_group(hashed)] == owner and inner_slot in {-1, hashed & 1_023}:
            found.append(f"m{number}")
        number += 1
    return found


class Shared(FifoLog):
    """Broker group `broker-a`, which has topic t; placed as told."""

    def place(self, now_ms: int, placement: Placement, *, mode: str = "alter", **more: Any) -> Any:
        """The verdict: settings, or why not."""
        change = {"topic": "t", "mode": mode, "placement": str(placement), "own": "broker-a", **more}
        kind = CommandKind.ALTER_TOPIC if mode == "alter" else CommandKind.CREATE_TOPIC
        return self.apply(now_ms, (kind, encode_msgpack(change))).verdicts[0]

    def keyed(self, now_ms: int, *keys: bytes, flags: int = FLAG_KEYED, message_group: str = "") -> list[int]:
        """Send one message a key (b"": none); their statuses."""
        rows, records = [], []
        hashed = message_group_hash(message_group.encode()) if message_group else 0
        queue = int(self.state.slots.route(self.topic, np.array([hashed], np.uint64))[0]) if hashed else 0
        properties = encode_properties([(MESSAGE_GROUP, message_group)] if message_group else [])
        for key in keys:
            record = encode_record(b"t", queue, b"body", properties, born_ms=5)
            crc = int.from_bytes(record[8:12], "big")
            name = key_hash(b"t", key) if key else NO_KEY
            facts = (len(record), self.topic_id, queue, flags if key else 0, 0, crc, 0, name, 0, hashed)
            rows.append(SEND_ROW.pack(*facts))
            records.append(record)
        payload = SEND_HEAD.pack(len(rows), 0) + b"".join(rows + records)
        verdicts = self.apply(now_ms, (CommandKind.SEND, payload)).verdicts[0]
        assert isinstance(verdicts, np.ndarray), verdicts
        found: list[int] = verdicts["status"].tolist()
        return found

    def grouped(self, now_ms: int, *message_groups: str) -> list[int]:
        """Send one message each, in one entry a message; their statuses."""
        return [self.keyed(now_ms, b"", message_group=each)[0] for each in message_groups]

    def settle_all(self, now_ms: int) -> int:
        """Receive and ack until there is nothing; how many."""
        count = 0
        while held := self.receive_in_order(now_ms):
            self.settle_held(now_ms, ACK, held)
            count += len(held)
        return count


@pytest.fixture
def log() -> Shared:
    """The topic is born on broker-a alone."""
    shared = Shared(queues=4)
    assert shared.place(2, BORN)["placement"] == "1|broker-a|"
    return shared


def test_a_key_that_was_sent_is_replayed_and_a_new_one_of_the_other_broker_groups_is_sent_on(log: Shared) -> None:
    """Whoever grows asks here first, so nothing is stored twice: neither before, nor in, nor after the change."""
    mine, others = keys_of("broker-a", 3), keys_of("broker-b", 3)
    assert log.keyed(3, mine[0], others[0]) == [SENT, SENT]
    log.place(4, GROWING)
    assert log.keyed(5, mine[0], others[0], mine[1], others[1]) == [REPLAYED, REPLAYED, SENT, MOVED]
    assert log.keyed(6, others[1], others[1], others[0]) == [MOVED, MOVED, REPLAYED]
    assert log.keyed(7, others[2], flags=FLAG_KEYED | FLAG_PINNED) == [SENT], "its sender has chosen the queue"
    assert log.keyed(8, b"") == [SENT], "without a key it is at home wherever it is sent"
    log.reload()
    assert log.keyed(9, others[1], others[0]) == [MOVED, REPLAYED]


def test_a_message_group_goes_over_when_all_of_its_slot_is_settled_and_never_comes_back(log: Shared) -> None:
    """Also when a message group that stays fills the same slot again."""
    (moving,) = message_groups_of("broker-b", 1)
    (staying,) = message_groups_of("broker-a", 1, inner_slot=message_group_hash(moving.encode()) & 1_023)
    assert log.grouped(3, moving, staying) == [SENT, SENT]
    log.place(4, GROWING)
    assert log.grouped(5, moving) == [SENT], "an earlier message is not settled"
    held = log.receive_in_order(6)
    assert log.grouped(6, moving) == [SENT], "nor when it is in somebody's hands"
    log.settle_held(7, ACK, held)
    assert log.settle_all(8) == 2
    assert log.grouped(9, moving, staying) == [MOVED, SENT]
    log.reload()
    assert log.grouped(10, moving, staying) == [MOVED, SENT], "the slot is full again, of those who stay"


def test_a_message_group_without_a_message_here_goes_over_at_once(log: Shared) -> None:
    """There is nothing to be overtaken."""
    moving, other = message_groups_of("broker-b", 2)
    log.place(3, GROWING)
    assert log.grouped(4, moving, other, *message_groups_of("broker-a", 1)) == [MOVED, MOVED, SENT]


def test_messages_that_nobody_reads_in_order_yet_hold_their_message_group_here(log: Shared) -> None:
    """Somebody may come, and read the topic from its beginning."""
    (moving,) = message_groups_of("broker-b", 1)
    assert log.grouped(3, moving) == [SENT]
    log.place(4, GROWING)
    assert log.grouped(5, moving) == [SENT]


def test_a_key_with_a_message_group_belongs_where_its_message_group_does(log: Shared) -> None:
    """What was stored here is replayed here, though its message group has gone over since."""
    (moving,) = message_groups_of("broker-b", 1)
    first, second = keys_of("broker-a", 2)
    assert log.keyed(3, first, message_group=moving) == [SENT]
    log.settle_all(4)
    log.place(5, GROWING)
    assert log.keyed(6, first, second, message_group=moving) == [REPLAYED, MOVED]


def test_a_move_ends_when_its_keys_are_forgotten_and_every_slot_is_settled(log: Shared) -> None:
    """Until then it says what it waits for; then everything that belongs elsewhere is elsewhere."""
    moving, late = message_groups_of("broker-b", 2)
    (key,) = keys_of("broker-b", 1)
    assert log.grouped(3, moving) == [SENT]
    log.place(4, GROWING)
    refused = log.place(10_004, GROWING, ending=True)
    assert isinstance(refused, TernError)
    assert (refused.code, refused.fields["left"]) == (
        "placement-moving",
        "messages of 1 of 1,024 slots of message groups are settled in 'broker-a', and "
        "idempotency keys of before are forgotten, in 590 s",
    )
    over_ms = 4 + IDEMPOTENCY_WINDOW_MS
    refused = log.place(over_ms, GROWING, ending=True)
    assert isinstance(refused, TernError)
    assert "1 of 1,024 slots" in refused.fields["left"]
    early = log.place(over_ms, ENDED)
    assert isinstance(early, TernError), "nobody may say that it has ended before all have let go"
    log.settle_all(over_ms)
    assert log.place(over_ms, GROWING, ending=True)["placement"] == str(GROWING)
    log.reload()
    assert log.grouped(over_ms, moving, late) == [MOVED, MOVED]
    assert log.place(over_ms, ENDED)["placement"] == str(ENDED)
    assert log.grouped(over_ms, moving, late) == [MOVED, MOVED]
    assert log.keyed(over_ms, key) == [MOVED]


def test_a_move_waits_for_the_last_key_that_a_message_group_has_brought_here(log: Shared) -> None:
    """A keyed message that must wait here for its message group is younger than the move: its key is known here for a whole window."""
    (moving,) = message_groups_of("broker-b", 1)
    first, second, third = keys_of("broker-b", 3)
    assert log.grouped(3, moving) == [SENT]
    log.place(4, GROWING)
    over_ms = 4 + IDEMPOTENCY_WINDOW_MS
    assert log.keyed(over_ms - 1_000, first, message_group=moving) == [SENT]
    assert log.settle_all(over_ms - 500) == 2
    refused = log.place(over_ms, GROWING, ending=True)
    assert isinstance(refused, TernError)
    wanted = "idempotency keys of before are forgotten, in 599 s after the last one that was stored there"
    assert refused.fields["left"] == wanted
    log.reload()
    assert log.keyed(over_ms + 1, first, second, message_group=moving) == [REPLAYED, MOVED]
    assert log.keyed(over_ms + 2, third, flags=FLAG_KEYED | FLAG_PINNED) == [SENT], "its repeat comes here, too"
    late_ms = over_ms - 1_000 + IDEMPOTENCY_WINDOW_MS
    assert isinstance(log.place(late_ms - 1, GROWING, ending=True), TernError)
    assert log.place(late_ms, GROWING, ending=True)["placement"] == str(GROWING), "repeats do not begin it anew"
    assert log.place(late_ms, ENDED)["keyed_ms"] == 0


def test_asking_again_and_again_does_not_end_a_move_before_its_keys_are_forgotten(log: Shared) -> None:
    """Nothing of any message group is left, so every slot leaves at the first time of asking; the keys stay."""
    (key,) = keys_of("broker-b", 1)
    assert log.keyed(3, key) == [SENT]
    log.place(4, GROWING)
    for now_ms in (5, 6, 3 + IDEMPOTENCY_WINDOW_MS):
        assert isinstance(log.place(now_ms, GROWING, ending=True), TernError)
        assert isinstance(log.place(now_ms, ENDED), TernError)
        log.reload()
    assert log.place(4 + IDEMPOTENCY_WINDOW_MS, GROWING, ending=True)["placement"] == str(GROWING)
    log.reload()
    assert log.place(4 + IDEMPOTENCY_WINDOW_MS, ENDED)["placement"] == str(ENDED)


def test_a_repeat_that_is_under_way_when_the_move_ends_is_replayed_or_sent_on(log: Shared) -> None:
    """A proxy of the epoch before asks here first: nothing that this broker group has let go of is stored here again."""
    (moving,) = message_groups_of("broker-b", 1)
    keys = keys_of("broker-b", 2)
    log.grouped(3, moving)
    log.place(4, GROWING)
    assert log.keyed(5, keys[0], message_group=moving) == [SENT]
    log.settle_all(6)
    log.place(5 + IDEMPOTENCY_WINDOW_MS, GROWING, ending=True)
    log.place(5 + IDEMPOTENCY_WINDOW_MS, ENDED)
    assert log.keyed(6 + IDEMPOTENCY_WINDOW_MS, *keys, message_group=moving) in ([REPLAYED, MOVED], [MOVED, MOVED])


def test_once_a_move_is_over_a_late_message_of_it_is_sent_on_whatever_its_slot_holds(log: Shared) -> None:
    """A proxy that has not heard of the end still asks here first, and others that stay have filled the slot again."""
    (moving,) = message_groups_of("broker-b", 1)
    (staying,) = message_groups_of("broker-a", 1, inner_slot=message_group_hash(moving.encode()) & 1_023)
    log.place(3, GROWING)
    over_ms = 3 + IDEMPOTENCY_WINDOW_MS
    log.place(over_ms, GROWING, ending=True)
    log.place(over_ms, ENDED)
    assert log.grouped(over_ms, staying, moving, staying) == [SENT, MOVED, SENT]


def test_a_broker_group_holds_nothing_of_slots_that_it_never_had(log: Shared) -> None:
    """A message that came to the wrong one of two is sent on, though another message group has filled the slot."""
    log.place(3, GROWING)
    log.place(3 + IDEMPOTENCY_WINDOW_MS, GROWING, ending=True)
    log.place(3 + IDEMPOTENCY_WINDOW_MS, ENDED)
    log.place(4 + IDEMPOTENCY_WINDOW_MS, ENDED.next(["broker-a", "broker-b", "broker-c"]))
    three = owners(("broker-a", "broker-b", "broker-c"))
    (others,) = message_groups_of("broker-b", 1)
    inner_slot = message_group_hash(others.encode()) & 1_023
    staying = next(
        each
        for each in message_groups_of("broker-a", 40, inner_slot=inner_slot)
        if three[slot_of_message_group(message_group_hash(each.encode()))] == "broker-a"
    )
    assert log.grouped(5 + IDEMPOTENCY_WINDOW_MS, staying, others) == [SENT, MOVED]


def test_what_is_moving_is_moved_nowhere_else_and_older_news_is_none(log: Shared) -> None:
    """Two changes at once: the first one counts, and the other hears of it."""
    log.place(3, GROWING)
    assert log.place(4, BORN.next(["broker-c"]))["placement"] == str(GROWING)
    assert log.place(5, BORN)["placement"] == str(GROWING)
    assert log.place(6, GROWING)["placement"] == str(GROWING)
    refused = log.place(7, GROWING.next(["broker-c"]))
    assert isinstance(refused, TernError)
    assert refused.code == "placement-moving"


def test_who_declares_a_topic_that_is_there_does_not_move_it(log: Shared) -> None:
    """A proxy that does not know the topic yet takes it for a new one."""
    assert log.place(3, GROWING, mode="declare")["placement"] == str(BORN)


def test_a_drained_broker_group_stores_what_must_wait_and_nothing_else(log: Shared) -> None:
    """The topic goes to another one altogether."""
    moving, empty = message_groups_of("broker-a", 2)
    assert log.grouped(3, moving) == [SENT]
    log.place(4, BORN.next(["broker-b"]))
    assert log.grouped(5, moving, empty) == [SENT, MOVED]
    log.settle_all(6)
    assert log.grouped(7, moving, empty) == [MOVED, MOVED]
    assert log.keyed(8, *keys_of("broker-a", 2)) == [MOVED, MOVED]


def test_another_node_decides_alike(log: Shared) -> None:
    """A twin with the same entries saves the same state."""
    twin = Shared(queues=4)
    twin.place(2, BORN)
    for each in (log, twin):
        each.grouped(3, *message_groups_of("broker-b", 5))
        each.place(4, GROWING)
        each.settle_all(5)
        each.grouped(6, *message_groups_of("broker-b", 7))
        each.keyed(7, *keys_of("broker-b", 9))
    assert log.state.digest == twin.state.digest
    log.reload()
    twin.reload()
    assert log.state.slots.pack() == twin.state.slots.pack()


@pytest.mark.parametrize("groups", [("broker-a", "broker-b"), ("broker-a",)])
def test_a_next_owner_takes_only_what_the_owner_of_before_has_sent_on(log: Shared, groups: tuple[str, ...]) -> None:
    """A proxy that has missed two moves takes it for the owner of before; what it has stored it replays to anybody."""
    back = Placement(epoch=4, groups=groups, before=("broker-b",))
    log.place(3, Placement(epoch=3, groups=("broker-b",)))
    first, second = keys_of("broker-a", 2)
    (message_group,) = message_groups_of("broker-a", 1)
    log.place(4, back)
    assert log.keyed(5, first) == [MOVED]
    assert log.grouped(5, message_group) == [MOVED]
    sent_on = FLAG_KEYED | FLAG_SENT_ON
    assert log.keyed(6, first, flags=sent_on) == [SENT]
    assert log.keyed(6, second, flags=sent_on, message_group=message_group) == [SENT]
    assert log.keyed(7, first, second, flags=sent_on) == [REPLAYED, REPLAYED]
    assert log.keyed(8, first) == [REPLAYED]
    if "broker-b" in groups:
        assert log.keyed(9, *keys_of("broker-b", 1), flags=sent_on) == [MOVED], "it is not the next owner of that"
    log.place(10 + IDEMPOTENCY_WINDOW_MS, back.ended())
    assert log.keyed(11 + IDEMPOTENCY_WINDOW_MS, first, *keys_of("broker-a", 3)[2:]) == [SENT, SENT], (
        "nothing moves now"
    )
