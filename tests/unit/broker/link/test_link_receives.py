"""The answer to a receive: what lies scattered in a queue is read together, and each lease says what is its own."""

import errno
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

from tern_broker.config import BrokerConfig
from tern_broker.core.delivery.fifo_picking import FifoPick
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.link.receives import ReceiveRequests, released_rows
from tern_broker.proposal import Proposal
from tern_remoting import Link
from tern_store import LogRot
from tern_wire.link.receives import Receive
from tern_wire.link.requests import RequestCode, read_body
from tern_wire.link.rows import QUEUE_ENTRIES, RELEASE, SETTLE_ROWS
from tests.support.broker.roomy_link import RoomyLink
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles


class Stub:
    """An engine's reader and statistics. Owner: one test."""

    def __init__(self) -> None:
        self.reader = self.statistics = self
        self.reads: list[tuple[int, list[int]]] = []
        self.counted: list[tuple[int, int, int]] = []

    def read_messages(self, _topic: Topic, queue: int, offsets: npt.NDArray[Any], entries: npt.NDArray[Any]) -> Any:
        """A byte for each message: its offset, as often as it is large."""
        self.reads.append((queue, offsets.tolist()))
        pairs = zip(offsets.tolist(), entries["size"].tolist(), strict=True)
        return SimpleNamespace(data=memoryview(b"".join(bytes((offset,)) * size for offset, size in pairs)))

    def delivered(self, _topic: int, _group: int, attempt: int, messages: int, size_bytes: int) -> None:
        """What statistics are told."""
        self.counted.append((attempt, messages, size_bytes))


def a_pick(queue: int, *offsets: int) -> Pick:
    """Messages as large as their offset says."""
    entries = np.zeros(len(offsets), QUEUE_ENTRIES)
    entries["size"] = offsets
    return Pick(
        (1, 1, queue, len(offsets), offsets[0] if offsets else 0, 0, 0, 0), np.array(offsets, np.int64), entries
    )


def answered(picks: list[Pick], verdicts: list[tuple[int, int, int]]) -> tuple[Stub, list[list[int]], bytes]:
    """The runs and the records of the answer, and what was asked for them."""
    stub = Stub()
    requests = ReceiveRequests(cast(BrokerConfig, None), cast(Engine, stub), rng=Random(1), monotonic=lambda: 0.0)
    names = [("lease", "<u8"), ("deadline_ms", "<i8"), ("attempt", "<u4")]
    parts = requests._leased(Topic(7, "t"), Group(8, "g"), np.array(verdicts, names), picks)
    head, raw = read_body(memoryview(b"".join(parts)))
    return stub, head["runs"], bytes(raw)


def test_what_a_filter_picked_in_one_queue_is_read_at_once() -> None:
    """One read a queue, records in the order of the runs; what was passed over or not granted is not read."""
    picks = [a_pick(0, 3), a_pick(0), a_pick(0, 5, 6), a_pick(2, 9), a_pick(2, 4), a_pick(0, 8)]
    verdicts = [(11, 50, 1), (0, 0, 0), (12, 50, 1), (13, 50, 1), (0, 0, 0), (14, 50, 1)]
    stub, runs, records = answered(picks, verdicts)
    assert stub.reads == [(0, [3, 5, 6]), (2, [9]), (0, [8])]
    assert runs == [[0, 11, 1, 50, 1], [0, 12, 1, 50, 2], [2, 13, 1, 50, 1], [0, 14, 1, 50, 1]]
    assert records == b"".join(bytes((offset,)) * offset for offset in (3, 5, 6, 9, 8))


def test_messages_are_counted_by_attempt() -> None:
    """Of one queue, some come for the first and some for the third time."""
    stub, _, _ = answered([a_pick(0, 1), a_pick(0, 2, 4), a_pick(0, 8)], [(11, 50, 1), (12, 50, 3), (13, 50, 1)])
    assert sorted(stub.counted) == [(1, 2, 9), (3, 2, 6)]


def test_nothing_granted_is_an_empty_answer() -> None:
    """No read, no run."""
    stub, runs, records = answered([a_pick(0, 1)], [(0, 0, 0)])
    assert (stub.reads, stub.counted, runs, records) == ([], [], [], b"")


def test_what_cannot_be_read_is_given_back_before_the_node_ends() -> None:
    """Every granted message, with the lease that it has: nobody saw it, so its attempt does not count. What was passed over is not named."""
    picks = [a_pick(0, 3), a_pick(0), a_pick(0, 5, 6), a_pick(2, 9)]
    leases = [("lease", "<u8"), ("deadline_ms", "<i8"), ("attempt", "<u4")]
    verdicts = np.array([(11, 50, 1), (0, 0, 0), (12, 50, 1), (0, 0, 0)], leases)
    rows = np.frombuffer(released_rows(verdicts, picks), SETTLE_ROWS)
    assert rows["offset"].tolist() == [3, 5, 6]
    assert rows["lease"].tolist() == [11, 12, 12]
    assert set(rows["action"].tolist()) == {RELEASE}
    assert set(rows["queue"].tolist()) == {0}
    ordered = FifoPick((1, 1, 4, 2, 5, 0, 0, 0), np.array([5, 6]), np.zeros(2, QUEUE_ENTRIES), rows=[])
    rows = np.frombuffer(released_rows(np.array([(0, 0, 0), (14, 50, 1)], leases), [ordered]), SETTLE_ROWS)
    assert rows[["queue", "offset", "lease"]].tolist() == [(4, 6, 14)]


@pytest.mark.parametrize(
    "error", [LogRot(Path("log"), 0, "the disk cannot read it"), OSError(errno.EMFILE, "Too many open files")]
)
def test_a_broker_that_cannot_read_what_it_leased_gives_it_back(error: Exception) -> None:
    """In this order: the leases are over in the log, the asker hears of it, leadership and node go."""
    happened: list[str] = []
    broker = SingleBroker(FaultyFiles())
    broker.create(queues=1)
    broker.send("t", (0, b"one"), (0, b"two"))

    def failing(*_: object) -> None:
        raise error

    def submit(proposal: Proposal) -> None:
        happened.append(f"submit {proposal.kind.name}")
        broker.proposer.submit(proposal)

    engine = SimpleNamespace(
        state=broker.state,
        store=broker.store,
        proposer=SimpleNamespace(submit=submit),
        reader=SimpleNamespace(read_messages=failing),
        fail_soon=lambda _: happened.append("fail_soon"),
    )
    link = RoomyLink.answering(lambda *_: happened.append("reply"))
    config = SimpleNamespace(node="a", broker_group="a")
    requests = ReceiveRequests(cast(BrokerConfig, config), cast(Engine, engine), rng=Random(1), monotonic=lambda: 0.0)
    asked = Receive(topic="t", group="g", max_messages=10, max_bytes=1 << 20, invisible_ms=60_000)
    (handle,) = (each.handle for each in requests.handlers() if each.code == RequestCode.RECEIVE)
    handle(cast(Link, link), 7, asked, memoryview(b""))
    broker.run()
    assert happened == ["submit LEASE", "submit SETTLE", "reply", *(["fail_soon"] if isinstance(error, LogRot) else [])]
    assert [body for _, body in broker.receive(messages_max=10)] == [b"one", b"two"]
    (delivery,) = (one for row in broker.state.leasing.deliveries.values() for one in row if one is not None)
    assert {lease.attempt for lease in delivery.leases.values()} == {1}, "an attempt that nobody saw was counted"
