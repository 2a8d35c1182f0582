"""CallbackBodies about transactions of a namespace: names as its producers write them, ids that only they can use."""

import json

import pytest

from tern_txn_checker.core.callback_bodies import CallbackBodies, Claimed
from tern_wire.errors import TransactionIdInvalid
from tern_wire.records.write import encode_record
from tern_wire.transactions import TransactionIds

KEY = bytes(32)


def claimed(producer_group: str, topic: bytes) -> Claimed:
    """A check of one message."""
    record = encode_record(topic, 0, b"body", b"", born_ms=1)
    return Claimed(
        number=1 << 20,
        claim=1,
        attempt=1,
        producer_group=producer_group,
        producer_group_id=3,
        begun_ms=1,
        claim_ms=10_000,
        sizes=(len(record),),
        records=memoryview(record),
    )


@pytest.mark.parametrize(("namespace", "prefix"), [("", ""), ("shop", "shop%")])
def test_a_question_names_things_as_their_producers_do(namespace: str, prefix: str) -> None:
    """The namespace stands beside the names, and is left out where there is none."""
    questions = CallbackBodies(KEY, "broker-a")
    check = claimed(f"{prefix}pay", f"{prefix}orders".encode())
    transaction_id = questions.transaction_id(check)
    body = json.loads(questions.body(check, transaction_id, time="", include_body=False))
    assert "%" not in json.dumps(body)
    assert (body["source"], body["data"]["producer_group"]) == ("/v1/producer-groups/pay", "pay")
    assert body["data"]["messages"][0]["topic"] == "orders"
    assert body["data"].get("namespace", "") == namespace
    assert TransactionIds(KEY, namespace).read(transaction_id).number == 1 << 20
    with pytest.raises(TransactionIdInvalid):
        TransactionIds(KEY, f"other{namespace}").read(transaction_id)
