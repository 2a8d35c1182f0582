"""The meaning of a producer's answer.

    200 {"state": "commit" | "rollback" | "unknown"}
        a JSON object in UTF-8 of at most 64 KiB, with each of its names once,
        and with the MAC of this check and this answer (tern_wire/checks/answers.py)

Law: only one answer commits and only one rolls back; every other answer is unknown.

Texts of at most 32 characters go into the history of a transaction's checks: commit, rollback,
unknown, malformed, http-503, or the reason why there was no answer.
"""

import json
from dataclasses import dataclass
from typing import Any

ANSWER_SIZE_MAX_BYTES = 64 * 1024

# Reasons for a missing answer.
TIMEOUT, REFUSED, UNREACHABLE, BROKEN, TLS, NO_ADDRESS, NO_HTTP, TOO_LARGE = (
    *("timeout", "refused", "unreachable", "broken-off", "tls-failed", "no-address", "no-http", "too-large"),
)
# Answers that may be forged: without a signature, or with one that is not this producer group's for
# this check.
UNSIGNED, WRONG_SIGNATURE = "unsigned", "wrong-signature"
# Reasons why no call was made.
FORBIDDEN, NO_SECRET, NO_URL, UNREADABLE = "url-forbidden", "no-secret", "no-url", "unreadable"
BUSY, CIRCUIT_OPEN = "busy", "circuit-open"
COMMIT, ROLLBACK, UNKNOWN, MALFORMED = "commit", "rollback", "unknown", "malformed"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one check. *is_alive*: whether the host works, as far as the result shows."""

    text: str
    is_alive: bool = True

    @property
    def is_verdict(self) -> bool:
        """Whether the answer ends the transaction."""
        return self.text in {COMMIT, ROLLBACK}


def read_answer(status: int, body: bytes) -> Answer:
    """Interpret an HTTP answer."""
    if status != 200:
        # Redirects are not followed: their targets are not checked.
        return Answer(f"http-{status}", is_alive=status < 500 and status != 429)
    if len(body) > ANSWER_SIZE_MAX_BYTES:
        return Answer(TOO_LARGE)
    state = _state_of(body)
    return Answer(state if state in {COMMIT, ROLLBACK, UNKNOWN} else MALFORMED)


def no_answer(text: str) -> Answer:
    """The result of a call without an answer, which counts as a failure of the host."""
    return Answer(text, is_alive=False)


def _state_of(body: bytes) -> str:
    """Return the state in *body*; "" when it is not a JSON object with a state."""
    try:
        # Not msgspec or orjson: of two equal names, both silently take the last.
        document = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return ""
    state = document.get("state") if isinstance(document, dict) else None
    return state if isinstance(state, str) else ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
