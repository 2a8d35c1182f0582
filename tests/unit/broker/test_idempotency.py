"""The table of idempotency keys against a plain dict: growth, collisions, several tables a generation, saving."""

import random

import numpy as np
import pytest

from tern_broker.core import idempotency
from tern_broker.core.idempotency import GENERATION_MS, KeyTable
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS


def add(table: KeyTable, keys: list[bytes], facts: list[tuple[int, int, int]], now_ms: int) -> None:
    """Add keys with (queue, offset, crc) each."""
    queues, offsets, crcs = (list(column) for column in zip(*facts, strict=True))
    table.add(b"".join(keys), np.array(queues, np.uint64), np.array(offsets, np.uint64), crcs, now_ms)


def fresh_keys(rng: random.Random, count: int) -> list[bytes]:
    """Hashes that collide more than honest ones: few first bytes, the half that chooses the slot often zero or the same."""
    return [
        rng.choice((bytes(8), b"\1" + bytes(7), rng.randbytes(1) + bytes(7), rng.randbytes(8))) + rng.randbytes(8)
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_table_answers_as_a_dict_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random batches, with small tables so that growth and further tables happen; saved and loaded in between."""
    print("seed", seed)
    monkeypatch.setattr(idempotency, "SLOTS_MIN", 8)
    monkeypatch.setattr(idempotency, "SLOTS_MAX", 256)
    rng = random.Random(seed)
    table, model = KeyTable(), dict[bytes, tuple[int, int, int]]()
    for turn in range(60):
        batch = [key for key in dict.fromkeys(fresh_keys(rng, rng.randrange(1, 60))) if _as_stored(key) not in model]
        unique = {_as_stored(key): key for key in batch}
        facts = [(rng.randrange(1 << 16), rng.randrange(1 << 48), rng.randrange(1 << 32)) for _ in unique]
        if unique:
            add(table, list(unique.values()), facts, now_ms=turn * GENERATION_MS // 20)
            model.update(zip(unique, facts, strict=True))
        asked = rng.sample(sorted(model), min(len(model), 40)) + fresh_keys(rng, 20)
        expected = {n: model[_as_stored(key)] for n, key in enumerate(asked) if _as_stored(key) in model}
        assert table.find(b"".join(asked)) == expected
        if turn % 20 == 19:
            saved, table = table.snapshot(), KeyTable()
            for packed in saved:
                table.restore(packed)
    assert len(table) == len(model)
    table.expire(IDEMPOTENCY_WINDOW_MS * 3)
    assert len(table) == 0


def _as_stored(key: bytes) -> bytes:
    """A first half of zero counts as one."""
    return key if any(key[:8]) else b"\1" + bytes(7) + key[8:]


def test_keys_are_forgotten_after_the_window_and_not_before() -> None:
    """A generation goes whole, when its youngest key may."""
    table, key = KeyTable(), b"k" * 16
    add(table, [key], [(1, 2, 3)], now_ms=GENERATION_MS - 1)
    table.expire(GENERATION_MS - 1 + IDEMPOTENCY_WINDOW_MS)
    assert table.find(key) == {0: (1, 2, 3)}
    table.expire(2 * GENERATION_MS + IDEMPOTENCY_WINDOW_MS)
    assert table.find(key) == {}
