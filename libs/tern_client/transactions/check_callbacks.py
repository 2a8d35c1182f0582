"""An ASGI application that answers checks by callback, for the `check_url` of a producer group.

    app = check_app(checker, secret="whsec_...")         uvicorn shop.checks:app --port 9000

    POST, Content-Type application/cloudevents+json,
          headers webhook-id, -timestamp, -signature, MQ-Check-Nonce
      --> 200 {"state": "commit" | "rollback" | "unknown"}, MQ-Check-Signature: of this answer
              to this question (tern_wire/checks/answers.py)
          401 the signature is not valid, or the timestamp is more than 5 minutes off;
              the checker is not called
          400, 405, 413 not a check; 500 the checker failed (the check comes again)

Reference: Standard Webhooks (signatures), CloudEvents 1.0 in structured JSON (the body), ASGI 3.0.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from tern_client.transactions.checking import checker_failed
from tern_client.transactions.models import AsyncChecker, Check, Decision, decision_of
from tern_client.transactions.transactions import read_check
from tern_wire.checks.answers import answer_signature, is_nonce
from tern_wire.errors import TernError
from tern_wire.extras import need_extra
from tern_wire.link.codec import encode_json, read_json
from tern_wire.paths import HEADER_CHECK_NONCE, HEADER_CHECK_SIGNATURE

# The most bytes of a check with bodies, in base64, rounded up: a claim carries 16 MiB.
BODY_SIZE_MAX_BYTES = 32 * 1024 * 1024

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def check_app(checker: AsyncChecker, secret: str | Sequence[str], *, size_max_bytes: int = BODY_SIZE_MAX_BYTES) -> App:
    """Return an ASGI application that answers every POST, at any path, with the result of
    *checker*.

    - *checker*: a function, which runs in the event loop and must not block for long, or a
      coroutine function. Its duties are those of a TransactionProducer's checker.
    - *secret*: the `check_secret` of the producer group; several secrets while it changes.
      ValueError without one.
    - ExtraMissing when `ternmq-client[webhooks]` is not installed.
    """
    return _CheckApp(checker, [secret] if isinstance(secret, str) else list(secret), size_max_bytes)


class _Refused(Exception):
    """The request is not a check for this application."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class _Asked:
    """A check, and the secret and nonce that sign its answer. The secret is the one that signed the
    check.
    """

    check: Check
    secret: str
    nonce: str


class _CheckApp:
    """One checker and its secrets. Keeps nothing of a request."""

    __slots__ = ("_checker", "_size_max_bytes", "_verifiers")

    def __init__(self, checker: AsyncChecker, secrets: Sequence[str], size_max_bytes: int) -> None:
        need_extra("ternmq-client[webhooks]", "Answering checks by callback")
        from standardwebhooks import Webhook  # noqa: PLC0415 - of an extra, for callbacks only

        if not secrets or not all(secrets):
            raise ValueError("a check secret is needed: the check_secret of the producer group")
        self._checker = checker
        self._verifiers = [(secret, Webhook(secret)) for secret in secrets]
        self._size_max_bytes = size_max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            raise ValueError(f"this application serves HTTP only, not {scope['type']}")
        try:
            if scope["method"] != "POST":
                raise _Refused(405, "Checks are sent by POST")
            asked = self._read(scope, await self._body(receive))
            status, document = await self._answer(asked.check)
        except _Refused as refused:
            asked, status, document = None, refused.status, {"error": refused.reason}
        body = encode_json(document)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if status == 405:
            headers.append((b"allow", b"POST"))
        if asked is not None and status == 200:
            signature = answer_signature(asked.secret, asked.nonce, asked.check.transaction_id, body)
            headers.append((HEADER_CHECK_SIGNATURE.lower().encode(), signature.encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _body(self, receive: Receive) -> bytes:
        parts, size_bytes, is_more = [], 0, True
        while is_more:
            message = await receive()
            if message["type"] != "http.request":
                raise _Refused(400, "The caller closed the connection")
            part = message.get("body", b"")
            size_bytes += len(part)
            if size_bytes > self._size_max_bytes:
                raise _Refused(413, f"A check is at most {self._size_max_bytes} bytes")
            parts.append(part)
            is_more = bool(message.get("more_body"))
        return b"".join(parts)

    def _read(self, scope: Message, body: bytes) -> _Asked:
        """Return the check in *body* after its signature is verified."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        secret = next((secret for secret, verifier in self._verifiers if _is_signed(verifier, body, headers)), None)
        if secret is None:
            raise _Refused(401, "The signature is not this producer group's, or its time is more than 5 minutes off")
        nonce = headers.get(HEADER_CHECK_NONCE.lower(), "")
        if not is_nonce(nonce):
            raise _Refused(400, f"A check has the header {HEADER_CHECK_NONCE}, which its answer is signed for")
        try:
            return _Asked(read_check(read_json(body, dict, nodes_max=0)["data"]), secret, nonce)
        except (TernError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise _Refused(400, "The body is not a check of a transaction") from error

    async def _answer(self, check: Check) -> tuple[int, dict[str, str]]:
        try:
            answer = self._checker(check)
            if isawaitable(answer):
                answer = await answer
            decision: Decision = decision_of(answer)
        except Exception as error:
            # The checker service takes this answer as unknown, and the check comes again.
            checker_failed(check, error)
            return 500, {"error": "The checker failed"}
        return 200, {"state": str(decision)}


def _is_signed(verifier: Any, body: bytes, headers: dict[str, str]) -> bool:
    """Whether *body* and its time are signed with *verifier*'s secret, and the time is within 5
    minutes.
    """
    need_extra("ternmq-client[webhooks]", "Answering checks by callback")
    from standardwebhooks import WebhookVerificationError  # noqa: PLC0415 - as above

    try:
        verifier.verify(body, headers, json_parse=False)
    except (WebhookVerificationError, ValueError):
        # ValueError: a header that is not base64, or a body that is not text.
        return False
    return True


async def _live(receive: Receive, send: Send) -> None:
    """Answer the server's start and stop events: there is nothing to prepare."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
