"""Idempotency keys: the youngest table against a plain dict, when tables are sealed and go, and replicas that store every key once."""

import random
from pathlib import Path

import numpy as np
import pytest

from tern_broker.core import Applied, StateMachine, saving
from tern_broker.core.sending import idempotency
from tern_broker.core.sending.idempotency import TABLE_PERIOD_MS, KeyTable
from tern_broker.link.checked_send import CheckedSend
from tern_store.keys.sent_keys import SentKeys
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.key_rows import RECEIPT_ROWS, split_keys
from tern_wire.link.rows import KEY_REUSED, MALFORMED, REPLAYED, SEND_ROWS, SENT
from tests.support.broker.entries import Log, send_payload
from tests.support.files.faulty_files import FaultyFiles

Receipt = tuple[int, int, int]
DIRECTORY = Path("/data")


def add(table: KeyTable, keys: dict[bytes, Receipt], now_ms: int) -> None:
    """Add keys with (queue, offset, crc) each."""
    queues, offsets, crcs = (list(column) for column in zip(*keys.values(), strict=True))
    columns = (np.array(queues, np.uint64), np.array(offsets, np.uint64), np.array(crcs, np.uint32))
    table.add(b"".join(keys), *columns, now_ms)


def sealed_numbers(table: KeyTable) -> list[int]:
    """Of the tables whose keys are in files, ascending."""
    return [number for number, *_ in table.facts()["sealed"]]


def fresh_keys(rng: random.Random, count: int) -> list[bytes]:
    """Hashes that collide more than honest ones: few first bytes, the half that chooses the slot often zero or the same."""
    return [
        rng.choice((bytes(8), b"\1" + bytes(7), rng.randbytes(1) + bytes(7), rng.randbytes(8))) + rng.randbytes(8)
        for _ in range(count)
    ]


def _as_stored(key: bytes) -> bytes:
    """A first half of zero counts as one."""
    return key if any(key[:8]) else b"\1" + bytes(7) + key[8:]


@pytest.mark.parametrize("seed", range(5))
def test_the_youngest_table_answers_as_a_dict_would(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random batches, few keys and many, with a small table so that it grows; saved and loaded in between."""
    print("seed", seed)
    monkeypatch.setattr(idempotency, "SLOTS_MIN", 8)
    monkeypatch.setattr(idempotency, "KEYS_ONE_BY_ONE_MAX", 9)
    rng = random.Random(seed)
    table, model = KeyTable(), dict[bytes, Receipt]()
    for turn in range(60):
        batch = dict.fromkeys(fresh_keys(rng, rng.randrange(1, rng.choice((5, 90)))))
        unique = {_as_stored(key): key for key in batch if _as_stored(key) not in model}
        facts = [(rng.randrange(1 << 16), rng.randrange(1 << 48), rng.randrange(1 << 32)) for _ in unique]
        if unique:
            add(table, dict(zip(unique.values(), facts, strict=True)), now_ms=turn)
            model.update(zip(unique, facts, strict=True))
        asked = rng.sample(sorted(model), min(len(model), rng.choice((3, 60)))) + fresh_keys(rng, rng.choice((2, 30)))
        expected = {n: model[_as_stored(key)] for n, key in enumerate(asked) if _as_stored(key) in model}
        assert table.find(*split_keys(b"".join(asked))) == expected
        if turn % 20 == 19:
            saved, table = (table.facts(), table.snapshot()), KeyTable()
            table.restore(*saved)
    assert len(table) == len(model)
    table.expire(IDEMPOTENCY_WINDOW_MS * 3)
    assert len(table) == 0


def test_a_table_is_sealed_when_it_is_full_or_a_minute_old() -> None:
    """By count and by the time of its first key; an empty one never."""
    table = KeyTable(table_keys_max=2)
    assert table.seal_if_due(10 * TABLE_PERIOD_MS) is None
    add(table, {b"a" * 16: (1, 2, 3)}, 1_000)
    assert table.seal_if_due(999 + TABLE_PERIOD_MS) is None
    add(table, {b"b" * 16: (1, 2, 3)}, 1_001)
    full, late = table.seal_if_due(1_001), None
    assert full is not None and (full.facts.number, full.facts.count, full.facts.newest_ms) == (1, 2, 1_001)
    add(table, {b"c" * 16: (4, 5, 6)}, 2_000)
    late = table.seal_if_due(2_000 + TABLE_PERIOD_MS)
    assert late is not None and (late.facts.number, late.facts.count) == (2, 1)
    assert late.table.rows()[["receipt", "crc"]].tolist() == [(4 << 48 | 5, 6)]
    assert (len(table), sealed_numbers(table), table.find(*split_keys(b"c" * 16))) == (3, [1, 2], {})


def test_a_table_goes_when_its_youngest_key_is_older_than_the_window_and_not_before() -> None:
    """Sealed or not; what is gone makes room."""
    table = KeyTable(keys_max=10, table_keys_max=2)
    add(table, {b"a" * 16: (1, 2, 3)}, 1_000)
    add(table, {b"b" * 16: (1, 2, 3)}, 2_000)
    table.seal_if_due(2_000)
    add(table, {b"c" * 16: (1, 2, 3)}, 3_000)
    assert table.room() == 7
    assert table.expire(2_000 + IDEMPOTENCY_WINDOW_MS) == []
    assert table.expire(2_001 + IDEMPOTENCY_WINDOW_MS) == [1]
    assert table.room() == 9
    assert (table.expire(3_001 + IDEMPOTENCY_WINDOW_MS), len(table)) == ([], 0)


class Replica:
    """A node reduced to its state and its files of keys."""

    def __init__(self, table_keys_max: int) -> None:
        self.files = FaultyFiles()
        self.state = StateMachine(table_keys_max)
        self._limit = table_keys_max
        self._open([])
        self._saved: tuple[bytes, list[int], int] = (b"", [], 0)

    def _open(self, marks: list[int]) -> None:
        self.sent_keys = SentKeys.open(DIRECTORY, table_keys_max=self._limit, files=self.files)
        self.sent_keys.restore(marks)

    def apply(self, entry: bytes) -> Applied:
        """As the engine."""
        applied = self.state.apply(memoryview(entry), 1_000, 1)
        for number in applied.dropped_tables:
            self.sent_keys.drop(number)
        if (sealed := applied.sealed_table) is not None:
            self.sent_keys.add(sealed.facts.number, sealed.table, sealed.facts.newest_ms)
        assert self.sent_keys.numbers() == sealed_numbers(self.state.keys)
        return applied

    def save(self, applied: int) -> None:
        """The state after *applied* entries."""
        marks = self.sent_keys.begin_save()
        snapshot = saving.take(self.state)
        parts = self.sent_keys.written_before(lambda: saving.encode(snapshot))()
        self.sent_keys.saved()
        self._saved = (b"".join(parts), marks, applied)

    def restart(self, log: list[bytes]) -> None:
        """From the last saved state, with all entries behind it."""
        payload, marks, applied = self._saved
        self.sent_keys.close()
        self.state = saving.load(payload) if payload else StateMachine(self._limit)
        self._open(marks)
        for entry in log[applied:]:
            self.apply(entry)
        self.sent_keys.require_all()

    def build(self, now_ms: int, messages: list[tuple[int, int, bytes, bytes]]) -> bytes:
        """The entry that this node would propose as leader."""
        raw = send_payload(*messages)
        records_at = SEND_HEAD.size + len(messages) * SEND_ROWS.itemsize
        rows = np.frombuffer(raw, SEND_ROWS, len(messages), SEND_HEAD.size).copy()
        starts = np.cumsum(rows["size"].astype(np.int64)) - rows["size"]
        send = CheckedSend(rows, bytearray(raw[records_at:]), starts, self.state)
        payload = send.payload(now_ms, bytes(8), self.sent_keys.find)
        assert sum(map(len, payload)) <= send.size_bytes
        return b"".join(entry_parts(now_ms, [(CommandKind.SEND, payload)]))


@pytest.mark.parametrize("seed", range(6))
def test_every_key_is_stored_once_on_all_nodes_whoever_leads_and_whoever_restarts(seed: int) -> None:
    """Tables of eight keys: repeats of young and old sends, in one batch and across, with other bodies, up to the window and beyond."""
    print("seed", seed)
    rng = random.Random(seed)
    replicas, log = [Replica(8), Replica(8)], list[bytes]()
    create = encode_msgpack({"topic": "t", "queues": 2})
    log.append(b"".join(entry_parts(1, [(CommandKind.CREATE_TOPIC, [create])])))
    for replica in replicas:
        replica.apply(log[0])
    (topic,) = replicas[0].state.names.topics_by_id
    # The first send with each key: when, its body, and its queue and offset.
    first: dict[bytes, tuple[int, bytes, int, int]] = {}
    now_ms = 1_000_000
    for _ in range(150):
        now_ms += rng.choice(
            (0, 1, 500, 5_000, TABLE_PERIOD_MS, IDEMPOTENCY_WINDOW_MS // 2 if rng.random() < 0.1 else 0)
        )
        names = [b"key %d" % rng.randrange(400) for _ in range(rng.randrange(1, 9))]
        messages = [(topic, rng.randrange(2), rng.choice((b"a", b"a", b"b")), name) for name in names]
        log.append(rng.choice(replicas).build(now_ms, messages))
        verdicts = [replica.apply(log[-1]).verdicts[0] for replica in replicas]
        assert verdicts[0].tobytes() == verdicts[1].tobytes()  # type: ignore[union-attr]
        for (_, _, body, name), (status, queue, offset) in zip(messages, verdicts[0].tolist(), strict=True):  # type: ignore[union-attr]
            sent = first.get(name)
            if sent is None or status == SENT:
                # Forgotten only when its table's youngest key was: a minute and the entries of that minute after the window.
                assert status == SENT and (sent is None or sent[0] < now_ms - IDEMPOTENCY_WINDOW_MS)
                first[name] = (now_ms, body, queue, offset)
            else:
                assert (status, queue, offset) == (REPLAYED if body == sent[1] else KEY_REUSED, *sent[2:])
        for replica in replicas:
            match rng.randrange(12):
                case 0:
                    replica.save(len(log))
                case 1:
                    replica.restart(log)
        assert saving.take(replicas[0].state).facts == saving.take(replicas[1].state).facts
    for replica in replicas:
        replica.restart(log)
    assert replicas[0].state.digest == replicas[1].state.digest
    assert len(sealed_numbers(replicas[0].state.keys)) > 2


def test_receipts_that_name_no_row_make_a_send_malformed() -> None:
    """No leader of ours writes them; apply answers and stores nothing."""
    log = Log()
    topic, _ = log.create()
    payload = send_payload((topic, 0, b"a", b"k"))
    one = np.array([(1, 0, 0, 0, 0)], RECEIPT_ROWS).tobytes()
    for receipts, behind in ((1, one), (2, one), (1, b""), (0, one)):
        changed = SEND_HEAD.pack(1, receipts) + payload[SEND_HEAD.size :] + behind
        verdict = log.apply(2, (CommandKind.SEND, changed)).verdicts[0]
        assert verdict["status"].tolist() == [MALFORMED], receipts  # type: ignore[index,call-overload]
    assert log.state.names.topics["t"].ends == [0, 0]
