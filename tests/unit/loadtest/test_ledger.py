"""The ledger of a load run: what counts, what is asked again, when totals agree."""

from typing import Any

from loadtest.ledger import Ledger, Send
from loadtest.settlement import read_send

SEND = Send("/v1/topics/t/messages", b"body", {})


def message(offset: int) -> dict[str, Any]:
    """A received message, or a receipt."""
    return {"queue": "broker-a:0", "offset": offset, "receipt_handle": f"handle-{offset}"}


def test_a_message_counts_once_however_often_it_was_sent() -> None:
    """A repeated send is answered with the first receipt: the same place."""
    ledger = Ledger()
    for key in ("first", "repeated"):
        ledger.begin_send(key, SEND)
        assert read_send(ledger, key, 201, message(7))
    assert ledger.stored == {("broker-a:0", 7)}
    assert not ledger.open_sends


def test_totals_agree_only_when_every_stored_message_is_acked() -> None:
    """Before the ack they do not, after it they do; an ack of something else does not help."""
    ledger = Ledger()
    ledger.begin_send("k", SEND)
    assert not ledger.agrees
    read_send(ledger, "k", 200, {"results": [message(0), message(1)]})
    handles = ledger.receive([message(0)])
    ledger.end_acks(handles, [{}])
    assert not ledger.agrees
    ledger.end_acks(ledger.receive([message(1)]), [{}])
    assert ledger.agrees
    ledger.end_acks(ledger.receive([message(2)]), [{}])
    assert not ledger.agrees


def test_an_unknown_outcome_stays_open_and_a_refusal_is_remembered() -> None:
    """503, 504, a broken connection and a retryable error in a batch mean: the same bytes again. 400 means a wrong load."""
    ledger = Ledger()
    ledger.begin_send("k", SEND)
    for status in (0, 503, 504):
        assert not read_send(ledger, "k", status, {})
    assert not read_send(
        ledger, "k", 207, {"results": [message(0), {"error": {"code": "no-leader", "retryable": True}}]}
    )
    assert "k" in ledger.open_sends
    assert read_send(ledger, "k", 400, {"code": "illegal-topic"})
    assert ledger.wrong_answers
    assert not ledger.agrees


def test_an_expired_ack_is_forgotten_and_a_retryable_one_stays_open() -> None:
    """The expired message comes again under a new handle; the other ack is simply not known yet."""
    ledger = Ledger()
    handles = ledger.receive([message(0), message(1)])
    errors = [{"code": "receipt-expired", "retryable": False}, {"code": "no-leader", "retryable": True}]
    ledger.end_acks(handles, [{"error": error} for error in errors])
    assert ledger.expired_acks == 1
    assert list(ledger.open_acks) == ["handle-1"]
    assert not ledger.acked
