"""`ternmq request` and `ternmq reply` against a scripted proxy: what is asked, what is printed, how it ends."""

import json
from urllib.parse import parse_qs, urlsplit

from typer.testing import CliRunner

from tern_cli.app import app
from tern_wire.errors import ReplyTimeout
from tests.support.client.scripted_proxy import blocking_proxy, packed, refused, said

RUNNER = CliRunner()
REPLY = {
    "message_id": "m2",
    "topic": "dev_REPLY_TOPIC",
    "queue": "broker-a:1",
    "offset": 7,
    "body": b"42",
    "correlation_id": "c1",
    "born_at": 1,
    "stored_at": 2,
}
RECEIPT = {"message_id": "m2", "queue": "broker-a:1", "offset": 7, "born_at": 1}
DELIVERY = {
    **RECEIPT,
    "topic": "prices",
    "body": b"how much?",
    "stored_at": 2,
    "attempt": 1,
    "receipt_handle": "h1",
    "invisible_until": 3,
    "correlation_id": "c1",
    "reply_to": "broker-a:shop-7",
    "expires_at": 9,
}


def test_the_reply_is_printed_as_it_is() -> None:
    """Or as a document with where it is stored."""
    with blocking_proxy(lambda _: packed(REPLY)) as made:
        words = ["request", "prices", "how much?", "--timeout", "5s", "-t", "now", "-p", "city=Bern"]
        shown = RUNNER.invoke(app, [*words, "--client", "shop-7", "--endpoint", made.url])
        document = RUNNER.invoke(app, ["request", "prices", "x", "-o", "json", "--endpoint", made.url])
        asked = made.asked[0]
    assert (shown.exit_code, shown.stdout) == (0, "42\n")
    assert asked.body == b"how much?"
    query = parse_qs(urlsplit(asked.path).query)
    assert (query["timeout"], query["tag"], query["client"]) == (["5000"], ["now"], ["shop-7"])
    assert json.loads(document.stdout)["body"] == "42"


def test_no_reply_in_time_is_a_failure_that_says_how_to_ask_again() -> None:
    """Exit code 1; the request is not sent twice."""
    error = ReplyTimeout(correlation_id="", client="c1", message_id="m1", ask_again="/v1/topics/prices/requests/c1")
    with blocking_proxy(lambda _: refused(error)) as made:
        shown = RUNNER.invoke(app, ["request", "prices", "x", "--timeout", "1ms", "--endpoint", made.url])
        assert len(made.asked) == 1
    assert shown.exit_code == 1
    assert "/v1/topics/prices/requests/c1" in shown.stderr.replace("\n", "")


def test_a_received_request_shows_what_a_reply_needs() -> None:
    """%c and %r, and the fields of the document; `ternmq reply` takes them."""
    left = [DELIVERY, DELIVERY]
    with blocking_proxy(
        lambda asked: (
            packed({"messages": [left.pop()], "settled": []})
            if asked.path.endswith("receive")
            else said({"results": [{"index": 0}]})
            if asked.path.endswith("settle")
            else said(RECEIPT, 201)
        )
    ) as made:
        shown = RUNNER.invoke(app, ["recv", "prices", "g", "-f", "%c %r", "--endpoint", made.url])
        document = RUNNER.invoke(app, ["recv", "prices", "g", "-o", "json", "--endpoint", made.url])
        words = ["reply", "prices", "42", "--to", "broker-a:shop-7", "--correlation-id", "c1"]
        done = RUNNER.invoke(app, [*words, "--endpoint", made.url])
        reply = made.asked[-1]
    assert shown.stdout == "c1 broker-a:shop-7"
    assert json.loads(document.stdout)[0]["expires_at"] == 9
    assert done.exit_code == 0
    assert "broker-a:1" in done.stdout
    query = parse_qs(urlsplit(reply.path).query)
    assert (query["reply_to"], query["correlation_id"], reply.body) == (["broker-a:shop-7"], ["c1"], b"42")
