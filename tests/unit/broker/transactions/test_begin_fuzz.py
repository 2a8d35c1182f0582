"""Hostile begins and requests about transactions at a broker's link dispatcher: a typed refusal and a state as it was, or exactly what was answered."""

import random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tern_wire.errors import TernError
from tern_wire.link.requests import RequestCode
from tern_wire.link.rows import (
    FLAG_HALF,
    FLAG_SAME_TRANSACTION,
    NO_KEY,
    PREPARED,
    SEND_ROW,
    SEND_ROWS,
    SEND_VERDICTS,
)
from tern_wire.records.properties import MESSAGE_ID, PRODUCER_GROUP, TRANSACTIONAL, encode_properties
from tern_wire.records.write import encode_record
from tern_wire.transactions import BY_CLIENT, COMMIT, END_ROW
from tests.fuzz.mutations import HUGE, JUNK, bend
from tests.support.broker.half_messages import facts
from tests.support.broker.transaction_broker import TransactionBroker

SEEDS = st.integers(0, 1 << 40)
# What the link dispatcher makes a refusal of; see link/dispatcher.py.
REFUSED = (TernError, KeyError, TypeError, ValueError, OverflowError)
CODES = (
    *(RequestCode.END_TRANSACTIONS, RequestCode.CLAIM_CHECKS, RequestCode.REPORT_CHECKS),
    *(RequestCode.RESOLVE_TRANSACTION, RequestCode.DESCRIBE_TRANSACTION, RequestCode.LIST_TRANSACTIONS),
    *(RequestCode.ALTER_PRODUCER_GROUP, RequestCode.DELETE_PRODUCER_GROUP, RequestCode.DESCRIBE_PRODUCER_GROUP),
)


def begin_raw(rng: random.Random) -> tuple[bytes, bytes]:
    """Rows, and records, of one to three transactions."""
    rows, records = b"", b""
    for _ in range(rng.randrange(1, 4)):
        for number in range(rng.randrange(1, 4)):
            pairs = [(MESSAGE_ID, f"ID-{rng.random()}"), (TRANSACTIONAL, "true"), (PRODUCER_GROUP, "p")]
            queue = rng.randrange(2)
            record = encode_record(b"t", queue, rng.randbytes(20), encode_properties(pairs), born_ms=7)
            flags = FLAG_HALF | (FLAG_SAME_TRANSACTION if number else 0)
            crc = int.from_bytes(record[8:12], "big")
            rows += SEND_ROW.pack(len(record), 0, queue, flags, 0, crc, 0, NO_KEY, 0, 0)
            records += record
    return rows, records


def in_one_field(rows: bytes, rng: random.Random) -> bytes:
    """*rows* with one number of one row changed."""
    changed = np.frombuffer(rows, SEND_ROWS).copy()
    name = rng.choice([name for name in SEND_ROWS.names or () if name != "key"])
    kind = np.iinfo(changed[name].dtype)
    changed[name][rng.randrange(len(changed))] = rng.choice((0, 1, 2, 3, 8, 1 << 20, kind.max, kind.min))
    return changed.tobytes()


def ask(node: TransactionBroker, code: RequestCode, raw: bytes, head: dict[str, Any]) -> Any:
    """The reply, or the refusal; None while it waits."""
    try:
        return node.answers.pop(node.post(code, raw, **head), None)
    except REFUSED as error:
        return error


def twisted(value: Any, rng: random.Random) -> Any:
    """*value*, or something else."""
    return value if rng.random() < 0.7 else rng.choice((*JUNK, *HUGE, -1, 0, 1, "p", ["p"], {"p": 1}))


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=SEEDS)
def test_a_bent_begin_is_refused_or_begins_what_it_says(seed: int) -> None:
    """Every bit of rows and records may be another: a refusal changes nothing; else as many transactions are there as were told."""
    rng, node = random.Random(seed), TransactionBroker()
    node.producer_group()
    rows, records = begin_raw(rng)
    count = len(rows) // SEND_ROWS.itemsize
    head = {"topics": ["t"], "rows": count, "producer_groups": ["p"]}
    how = rng.choice(("good", "field", "rows", "all", "head"))
    if how == "field":
        rows = in_one_field(rows, rng)
    elif how == "rows":
        rows = bend(rows, rng)
    raw = rows + records if how != "all" else bend(rows + records, rng)
    if how == "head":
        name = rng.choice(list(head))
        head[name] = twisted(rng.choice((["t"], ["u"], [], count + 1, ["p", "q"], ["nobody"])), rng)
    before = facts(node.broker.state)
    answer = ask(node, RequestCode.SEND, raw, head)
    assert how != "good" or isinstance(answer, tuple), answer
    table = node.broker.state.transactions.table
    if not isinstance(answer, tuple):
        assert not isinstance(answer, TernError) or answer.status < 500, answer
        assert facts(node.broker.state) == before
        return
    verdicts = np.frombuffer(answer[1], SEND_VERDICTS)
    assert how != "good" or set(verdicts["status"].tolist()) == {PREPARED}
    begun = set(verdicts["offset"][verdicts["status"] == PREPARED].tolist())
    assert set(table.slots) == begun
    assert table.message_count == int((verdicts["status"] == PREPARED).sum())
    assert node.broker.state.producers.by_name["p"].open == len(begun)


GOOD: dict[RequestCode, dict[str, Any]] = {
    RequestCode.END_TRANSACTIONS: {"rows": 1},
    RequestCode.CLAIM_CHECKS: {
        "checker": "c",
        "producer_group": "p",
        "max": 4,
        "claim_ms": 1_000,
        "wait_ms": 0,
        "max_bytes": 1 << 20,
    },
    RequestCode.REPORT_CHECKS: {"reports": [[1 << 20, 1, "unknown", 3]]},
    RequestCode.RESOLVE_TRANSACTION: {
        "number": 1 << 20,
        "producer_group_id": 1,
        "outcome": COMMIT,
        "reason": "r",
        "by": 3,
    },
    RequestCode.DESCRIBE_TRANSACTION: {"number": 1 << 20, "producer_group_id": 1},
    RequestCode.LIST_TRANSACTIONS: {
        "producer_group": "",
        "namespace": "",
        "state": "",
        "older_than_ms": 0,
        "after": 0,
        "limit": 10,
    },
    RequestCode.ALTER_PRODUCER_GROUP: {"producer_group": "q", "create": True, "max_checks": 3, "revision": 1},
    RequestCode.DELETE_PRODUCER_GROUP: {"producer_group": "p"},
    RequestCode.DESCRIBE_PRODUCER_GROUP: {"producer_group": "", "namespace": "", "after": "", "limit": 10},
}


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=SEEDS, code=st.sampled_from(CODES))
def test_a_twisted_request_about_transactions_is_refused_and_changes_nothing(seed: int, code: RequestCode) -> None:
    """Fields that are missing, of another type, or beyond all numbers; rows of ends with any bytes."""
    rng, node = random.Random(seed), TransactionBroker()
    group_id = node.producer_group(check_after_ms=100)
    (_,), (number,), _ = node.begin(b"m")
    node.pass_time(200)
    head = {name: twisted(value, rng) for name, value in GOOD[code].items() if rng.random() < 0.95}
    raw = b""
    if code is RequestCode.END_TRANSACTIONS:
        raw = END_ROW.pack(rng.choice((number, 1, 0)), 0, rng.choice((group_id, 9)), COMMIT, BY_CLIENT)
        raw = bend(raw, rng) if rng.random() < 0.7 else raw
    before = facts(node.broker.state)
    answer = ask(node, code, raw, head)
    if isinstance(answer, REFUSED):
        assert not isinstance(answer, TernError) or answer.status < 500, answer
        assert facts(node.broker.state) == before
