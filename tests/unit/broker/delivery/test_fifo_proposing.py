"""Ordered receives on their way into entries, and message groups read from records."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tern_broker.core.clock import range_of
from tern_broker.core.delivery import fifo_picking
from tern_broker.core.delivery.fifo_picking import looked_in_vain
from tern_broker.core.delivery.picking import Pick, ReceiveRequest
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_broker.reading.message_groups import MessageGroups
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import QUEUE_ENTRIES, message_group_hash
from tern_wire.records.properties import MESSAGE_GROUP, encode_properties
from tern_wire.records.write import encode_record
from tests.support.broker.fifo_log import FifoLog


class Leader:
    """A proposer over a log in memory; `commit` applies the entry in flight."""

    def __init__(self, log: FifoLog) -> None:
        self.log, self.soon = log, list[Callable[[], None]]()
        self.answers: list[tuple[list[int], bool]] = []
        self.entries: list[bytes] = []
        self.proposer = Proposer(
            broker_group="broker-a",
            state=lambda: log.state,
            read_queue=log.read,
            read_message_groups=MessageGroups(log.read_records).read,
            propose=self._propose,
            is_serving=lambda: True,
            leader=lambda: "a",
            node="a",
            mono_ms=lambda: 0,
            clocks=lambda: range_of([1_000], 1),
            call_soon=self.soon.append,
        )

    def _propose(self, parts: Any, _urgent: bool) -> tuple[int, int]:
        self.entries.append(b"".join(parts))
        return len(self.entries), 1

    def receive(self, messages_max: int) -> None:
        """Submit one; its answer is the offsets that it got, and whether it should look again."""

        def done(verdicts: Any, picks: list[Pick]) -> None:
            offsets = [int(offset) for pick in picks for offset in pick.offsets]
            granted = [] if verdicts is None else verdicts["lease"].tolist()
            self.answers.append(
                (
                    [offset for offset, lease in zip(offsets, granted, strict=True) if lease],
                    looked_in_vain(picks, verdicts),
                )
            )

        request = self.log.request(messages_max=messages_max)
        self.proposer.submit(Proposal(CommandKind.LEASE_FIFO, 64, done, receive=request))

    def commit(self) -> None:
        """One entry: built and applied."""
        while self.soon:
            self.soon.pop(0)()
        body = self.entries[-1]
        applied = self.log.state.apply(memoryview(body), 0, 1)
        self.proposer.applied(len(self.entries), 1, applied)


def test_receives_for_which_an_entry_has_no_room_go_into_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they came; each is answered once."""
    monkeypatch.setattr(fifo_picking, "FIFO_SCAN_MESSAGES_MAX", 4)
    log = FifoLog(queues=1)
    log.send_grouped(2, *((f"g{number}", b"m") for number in range(12)))
    leader = Leader(log)
    for _ in range(4):
        leader.receive(2)
    leader.commit()
    assert leader.answers == [([0, 1], False), ([2, 3], False)]
    leader.commit()
    assert leader.answers[2:] == [([4, 5], False), ([6, 7], False)]
    assert leader.proposer.waiting == 0


def test_a_receive_that_met_only_blocked_messages_says_that_it_should_look_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until there is nothing left to look at: then it is answered."""
    monkeypatch.setattr(fifo_picking, "FIFO_SCAN_MESSAGES_MAX", 4)
    log = FifoLog(queues=1)
    log.send_grouped(2, *(("a", b"m") for _ in range(9)))
    leader = Leader(log)
    for _ in range(4):
        leader.receive(1)
        if leader.soon:
            leader.commit()
    assert leader.answers == [([0], False), ([], True), ([], True), ([], False)]
    assert not looked_in_vain([], None)


def test_leases_of_an_attempt_id_are_found_again_by_it() -> None:
    """Those of all queues, with the messages that each holds."""
    log = FifoLog(queues=4)
    log.send_grouped(2, *((f"g{number}", b"m") for number in range(6)))
    token = b"t" * 16
    request = ReceiveRequest(
        group=log.group,
        topic=log.topic,
        messages_max=32,
        size_max_bytes=1 << 20,
        invisible_ms=1_000,
        first_queue=0,
        token=token,
    )
    picks = log.picker().pick(request)
    assert picks is not None
    held = log.lease(10, picks)
    found = log.state.leasing.replays.find(log.group_id, log.topic_id, token)
    assert [(queue, lease.start, lease.lease_id) for queue, lease in found] == [
        (each.queue, each.offset, each.lease) for each in held
    ]
    assert len(held) == 6


def entries_of(records: list[bytes]) -> Any:
    """Queue entries of records that lie end to end."""
    entries = np.zeros(len(records), QUEUE_ENTRIES)
    sizes = np.array([len(record) for record in records])
    entries["position"], entries["size"] = np.cumsum(sizes) - sizes, sizes
    return entries


def test_message_groups_are_read_from_whole_properties_only() -> None:
    """Wherever it stands; not from a body, a longer name or a value that looks like it; of equal names the last one counts."""
    mark = f"{MESSAGE_GROUP}\x01a\x02".encode()
    pairs: list[list[tuple[str, str]]] = [
        [(MESSAGE_GROUP, "a"), ("k", "v")],
        [("k", "v"), (MESSAGE_GROUP, "a")],
        [("k", "v")],
        [("x" + MESSAGE_GROUP, "a")],
        [("k", f"{MESSAGE_GROUP}=a")],
        [(MESSAGE_GROUP, "b"), (MESSAGE_GROUP, "a")],
        [(MESSAGE_GROUP, "a"), ("x" + MESSAGE_GROUP, "b")],
        [(MESSAGE_GROUP, "")],
        [(MESSAGE_GROUP, "größe 😀")],
        [],
    ]
    records = [encode_record(b"t", 0, mark, encode_properties(each), born_ms=5) for each in pairs]
    unfinished = encode_properties([("k", "v"), (MESSAGE_GROUP, "a")])[:-1]
    records.append(encode_record(b"t", 0, mark, unfinished, born_ms=5))
    data = b"".join(records)

    def read(positions: Any, sizes: Any) -> memoryview:
        spans = zip(positions.tolist(), sizes.tolist(), strict=True)
        return memoryview(b"".join(data[at : at + size] for at, size in spans))

    a = message_group_hash(b"a")
    found = MessageGroups(read).read(entries_of(records)).tolist()
    assert found == [a, a, 0, 0, 0, a, a, 0, message_group_hash("größe 😀".encode()), 0, a]
    assert MessageGroups(read).read(entries_of([])).tolist() == []
