"""What a producer's answer means. Law: only one answer commits and one rolls back; whatever else comes, however odd, is unknown.

    200 {"state": "commit" | "rollback" | "unknown"}      a JSON object in UTF-8 of at most 64 KiB, each of its names once,
                                                          with the MAC of this question and this answer (tern_wire/checks/answers.py)

Texts of at most 32 characters go into the history of a transaction's checks: commit, rollback, unknown, malformed, http-503, or why there was no
answer at all.
"""

import json
from dataclasses import dataclass
from typing import Any

ANSWER_SIZE_MAX_BYTES = 64 * 1024

# Why there was no answer, and whether it was the host that failed.
TIMEOUT, REFUSED, UNREACHABLE, BROKEN, TLS, NO_ADDRESS, NO_HTTP, TOO_LARGE = (
    *("timeout", "refused", "unreachable", "broken-off", "tls-failed", "no-address", "no-http", "too-large"),
)
# An answer that anybody on the way could have given: without a signature, with one that is not this producer group's for this question.
UNSIGNED, WRONG_SIGNATURE = "unsigned", "wrong-signature"
# Why nobody was called.
FORBIDDEN, NO_SECRET, NO_URL, UNREADABLE = "url-forbidden", "no-secret", "no-url", "unreadable"
BUSY, CIRCUIT_OPEN = "busy", "circuit-open"
COMMIT, ROLLBACK, UNKNOWN, MALFORMED = "commit", "rollback", "unknown", "malformed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one check. *is_alive*: the host does its work, as far as this tells."""

    text: str
    is_alive: bool = True

    @property
    def is_verdict(self) -> bool:
        """Whether it ends the transaction."""
        return self.text in {COMMIT, ROLLBACK}


def read_answer(status: int, body: bytes) -> Answer:
    """What an HTTP answer means."""
    if status != 200:
        # Redirects are not followed: where they lead was not checked.
        return Answer(f"http-{status}", is_alive=status < 500 and status != 429)
    if len(body) > ANSWER_SIZE_MAX_BYTES:
        return Answer(TOO_LARGE)
    state = _state_of(body)
    return Answer(state if state in {COMMIT, ROLLBACK, UNKNOWN} else MALFORMED)


def no_answer(text: str) -> Answer:
    """There was none, because of the host."""
    return Answer(text, is_alive=False)


def _state_of(body: bytes) -> str:
    """The state that *body* names; "" when it is not a JSON object that names one."""
    try:
        # Not by msgspec or orjson: of a name that stands twice both take the last without a word.
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
