"""What a producer's answer means: a table of odd ones, each of which must be unknown."""

import pytest

from tern_txn_checker.core.answers import ANSWER_SIZE_MAX_BYTES, no_answer, read_answer
from tern_wire.limits import CHECK_ANSWER_LENGTH_MAX


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"state":"commit"}', "commit"),
        (b'{"state":"rollback"}', "rollback"),
        (b' \n{ "state" : "commit" , "order": 7, "more": {"state": "rollback"} }\r\n', "commit"),
        (b'{"state":"c\\u006fmmit"}', "commit"),
        (b'{"state":"unknown"}', "unknown"),
    ],
)
def test_only_these_answers_mean_something(body: bytes, text: str) -> None:
    """Other members are the producer's own business."""
    answer = read_answer(200, body)
    assert (answer.text, answer.is_verdict, answer.is_alive) == (text, text != "unknown", True)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"commit", b'"commit"', b"null", b"1", b"[]", b'["commit"]', b'[{"state":"commit"}]', b"{}"),
        *(b'{"state":"COMMIT"}', b'{"state":"Commit"}', b'{"state":" commit"}', b'{"state":"commit "}', b'{"state":"commit\\n"}'),
        *(b'{"state":"committed"}', b'{"state":""}', b'{"state":null}', b'{"state":true}', b'{"state":1}', b'{"state":["commit"]}'),
        *(b'{"State":"commit"}', b'{"status":"commit"}', b'{"verdict":"commit"}', b'{"data":{"state":"commit"}}'),
        *(b'{"state":"commit","state":"commit"}', b'{"state":"commit","state":"rollback"}', b'{"state":"commit","x":{"y":1,"y":2}}'),
        *(b'{"state":"commit"', b'{"state":"commit"}}', b'{"state":"commit"}{"state":"rollback"}', b'{"state":"commit"},'),
        *(b"{'state':'commit'}", b'{"state":"commit",}', b'{"state":"commit","n":NaN}', b'{"state":"commit","n":Infinity}', b"state=commit"),
        *(b'\xef\xbb\xbf{"state":"commit"}', '{"state":"commit"}'.encode("utf-16"), '{"state":"commit"}'.encode("utf-32")),
        *(b'{"state":"\xff"}', b'\x00{"state":"commit"}', b"<html>commit</html>", b'{"state":"\xd0\xa1ommit"}', b"[" * 60_000),
        *(b'{"state":"commit","x":' + b"[" * 30_000 + b"]" * 30_000 + b"}", b'{"state":"commit\x00"}', b'{"x":' * 10_000),
        b'{"state":"commit","n":' + b"9" * 20_000 + b"}",
    ],
    ids=range(49),
)  # fmt: skip
def test_every_odd_answer_is_unknown(body: bytes) -> None:
    """And the host lives: it is not left alone for being odd."""
    answer = read_answer(200, body)
    assert (answer.text, answer.is_verdict, answer.is_alive) == ("malformed", False, True)


@pytest.mark.parametrize(
    "status",
    [100, 201, 202, 204, 206, 301, 302, 307, 308, 400, 401, 404, 409, 410, 418, 429, 500, 502, 503, 504, 599, 999],
)
def test_every_status_but_200_is_unknown(status: int) -> None:
    """Whatever its body says. 5xx and 429 say that the host does not do its work."""
    answer = read_answer(status, b'{"state":"commit"}')
    assert (answer.text, answer.is_verdict) == (f"http-{status}", False)
    assert answer.is_alive is (status < 500 and status != 429)


def test_a_body_over_64_kib_is_unknown() -> None:
    """One byte more than fits; with as many as fit it counts."""
    room = ANSWER_SIZE_MAX_BYTES - len(b'{"state":"commit"}')
    assert read_answer(200, b'{"state":"commit"}' + b" " * room).text == "commit"
    assert read_answer(200, b'{"state":"commit"}' + b" " * (room + 1)).text == "too-large"


def test_answers_fit_into_the_history() -> None:
    """32 characters, as the log has room for."""
    answers = [read_answer(status, b"") for status in range(100, 1_000)] + [no_answer("timeout")]
    assert max(len(answer.text) for answer in answers) <= CHECK_ANSWER_LENGTH_MAX
