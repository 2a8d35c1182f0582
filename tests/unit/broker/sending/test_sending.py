"""Sends as apply sees them: offsets, positions, idempotency keys, refusals."""

import random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tern_broker.core.sending.idempotency import KeyTable
from tern_broker.core.sending.sending import SendApplier
from tern_broker.core.topics import Topic
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import (
    KEY_REUSED,
    KEYS_FULL,
    MALFORMED,
    NO_QUEUE,
    NO_TOPIC,
    NOT_WRITABLE,
    REPLAYED,
    SEND_ROWS,
    SEND_VERDICTS,
    SENT,
)
from tern_wire.routing.route import PERM_READ, PERM_WRITE
from tests.support.broker.entries import Log, send_payload


def test_offsets_are_dense_per_queue_and_positions_point_at_the_records() -> None:
    """Mixed queues in one entry: each queue counts for itself, in the order of the rows."""
    log = Log()
    topic, _ = log.create()
    first = log.send(2, (topic, 0, b"a", b""), (topic, 1, b"b", b""), (topic, 0, b"c", b""))
    second = log.send(3, (topic, 1, b"d", b""), (topic, 1, b"e", b""))
    assert [(int(v["queue"]), int(v["offset"])) for v in first] == [(0, 0), (1, 0), (0, 1)]
    assert second["offset"].tolist() == [1, 2]
    whole = b"".join(log.bodies)
    for entries in log.queues.values():
        for position, size, _tag in entries:
            assert int.from_bytes(whole[position - 100 : position - 96], "big") == size


def test_a_repeated_key_is_stored_once_and_answers_with_the_first_receipt() -> None:
    """Across entries, within one entry, and with another body."""
    log = Log()
    topic, _ = log.create()
    log.send(2, (topic, 1, b"a", b"k1"))
    verdicts = log.send(
        3, (topic, 0, b"a", b"k1"), (topic, 0, b"b", b"k2"), (topic, 0, b"b", b"k2"), (topic, 0, b"x", b"k1")
    )
    assert verdicts["status"].tolist() == [REPLAYED, SENT, REPLAYED, KEY_REUSED]
    assert [(int(v["queue"]), int(v["offset"])) for v in verdicts[:3]] == [(1, 0), (0, 0), (0, 0)]
    assert [len(log.queues[topic, queue]) for queue in (0, 1)] == [1, 1]


def test_a_key_is_remembered_for_the_window_and_not_for_ever() -> None:
    """Time is the entry's: within the window replayed, long after it stored anew."""
    log = Log()
    topic, _ = log.create()
    log.send(1_000_000, (topic, 0, b"a", b"k"))
    assert log.send(1_000_000 + IDEMPOTENCY_WINDOW_MS, (topic, 0, b"a", b"k"))["status"].tolist() == [REPLAYED]
    assert log.send(1_000_000 + 2 * IDEMPOTENCY_WINDOW_MS, (topic, 0, b"a", b"k"))["status"].tolist() == [SENT]


def test_a_full_table_refuses_new_keys_and_keeps_the_old_ones() -> None:
    """`overloaded` is answered; a known key is still replayed, a keyless send still stored."""
    log = Log()
    topic, _ = log.create()
    log.state.keys = KeyTable(keys_max=2)
    log.state._sending._keys = log.state.keys
    log.send(2, (topic, 0, b"a", b"k1"), (topic, 0, b"b", b"k2"))
    verdicts = log.send(3, (topic, 0, b"c", b"k3"), (topic, 0, b"a", b"k1"), (topic, 0, b"d", b""))
    assert verdicts["status"].tolist() == [KEYS_FULL, REPLAYED, SENT]


def test_unknown_topics_and_queues_and_wrong_sizes_are_refused_and_store_nothing() -> None:
    """Apply is total: whatever the rows say, it answers and the queues stay as they were."""
    log = Log()
    topic, _ = log.create()
    verdicts = log.send(2, (99, 0, b"a", b""), (topic, 7, b"b", b""), (topic, 0, b"c", b""))
    assert verdicts["status"].tolist() == [NO_TOPIC, NO_QUEUE, SENT]
    broken = log.apply(3, (CommandKind.SEND, send_payload((topic, 0, b"a", b"")) + b"x")).verdicts[0]
    assert broken["status"].tolist() == [MALFORMED]  # type: ignore[index,call-overload]
    assert log.state.names.topics["t"].ends == [1, 0]


def test_what_is_refused_of_many_topics_is_what_each_row_alone_would_be() -> None:
    """Generated entries: topics that are gone or take nothing, queues that are not there, message groups that are not at home."""

    def at_home(topic: Topic, groups: Any, queues: Any) -> Any:
        return (groups + queues + topic.topic_id) % 3 != 0

    rng = random.Random(1)
    perms = (PERM_READ | PERM_WRITE, PERM_READ | PERM_WRITE, PERM_READ)
    topics = {
        number: Topic(number, "t", [0] * rng.choice([1, 4, 8]), perm=rng.choice(perms)) for number in range(1, 60)
    }

    def alone(row: Any) -> int:
        topic = topics.get(int(row["topic"]))
        if topic is None:
            return NO_TOPIC
        if not topic.perm & PERM_WRITE:
            return NOT_WRITABLE
        own = row["message_group"]
        return SENT if row["queue"] < topic.queues and (not own or at_home(topic, own, row["queue"])) else NO_QUEUE

    applier = cast(
        Any, SimpleNamespace(_names=SimpleNamespace(topics_by_id=topics), _slots=SimpleNamespace(accepts=at_home))
    )
    seen = set()
    for _ in range(400):
        rows = np.zeros(rng.choice([1, 2, 40]), SEND_ROWS)
        among = rng.choice([[1], [1, 2, 3], range(1, 60), [0, 1, 99]])
        for name, values in (("topic", among), ("queue", range(9)), ("message_group", [0, 0, 5, 7, 1 << 63])):
            rows[name] = [rng.choice(values) for _ in rows]
        verdicts = np.full(len(rows), 0, SEND_VERDICTS)
        SendApplier._refuse_unknown(applier, rows, verdicts)
        assert verdicts["status"].tolist() == [alone(row) for row in rows]
        seen |= set(verdicts["status"].tolist())
    assert seen == {SENT, NO_TOPIC, NOT_WRITABLE, NO_QUEUE}
