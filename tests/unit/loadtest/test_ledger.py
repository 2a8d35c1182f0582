"""The ledger of a load run: what counts, what is asked again, when totals agree."""

import random
import tracemalloc
from typing import Any

from loadtest.ledger import Ledger, Place, Places, Send
from loadtest.settlement import read_send

SEND = Send("/v1/topics/t/messages", b"body", {})


def message(offset: int, queue: str = "broker-a:0") -> dict[str, Any]:
    """A received message, or a receipt."""
    return {"queue": queue, "offset": offset, "receipt_handle": f"handle-{offset}"}


def test_a_message_counts_once_however_often_it_was_sent() -> None:
    """A repeated send is answered with the first receipt: the same place."""
    ledger = Ledger()
    for key in ("first", "repeated"):
        ledger.begin_send(key, SEND)
        assert read_send(ledger, key, 201, message(7))
    assert list(ledger.stored) == [("broker-a:0", 7)]
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


def test_a_long_run_costs_what_is_open_and_not_what_was_sent() -> None:
    """300,000 messages, sent and acked nearly in order, are known in less than 200 KB; the Locust container has 512 MiB for hours."""
    ledger, rng = Ledger(), random.Random(8)
    tracemalloc.start()
    try:
        for first in range(0, 100_000, 100):
            offsets = list(range(first, first + 100))
            rng.shuffle(offsets)
            for queue in ("broker-a:0", "broker-a:1", "broker-b:0"):
                messages = [message(offset, queue) for offset in offsets]
                ledger.begin_send("k", SEND)
                ledger.end_send("k", messages)
                ledger.end_acks(ledger.receive(messages), [{}] * len(messages))
        assert tracemalloc.get_traced_memory()[0] < 200_000
    finally:
        tracemalloc.stop()
    assert (len(ledger.stored), len(ledger.acked), ledger.agrees) == (300_000, 300_000, True)
    for why in range(100_000):
        ledger.note_wrong(f"answer {why}")
    assert ledger.report(0).count("\n") == 6


def test_places_are_a_set_in_whatever_order_they_come() -> None:
    """Against a set of Python, with gaps and repetitions: as many, the same ones, and equal only to the same."""
    rng = random.Random(9)
    for _ in range(200):
        places, plain = Places(), set[Place]()
        for _ in range(rng.randrange(40)):
            place = (rng.choice(("a:0", "b:1")), rng.randrange(12))
            places.add(place)
            plain.add(place)
        again = Places()
        for place in rng.sample(sorted(plain), len(plain)):
            again.add(place)
        assert (len(places), set(places), places == again) == (len(plain), plain, True)
        again.add(("c:0", 0))
        assert places != again
