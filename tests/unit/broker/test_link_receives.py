"""The answer to a receive: what lies scattered in a queue is read together, and each lease says what is its own."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tern_broker.config import BrokerConfig
from tern_broker.core.picking import Pick
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.link_receives import ReceiveRequests
from tern_wire.requests import read_body
from tern_wire.rows import QUEUE_ENTRIES


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
