"""Sends as apply sees them: offsets, positions, idempotency keys, refusals."""

from tern_broker.core.idempotency import KeyTable
from tern_wire.commands import CommandKind
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.rows import KEY_REUSED, KEYS_FULL, MALFORMED, NO_QUEUE, NO_TOPIC, REPLAYED, SENT
from tests.support.entries import Log, send_payload


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
