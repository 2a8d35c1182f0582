"""Who has answered: an answer counts only when the producer group signed it, for this very question."""

import asyncio
import base64
import json
from typing import Any

import httpx
import pytest

from tern_client import check_app
from tern_txn_checker.core.answers import Answer
from tern_wire.paths import HEADER_CHECK_NONCE, HEADER_CHECK_SIGNATURE
from tests.support.checker.scripted_producer import SECRET, Asked, answers, says
from tests.unit.txn_checker.test_callback import COMMIT, calling, check

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("body", [COMMIT, b'{"state":"rollback"}', b'{"state":"unknown"}', b"<html>", b""])
async def test_an_answer_that_nobody_signed_is_none(body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever is on the way can say 200 and commit. The host lives, and the operator reads which it was."""
    async with calling(answers(200, body, secret="")) as (callbacks, producer):
        assert await callbacks.ask(check(producer.url), 5_000) == Answer("unsigned")
    assert "not signed by its producer group" in caplog.text


async def change_state(asked: Asked, body: bytes) -> tuple[bytes, list[str]]:
    """A rollback on its way becomes a commit."""
    return body.replace(b"rollback", b"commit"), asked.signature(body)


async def sign_otherwise(asked: Asked, body: bytes) -> tuple[bytes, list[str]]:
    """By another secret."""
    return body, asked.signature(body, "whsec_" + base64.b64encode(bytes(32)).decode())


async def reuse_question(asked: Asked, body: bytes) -> tuple[bytes, list[str]]:
    """The question's own signature, which the same secret has made."""
    return body, [f"{HEADER_CHECK_SIGNATURE}: {asked.headers['webhook-signature']}"]


async def sign_other_nonce(asked: Asked, body: bytes) -> tuple[bytes, list[str]]:
    """An answer to another question about this transaction."""
    other = Asked(asked.method, asked.path, {**asked.headers, HEADER_CHECK_NONCE.lower(): "0" * 32}, asked.body)
    return body, other.signature(body)


async def sign_other_transaction(asked: Asked, body: bytes) -> tuple[bytes, list[str]]:
    """An answer about another transaction, to this nonce."""
    other = Asked(asked.method, asked.path, {**asked.headers, "webhook-id": "AQAAother"}, asked.body)
    return body, other.signature(body)


async def sign_oddly(asked: Asked, body: bytes) -> tuple[bytes, list[str]]:
    """No version, letters that are none of base64."""
    return body, [f"{HEADER_CHECK_SIGNATURE}: \xff\xfe"]


@pytest.mark.parametrize(
    "forge",
    [change_state, sign_otherwise, reuse_question, sign_other_nonce, sign_other_transaction, sign_oddly],
)
async def test_an_answer_whose_signature_is_wrong_is_none(forge: Any) -> None:
    """Neither changed on its way, nor of somebody else, another time, question or transaction. The next one counts again."""

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        body, head = await forge(asked, b'{"state":"rollback"}')
        lines = "\r\n".join(("HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *head)).encode("latin-1")
        writer.write(lines + b"\r\n\r\n" + body)
        return True

    async with calling(behave) as (callbacks, producer):
        assert await callbacks.ask(check(producer.url), 5_000) == Answer("wrong-signature")
        producer.behaviour = says("rollback")
        assert await callbacks.ask(check(producer.url), 5_000) == Answer("rollback")


async def test_an_answer_cannot_be_given_a_second_time() -> None:
    """Recorded, and played to the next question about the same transaction: every question has a nonce of its own."""
    recorded: list[list[str]] = []

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        recorded.append(asked.signature(COMMIT))
        lines = "\r\n".join(("HTTP/1.1 200 OK", f"Content-Length: {len(COMMIT)}", *recorded[0])).encode()
        writer.write(lines + b"\r\n\r\n" + COMMIT)
        return True

    async with calling(behave) as (callbacks, producer):
        found = [(await callbacks.ask(check(producer.url), 5_000)).text for _ in range(3)]
        assert found == ["commit", "wrong-signature", "wrong-signature"]
        assert len({asked.headers[HEADER_CHECK_NONCE.lower()] for asked in producer.asked}) == 3


async def test_the_sdk_answers_what_the_checker_believes() -> None:
    """The app of `check_app`, behind a real socket, also with the secret of before first."""
    other = "whsec_" + base64.b64encode(bytes(24)).decode()
    app = check_app(lambda _: True, [other, SECRET])

    async def behave(asked: Asked, writer: asyncio.StreamWriter) -> bool:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://shop") as client:
            reply = await client.post("/checks", content=asked.body, headers=asked.headers)
        lines = [f"HTTP/1.1 {reply.status_code} Any", *(f"{name}: {value}" for name, value in reply.headers.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + reply.content)
        return True

    question = {"transaction_id": "AQAAtransaction-id_1", "producer_group": "shop", "attempt": 1}
    body = json.dumps({"data": {**question, "begun_at": 5, "messages": []}}).encode()
    async with calling(behave) as (callbacks, producer):
        assert await callbacks.ask(check(producer.url, body=body), 5_000) == Answer("commit")
