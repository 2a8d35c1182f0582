"""Sends of a few rows come to the same one by one as with arrays: verdicts, queue entries, timers, keys, slots, digest."""

import random
from typing import Any

import pytest

from tern_broker.core.sending import sending
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import FLAG_KEYED, FLAG_PINNED, NO_KEY, SEND_ROW, key_hash
from tests.support.broker.entries import Log

QUEUES, ENTRIES = 3, 400


def any_send(rng: random.Random, topics: list[int], now_ms: int) -> bytes:
    """One to seventeen rows: mostly plain, some with keys that repeat, message groups, delays, wrong topics, queues, flags and sizes."""
    rows, records = [], []
    for _ in range(rng.choice([1, 1, 2, 3, 4, 6, 16, 17])):
        record = rng.randbytes(rng.randint(1, 40))
        key = key_hash(b"t", b"%d" % rng.randrange(300)) if rng.random() < 0.6 else NO_KEY
        flags = (FLAG_KEYED if key is not NO_KEY else 0) | rng.choice([0] * 20 + [FLAG_PINNED, 2, 64])
        deliver_ms = now_ms + rng.choice([0] * 6 + [-1, 1, 5_000, 1 << 50])
        message_group = rng.choice([0] * 4 + [rng.getrandbits(64) | 1])
        queue = message_group % 1024 % QUEUES if message_group and rng.random() < 0.9 else rng.randrange(QUEUES + 1)
        topic = rng.choice([*topics * 8, 99])
        size = len(record) + (rng.random() < 0.01)
        rows.append(SEND_ROW.pack(size, topic, queue, flags, rng.getrandbits(31), 7, 0, key, deliver_ms, message_group))
        records.append(record)
    return SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)


def told(seed: int) -> list[Any]:
    """What each entry of a run of sends has done."""
    rng, log, found = random.Random(seed), Log(), list[Any]()
    topics = [log.create(name, QUEUES, f"g{name}")[0] for name in ("a", "b")]
    for number in range(ENTRIES):
        now_ms = 1000 + number * 3
        applied = log.apply(now_ms, (CommandKind.SEND, any_send(rng, topics, now_ms)))
        (verdict,) = applied.verdicts
        appends = [
            (each.codes.tolist(), each.firsts.tolist(), each.bounds.tolist(), each.entries.tobytes())
            for each in applied.appends
        ]
        timers = [rows.tobytes() for rows in applied.timers]
        found.append((getattr(verdict, "tolist", lambda: str(verdict))(), appends, timers, applied.woken_topics))  # noqa: B023
    state = log.state
    keys = state.keys.snapshot()
    columns = (keys.first.tolist(), keys.second.tolist(), keys.receipts.tolist(), keys.crcs.tolist())
    return [*found, columns, state.slots.pack(), state.digest]


@pytest.mark.parametrize("seed", range(6))
def test_one_by_one_and_with_arrays_is_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte, whatever the rows say."""
    few = told(seed)
    monkeypatch.setattr(sending, "SEND_ROWS_ONE_BY_ONE_MAX", 0)
    with_arrays = told(seed)
    assert few == with_arrays
    statuses = {row[0] for entry in few[:ENTRIES] if isinstance(entry[0], list) for row in entry[0]}
    assert len(statuses) > 5, "a run in which everything is stored shows little"
