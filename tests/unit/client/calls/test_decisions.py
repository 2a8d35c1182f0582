"""The SDK's pure decisions: when to repeat, when a batch is full, how a batch is split, what an answer means."""

import json

import pytest

from tern_client.calls.batching import Accumulator, BatchLimits, size_of, split
from tern_client.calls.documents import Settle, batch_request, read_results, send_request
from tern_client.calls.models import OutgoingMessage
from tern_client.calls.sending import send_many, with_key
from tern_client.calls.settling import PendingSettles
from tern_client.transport.calling import Attempt, Course, Outcome, Pause, call
from tern_client.transport.endpoints import Endpoints
from tern_client.transport.exchange import ProxyUnreachable, Request, Response, error_of, lost_connection
from tern_client.transport.retrying import RetryPolicy, Verdict, decide
from tern_wire.errors import (
    LimitReached,
    NoLeader,
    OutcomeUnknown,
    Overloaded,
    ReceiptExpired,
    ShuttingDown,
    TernError,
    TopicNotFound,
)
from tern_wire.link.codec import encode_msgpack
from tern_wire.paths import MSGPACK

POLICY = RetryPolicy(deadline_ms=10_000, attempt_timeout_ms=2_000, first_delay_ms=100, max_delay_ms=1_000)
UNREACHABLE = ProxyUnreachable(endpoint="http://a", reason="refused")


@pytest.mark.parametrize(
    ("error", "attempt", "endpoints", "elapsed_ms", "repeatable", "expected"),
    [
        (TopicNotFound(topic="t"), 0, 1, 0, True, Verdict(False)),
        (LimitReached(), 0, 1, 0, True, Verdict(False)),
        (NoLeader(), 0, 1, 0, False, Verdict(True, 50, True)),
        (NoLeader(), 1, 1, 0, False, Verdict(True, 100, True)),
        (NoLeader(), 9, 1, 0, False, Verdict(True, 500, True)),
        (NoLeader(), 0, 2, 0, True, Verdict(True, 0, True)),
        (NoLeader(), 1, 2, 0, True, Verdict(True, 50, True)),
        (NoLeader(retry_after_ms=700), 0, 1, 0, True, Verdict(True, 700, True)),
        (NoLeader(retry_after_ms="soon"), 0, 1, 0, True, Verdict(True, 50, True)),
        (NoLeader(retry_after_ms=700), 0, 1, 9_400, True, Verdict(False)),
        (Overloaded(what="connections"), 0, 1, 0, False, Verdict(True, 50, True)),
        (Overloaded(what="connections", retry_after_ms=700), 0, 1, 0, False, Verdict(True, 700, True)),
        (Overloaded(what="connections", retry_after_ms=700), 0, 2, 0, False, Verdict(True, 0, True)),
        (OutcomeUnknown(), 0, 1, 0, False, Verdict(False)),
        (OutcomeUnknown(), 0, 1, 0, True, Verdict(True, 50, True)),
        (UNREACHABLE, 0, 3, 0, False, Verdict(True, 0, True)),
        (UNREACHABLE, 0, 3, 10_000, False, Verdict(False, 0, True)),
        (ShuttingDown(), 5, 1, 9_999, True, Verdict(False)),
    ],
)
def test_a_failure_is_repeated_only_when_that_can_help_and_cannot_harm(
    error: TernError, attempt: int, endpoints: int, elapsed_ms: float, repeatable: bool, expected: Verdict
) -> None:
    """With chance 0 the pauses are exact: half of the exponential step, or what the proxy asked for."""
    verdict = decide(
        error,
        attempt=attempt,
        endpoints=endpoints,
        elapsed_ms=elapsed_ms,
        repeatable=repeatable,
        chance=0.0,
        policy=POLICY,
    )
    assert verdict == expected


def test_chance_spreads_pauses_between_half_a_step_and_a_whole_one() -> None:
    """Clients that failed together do not come back together."""
    pauses = [
        decide(NoLeader(), attempt=3, endpoints=1, elapsed_ms=0, repeatable=True, chance=chance, policy=POLICY).delay_ms
        for chance in (0.0, 0.5, 0.999)
    ]
    assert pauses == [400, 600, 800]


@pytest.mark.parametrize(
    ("response", "code", "retryable", "retry_after_ms"),
    [
        (Response(200, {}, b"{}"), None, False, None),
        (Response(404, {}, json.dumps(TopicNotFound(topic="t").problem()).encode()), "topic-not-found", False, None),
        (Response(503, {"retry-after": "2"}, json.dumps(NoLeader().problem()).encode()), "no-leader", True, 2_000),
        (
            Response(503, {"retry-after": "2"}, json.dumps(NoLeader(retry_after_ms=150).problem()).encode()),
            "no-leader",
            True,
            150,
        ),
        (Response(503, {}, b"<html>busy</html>"), "shutting-down", True, None),
        (Response(504, {}, b""), "outcome-unknown", True, None),
        (Response(403, {}, b"<html>go away</html>"), "internal", False, None),
        (Response(400, {}, b'["not a problem"]'), "internal", False, None),
    ],
)
def test_an_answer_becomes_our_error_even_when_it_is_a_gateways_page(
    response: Response, code: str | None, retryable: bool, retry_after_ms: int | None
) -> None:
    """The milliseconds of the problem win over the header's whole seconds."""
    error = error_of(response, "http://p")
    assert (error and error.code) == code
    if error:
        assert error.retryable == retryable
        assert error.fields.get("retry_after_ms") == retry_after_ms


def test_a_problems_own_sentence_reaches_the_user() -> None:
    """A newer proxy may explain better than this SDK's table."""
    problem = {**TopicNotFound(topic="t").problem(), "detail": "Topic 't' moved to another cluster."}
    error = error_of(Response(404, {}, json.dumps(problem).encode()), "http://p")
    assert isinstance(error, TopicNotFound)
    assert str(error) == error.detail == "Topic 't' moved to another cluster."


def message(size_bytes: int = 100, **fields: str) -> OutgoingMessage:
    """A message whose body has *size_bytes*."""
    return OutgoingMessage(body=b"x" * size_bytes, **fields)  # type: ignore[arg-type]


def test_messages_wait_for_company_until_the_linger_is_over() -> None:
    """The first message of a batch sets its deadline; later ones do not move it."""
    buffer: Accumulator[int] = Accumulator(BatchLimits(linger_ms=5))
    assert buffer.add("a", message(), 0, 100.0) == []
    assert buffer.add("a", message(), 1, 104.0) == []
    assert buffer.next_due_ms == 105.0
    assert buffer.due(104.9) == []
    (batch,) = buffer.due(105.0)
    assert (batch.topic, batch.tokens) == ("a", [0, 1])
    assert buffer.next_due_ms is None


def test_a_batch_leaves_when_it_is_full_by_count_or_by_size() -> None:
    """A message that would burst the batch starts the next one; a giant travels alone."""
    by_count: Accumulator[int] = Accumulator(BatchLimits(messages_max=3))
    assert [len(by_count.add("t", message(), token, 0)) for token in range(7)] == [0, 0, 1, 0, 0, 1, 0]
    one = size_of(message(1000))
    by_size: Accumulator[int] = Accumulator(BatchLimits(size_max_bytes=2 * one + 10))
    assert [len(by_size.add("t", message(1000), token, 0)) for token in range(5)] == [0, 0, 1, 0, 1]
    giant = by_size.add("t", message(100_000), 9, 0)
    assert [batch.tokens for batch in giant] == [[4], [9]]


def test_topics_do_not_wait_for_each_other() -> None:
    """Each topic has its own batch; `all` hands out what is left of every one."""
    buffer: Accumulator[int] = Accumulator(BatchLimits(linger_ms=5))
    buffer.add("a", message(), 0, 100.0)
    buffer.add("b", message(), 1, 103.0)
    assert [batch.topic for batch in buffer.due(105.0)] == ["a"]
    assert [batch.topic for batch in buffer.all()] == ["b"]
    assert buffer.all() == []


def test_size_is_never_below_what_travels() -> None:
    """Limits are about bytes on the wire."""
    full = OutgoingMessage(
        body=b"x" * 10, tag="t" * 9, keys=("k" * 40, "l"), properties={"name": "v" * 90}, idempotency_key="i" * 20
    )
    for one in (message(0), message(5_000), full):
        assert size_of(one) >= len(batch_request("t", [one]).body) - len(batch_request("t", []).body)


def test_a_list_of_any_length_is_split_into_requests_that_fit() -> None:
    """No request has more than 1,024 messages or 16 MiB, and no message is lost or moved."""
    many = [message(1)] * 2_500
    assert [len(part) for part in split("t", many)] == [1_024, 1_024, 452]
    big = [message(4 * 1024 * 1024)] * 5
    assert [list(part) for part in split("t", big)] == [[0, 1, 2], [3, 4]]
    assert list(split("t", [])) == []


def test_a_message_that_headers_cannot_carry_travels_as_a_batch_of_one() -> None:
    """Umlauts, blanks at the ends, and metadata near the limit of a request's head."""
    plain = send_request("t", message(3, tag="A", idempotency_key="k"))
    assert plain.path == "/v1/topics/t/messages"
    assert ("MQ-Tag", "A") in plain.headers
    assert plain.repeatable
    assert not send_request("t", message(3)).repeatable
    for odd in (message(3, tag="grün"), message(3, tag=" a"), OutgoingMessage(body=b"", properties={"a": "x" * 7_000})):
        assert send_request("t", odd).path == "/v1/topics/t/messages/batch"
    properties = send_request("t", OutgoingMessage(body=b"", properties={"city": "Zürich"}))
    assert ("MQ-Properties", '{"city":"Z\\u00fcrich"}') in properties.headers


def test_keys_are_added_only_where_there_is_none() -> None:
    """The user's key is the user's promise."""
    assert with_key(message(1), lambda: "made").idempotency_key == "made"
    assert with_key(message(1, idempotency_key="mine"), lambda: "made").idempotency_key == "mine"
    assert with_key(message(1), None).idempotency_key == ""


COURSE_POLICY = RetryPolicy(deadline_ms=1_000, attempt_timeout_ms=400, first_delay_ms=100, max_delay_ms=200)


def course(*urls: str) -> Course:
    """A course without chance."""
    return Course(endpoints=Endpoints(urls), policy=COURSE_POLICY, chance=lambda: 0.0)


def test_a_call_goes_round_all_proxies_before_it_pauses() -> None:
    """Then it pauses, and the answer of any proxy ends it; the next call begins where this one ended."""
    way = course("http://a", "http://b/")
    steps = call(way, Request("GET", "/x"), began_ms=0.0)
    first = next(steps)
    assert first == Attempt("http://a", Request("GET", "/x"), 400.0)
    second = steps.send(Outcome(UNREACHABLE, 10.0))
    assert isinstance(second, Attempt)
    assert second.endpoint == "http://b"
    assert steps.send(Outcome(Response(503, {}, b""), 20.0)) == Pause(50)
    third = steps.send(Outcome(None, 70.0))
    assert isinstance(third, Attempt)
    assert third.endpoint == "http://a"
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome(Response(204), 80.0))
    assert end.value.value.status == 204
    assert way.endpoints.current == "http://a"


def test_a_call_ends_with_its_deadline_and_its_attempts_fit_into_it() -> None:
    """The last attempt gets what time is left; then the last error is raised."""
    steps = call(course("http://a"), Request("GET", "/x"), began_ms=0.0)
    next(steps)
    assert isinstance(steps.send(Outcome(UNREACHABLE, 850.0)), Pause)
    last = steps.send(Outcome(None, 900.0))
    assert isinstance(last, Attempt)
    assert last.timeout_ms == 100.0
    with pytest.raises(ProxyUnreachable):
        steps.send(Outcome(UNREACHABLE, 1_000.0))


def test_the_reason_of_a_refused_connection_outlives_a_last_attempt_that_had_no_time() -> None:
    """After the deadline the error says what is wrong, not that the deadline came."""
    steps = call(course("http://a"), Request("POST", "/x"), began_ms=0.0)
    next(steps)
    steps.send(Outcome(UNREACHABLE, 850.0))
    steps.send(Outcome(None, 999.0))
    with pytest.raises(ProxyUnreachable, match="refused"):
        steps.send(Outcome(ProxyUnreachable(endpoint="http://a", reason="no answer in time"), 1_000.0))


def test_an_attempt_that_may_have_been_stored_outlives_later_ones_that_were_not() -> None:
    """Of a send; a read has nothing to be unsure about, and its last error says more."""
    for method, expected in (("POST", OutcomeUnknown), ("GET", ProxyUnreachable)):
        steps = call(course("http://a"), Request(method, "/x"), began_ms=0.0)
        next(steps)
        steps.send(Outcome(lost_connection("http://a", "reset"), 850.0))
        steps.send(Outcome(None, 900.0))
        with pytest.raises(expected):
            steps.send(Outcome(UNREACHABLE, 1_000.0))


def test_a_send_without_a_key_is_not_repeated_when_its_outcome_is_unknown() -> None:
    """It may be stored already; only the caller can decide."""
    steps = call(course("http://a", "http://b"), send_request("t", message(1)), began_ms=0.0)
    next(steps)
    with pytest.raises(OutcomeUnknown):
        steps.send(Outcome(lost_connection("http://a", "reset"), 5.0))


def receipt(index: int) -> dict[str, object]:
    """A receipt as the proxy writes it."""
    return {"index": index, "message_id": f"m{index}", "queue": "broker-a:0", "offset": index, "born_at": 1}


def answer(*results: dict[str, object]) -> Response:
    """A batch's answer."""
    failed = sum("error" in result for result in results)
    body = encode_msgpack({"results": list(results), "failed": failed})
    return Response(207 if failed else 200, {"content-type": MSGPACK}, body)


def test_only_the_failed_messages_of_a_batch_are_sent_again() -> None:
    """What failed for good keeps its error, what was stored keeps its receipt."""
    messages = [message(at, idempotency_key=f"k{at}") for at in range(4)]
    steps = send_many(course("http://a"), "t", messages, 0.0)
    next(steps)
    mixed = answer(
        receipt(0),
        {"index": 1, "error": Overloaded(what="idempotency keys").problem()},
        receipt(2),
        {"index": 3, "error": TopicNotFound(topic="t").problem()},
    )
    assert steps.send(Outcome(mixed, 10.0)) == Pause(0)
    assert isinstance(steps.send(Outcome(None, 10.0)), Pause)
    again = steps.send(Outcome(None, 60.0))
    assert isinstance(again, Attempt)
    assert again.request == batch_request("t", [messages[1]])
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome(answer(receipt(0)), 70.0))
    outcome = end.value.value
    assert [one and one.message_id for one in outcome.receipts] == ["m0", "m0", "m2", None]
    assert {at: error.code for at, error in outcome.errors.items()} == {3: "topic-not-found"}
    with pytest.raises(TopicNotFound):
        outcome.confirmed()


def test_a_batch_that_fails_as_a_whole_gives_its_error_to_each_message() -> None:
    """A second chunk's failure does not take the first one's receipts."""
    messages = [message(1, idempotency_key=f"k{at}") for at in range(1_025)]
    steps = send_many(course("http://a"), "t", messages, 0.0)
    next(steps)
    steps.send(Outcome(answer(*map(receipt, range(1_024))), 10.0))
    problem = json.dumps(TopicNotFound(topic="t").problem()).encode()
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome(Response(404, {}, problem), 20.0))
    outcome = end.value.value
    assert sum(one is not None for one in outcome.receipts) == 1_024
    assert list(outcome.errors) == [1_024]


def test_a_replayed_single_send_is_told_by_its_header() -> None:
    """Batches tell it per result."""
    body = json.dumps(receipt(0)).encode()
    (first,) = read_results(Response(200, {"idempotency-replayed": "true"}, body))
    assert not isinstance(first, TernError)
    assert first.replayed
    (second,) = read_results(answer({**receipt(0), "replayed": True}))
    assert not isinstance(second, TernError)
    assert second.replayed


def test_settles_come_back_in_order_when_their_request_failed() -> None:
    """And after an answer only what may still succeed."""
    pending = PendingSettles()
    pending.add(Settle(f"h{at}") for at in range(5))
    taken = pending.take(3)
    pending.give_back(taken)
    assert [settle.receipt_handle for settle in pending.take()] == ["h0", "h1", "h2", "h3", "h4"]
    pending.settled(taken, {0: ReceiptExpired(), 2: NoLeader()})
    assert pending.expired == 1
    assert [settle.receipt_handle for settle in pending.take()] == ["h2"]


def failed(index: int, error: TernError) -> dict[str, object]:
    """A message's error as the proxy writes it."""
    return {"index": index, "error": error.problem()}


def test_messages_without_a_key_are_sent_again_only_when_they_are_surely_not_stored() -> None:
    """In one batch, one queue's outcome may be unknown while another's message was refused for now."""
    messages = [message(1), message(2)]
    steps = send_many(course("http://a"), "t", messages, 0.0)
    next(steps)
    assert steps.send(Outcome(answer(failed(0, NoLeader()), failed(1, OutcomeUnknown())), 10.0)) == Pause(0)
    steps.send(Outcome(None, 10.0))
    again = steps.send(Outcome(None, 60.0))
    assert isinstance(again, Attempt)
    assert again.request == batch_request("t", [messages[0]])
    with pytest.raises(StopIteration) as end:
        steps.send(Outcome(answer(receipt(0)), 70.0))
    assert {at: error.code for at, error in end.value.value.errors.items()} == {1: "outcome-unknown"}


@pytest.mark.parametrize("last", [answer(failed(0, NoLeader())), UNREACHABLE], ids=["refused", "unreachable"])
def test_a_messages_unknown_outcome_is_not_forgotten_over_a_later_failure(last: Response | TernError) -> None:
    """The later one says that nothing was stored, and speaks of its own attempt only."""
    steps = send_many(course("http://a"), "t", [message(1, idempotency_key="k")], 0.0)
    next(steps)
    steps.send(Outcome(answer(failed(0, OutcomeUnknown())), 10.0))
    steps.send(Outcome(None, 10.0))
    assert isinstance(steps.send(Outcome(None, 60.0)), Attempt)
    with pytest.raises(StopIteration) as end:
        step = steps.send(Outcome(last, 1_500.0))
        while isinstance(step, Pause):
            step = steps.send(Outcome(None, 1_500.0))
    assert {at: error.code for at, error in end.value.value.errors.items()} == {0: "outcome-unknown"}
