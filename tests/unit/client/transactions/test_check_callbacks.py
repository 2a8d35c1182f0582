"""Checks that are answered by callback: what `check_app` believes, what it answers, and how that is signed."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from tern_client import Check, CheckedMessage, check_app
from tern_client.transactions.models import AsyncChecker, Decision
from tern_wire.checks.answers import answer_signature
from tests.unit.client.transactions.test_check_answers import question

NONCE = "0123456789abcdef" * 2
SECRET, OTHER = "whsec_c2VjcmV0IG9mIHRoZSBzaG9w", "whsec_c29tZWJvZHkgZWxzZSdz"


def callback(check: dict[str, Any] | None = None) -> bytes:
    """The body of a callback, as txn-checker writes it: bodies are base64, or not there."""
    data = check or {**question("AQ-1"), "messages": [{"topic": "t", "message_id": "m", "body": "/w=="}]}
    return json.dumps(
        {"specversion": "1.0", "type": "ternmq.transaction.check.v1", "id": "AQ-1", "data": data}
    ).encode()


def signed(body: bytes, secret: str = SECRET, age_s: float = 0) -> dict[str, str]:
    """The headers of a callback that was signed *age_s* ago."""
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return {
        "Content-Type": "application/cloudevents+json",
        "webhook-id": "AQ-1",
        "MQ-Check-Nonce": NONCE,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign("AQ-1", at, body.decode()),
    }


async def called(
    checker: AsyncChecker, body: bytes, headers: dict[str, str], *, method: str = "POST", **options: Any
) -> httpx.Response:
    """What the app answers to one request."""
    app = check_app(checker, options.pop("secret", SECRET), **options)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop") as client:
        return await client.request(method, "/checks", content=body, headers=headers)


@pytest.mark.parametrize(("answer", "state"), [(True, "commit"), (False, "rollback"), (None, "unknown")])
async def test_a_callback_is_answered_as_the_checker_says(answer: bool | None, state: str) -> None:
    """A function or a coroutine function; the check has what the callback carried."""
    seen: list[Check] = []

    async def checker(check: Check) -> bool | None:
        seen.append(check)
        return answer

    body = callback()
    for one in (checker, lambda _: answer):
        reply = await called(one, body, signed(body))
        assert (reply.status_code, reply.json()) == (200, {"state": state})
        assert reply.headers["mq-check-signature"] == answer_signature(SECRET, NONCE, "AQ-1", reply.content)
    message = CheckedMessage(topic="t", message_id="m", body=b"\xff")
    assert (seen[0].transaction_id, seen[0].attempt, seen[0].messages) == ("AQ-1", 1, (message,))


@pytest.mark.parametrize("other", ["webhook-id", "webhook-timestamp", "webhook-signature"])
async def test_a_callback_that_lacks_a_header_is_not_ours(other: str) -> None:
    """401, and the checker is not asked; nor when the header says something else."""
    body = callback()
    headers = signed(body)
    for wrong in ({name: text for name, text in headers.items() if name != other}, {**headers, other: "v1,!"}):
        reply = await called(lambda _: pytest.fail("asked"), body, wrong)
        assert reply.status_code == 401, reply.text


@pytest.mark.parametrize("nonce", ["", "0123", "0123456789ABCDEF" * 2, "0123456789abcdef" * 3, "x" * 32, None])
async def test_a_callback_without_a_nonce_is_refused(nonce: str | None) -> None:
    """Its answer could be given again to another question: 400, unsigned, and the checker is not asked."""
    body = callback()
    headers = {name: text for name, text in signed(body).items() if name != "MQ-Check-Nonce"}
    reply = await called(
        lambda _: pytest.fail("asked"), body, headers if nonce is None else {**headers, "MQ-Check-Nonce": nonce}
    )
    assert (reply.status_code, "MQ-Check-Nonce" in reply.text) == (400, True)
    assert "mq-check-signature" not in reply.headers


async def test_a_callback_of_another_secret_time_or_body_is_not_ours() -> None:
    """Replayed after 5 minutes, from the future, signed by somebody else, changed on its way, or no text at all."""
    body = callback()
    refused_ones = [
        (body, signed(body, OTHER)),
        (body, signed(body, age_s=301)),
        (body, signed(body, age_s=-301)),
        (body.replace(b"AQ-1", b"AQ-2"), signed(body)),
        (b"\xff\xfe", signed(body)),
    ]
    for sent, headers in refused_ones:
        assert (await called(lambda _: pytest.fail("asked"), sent, headers)).status_code == 401
    assert (await called(lambda _: True, body, signed(body, age_s=290))).status_code == 200


async def test_while_a_secret_changes_both_are_ours() -> None:
    """And an app without a secret is not made."""
    body = callback()
    for secret in (SECRET, OTHER):
        reply = await called(lambda _: True, body, signed(body, secret), secret=[SECRET, OTHER])
        assert reply.status_code == 200
        # With the one that the question was signed with: the checker may not have the other yet.
        assert reply.headers["mq-check-signature"] == answer_signature(secret, NONCE, "AQ-1", reply.content)
    nothing: list[str] = []
    for none in ("", nothing):
        with pytest.raises(ValueError, match="check secret"):
            check_app(lambda _: True, none)


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"data": 1}', b'{"data": {"transaction_id": "x"}}', b"{", b'"x"'])
async def test_what_is_signed_but_no_check_is_a_bad_request(text: bytes) -> None:
    """400, and the checker is not asked."""
    assert (await called(lambda _: pytest.fail("asked"), text, signed(text))).status_code == 400


async def test_the_app_refuses_other_methods_and_large_bodies_and_says_when_the_checker_failed() -> None:
    """405 with Allow, 413, and 500, which the caller takes as unknown."""
    body = callback()

    def broken(_: Check) -> bool:
        raise RuntimeError("no database")

    got = await called(broken, b"", {}, method="GET")
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert (await called(broken, body, signed(body), size_max_bytes=len(body) - 1)).status_code == 413
    failed = await called(broken, body, signed(body))
    assert (failed.status_code, failed.json()) == (500, {"error": "The checker failed"})
    assert (await called(lambda _: 1, body, signed(body))).status_code == 500  # type: ignore[arg-type,return-value]


async def test_the_app_lives_under_a_server() -> None:
    """It answers the server's start and stop, and refuses what is no HTTP."""
    app = check_app(lambda _: Decision.COMMIT, SECRET)
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    said_there: list[str] = []

    async def receive() -> Any:
        return events.pop(0)

    async def send(message: Any) -> None:
        said_there.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert said_there == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(ValueError, match="HTTP only"):
        await app({"type": "websocket"}, receive, send)
