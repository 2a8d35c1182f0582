"""The SDK's requests and replies: what they look like on the wire, and how one call spans a proxy that stops."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from tern_client.calls.models import OutgoingMessage, ReplyMessage
from tern_client.calls.requesting import ask, find_request, new_request, read_reply, reply_request, timeout_ms_of
from tern_client.transport.calling import Attempt, Course, Outcome, Pause
from tern_client.transport.endpoints import Endpoints
from tern_client.transport.exchange import Response, lost_connection
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import IllegalTimeout, InvalidField, NoReply, OutcomeUnknown, ReplyTimeout, TernError
from tern_wire.link.codec import encode_json, encode_msgpack
from tern_wire.paths import JSON, MSGPACK

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
REQUEST = new_request("prices", OutgoingMessage(body=b"?", idempotency_key="k"), 9_000)
FOUND = Response(200, {"content-type": MSGPACK}, encode_msgpack(REPLY))


def course(*urls: str) -> Course:
    """A course without chance."""
    return Course(endpoints=Endpoints(urls), policy=RetryPolicy(), chance=lambda: 0.0)


def problem(error: TernError) -> Response:
    """A proxy's answer."""
    return Response(error.status, {"content-type": JSON}, encode_json(error.problem()))


TIMEOUT = problem(ReplyTimeout(correlation_id="c#1", client="shop", message_id="m1", ask_again="/x"))


def test_a_request_says_everything_in_its_query_whatever_the_letters() -> None:
    """Headers carry ASCII only; a query carries all. Properties are JSON, escaped."""
    message = OutgoingMessage(
        body=b"?", tag="prïs", keys=("a", "ß"), properties={"city": "Zürich"}, idempotency_key="k"
    )
    request = new_request("prices", message, 9_000, "c1", "shop-7")
    where = urlsplit(request.path)
    assert where.path == "/v1/topics/prices/requests"
    assert parse_qs(where.query) == {
        "timeout": ["9000"],
        "correlation_id": ["c1"],
        "client": ["shop-7"],
        "tag": ["prïs"],
        "key": ["a", "ß"],
        "idempotency_key": ["k"],
    }
    assert all(value.isascii() for _, value in request.headers)
    assert (request.wait_ms, request.repeatable, request.stores) == (9_000, True, True)
    assert find_request("prices", "c#1", "", 5).path == "/v1/topics/prices/requests/c%231?wait=5"


def test_what_is_no_request_cannot_be_replied_to() -> None:
    """Refused here: the message that was received has no address."""
    with pytest.raises(InvalidField, match="not a request"):
        reply_request("prices", b"42", reply_to="", correlation_id="")
    keys = {
        parse_qs(urlsplit(reply_request("t", b"", reply_to="broker-a:x", correlation_id="c").path).query)[
            "idempotency_key"
        ][0]
        for _ in range(3)
    }
    assert len(keys) == 3  # two replies are two messages; a repeat of one is not


@pytest.mark.parametrize(("timeout", "ms"), [("5s", 5_000), (20, 20), (timedelta(seconds=1.5), 1_500)])
def test_timeouts_are_written_as_people_like(timeout: str | int | timedelta, ms: int) -> None:
    """What is none is an error of ours."""
    assert timeout_ms_of(timeout) == ms
    with pytest.raises(IllegalTimeout):
        timeout_ms_of("soon")


def test_a_reply_timeout_is_the_end_when_the_time_is_over() -> None:
    """The request is not sent again; the problem's fields reach the caller."""
    steps = ask(course("http://a", "http://b"), "prices", REQUEST, 9_000, 0.0)
    assert isinstance(next(steps), Attempt)
    assert steps.send(Outcome(TIMEOUT, 9_010.0)) == Pause(0)
    with pytest.raises(ReplyTimeout) as caught:
        steps.send(Outcome(None, 9_010.0))
    assert (caught.value.fields["correlation_id"], caught.value.fields["client"]) == ("c#1", "shop")


def test_a_proxy_that_stops_early_is_not_the_end() -> None:
    """The reply is asked for, for the rest of the time; the request is not sent again."""
    steps = ask(course("http://a"), "prices", REQUEST, 9_000, 0.0)
    next(steps)
    steps.send(Outcome(TIMEOUT, 2_000.0))
    again = steps.send(Outcome(None, 2_000.0))
    assert isinstance(again, Attempt)
    assert (again.request.method, again.request.path) == (
        "GET",
        "/v1/topics/prices/requests/c%231?client=shop&wait=7000",
    )
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome(FOUND, 2_500.0))
    assert isinstance(end.value.value, ReplyMessage)
    assert end.value.value.body == b"42"


def test_a_reply_that_does_not_come_in_the_rest_of_the_time_is_a_reply_timeout() -> None:
    """Not the error of the second question."""
    steps = ask(course("http://a"), "prices", REQUEST, 9_000, 0.0)
    next(steps)
    steps.send(Outcome(TIMEOUT, 2_000.0))
    steps.send(Outcome(None, 2_000.0))
    with pytest.raises(ReplyTimeout):
        steps.send(Outcome(problem(NoReply(correlation_id="c#1", client="shop")), 9_000.0))


def test_a_request_whose_outcome_is_unknown_stays_so() -> None:
    """It waits and is no read: a later refusal does not say that the first attempt stored nothing."""
    steps = ask(course("http://a"), "prices", REQUEST, 9_000, 0.0)
    next(steps)
    assert isinstance(steps.send(Outcome(lost_connection("http://a", "reset"), 29_000.0)), Pause)
    steps.send(Outcome(None, 29_990.0))
    with pytest.raises(OutcomeUnknown):
        steps.send(Outcome(Response(503, {}, b""), 30_000.0))


def test_a_reply_is_read_with_its_defaults() -> None:
    """Fields that a reply has not are empty."""
    reply = read_reply(FOUND)
    assert (reply.keys, reply.properties, reply.content_type, reply.correlation_id) == ((), {}, "", "c1")
