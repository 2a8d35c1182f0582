"""The signature of an answer to a callback about a transaction: that the producer group itself gave it, to this question. Pure.

    question   MQ-Check-Nonce: 32 hexadecimal digits, new for each call       (and what Standard Webhooks sign it with)
    answer     MQ-Check-Signature: v1,BASE64(HMAC-SHA256(KEY, "ternmq-check-answer-v1" LF NONCE LF TRANSACTION ID LF BODY))

KEY is the producer group's `check_secret` without `whsec_`, from base64. The first line keeps such a MAC from ever being that of a question, which
begins with a transaction's id. Nonce and id have no line feed, so no other three texts have the same bytes.

Law: whoever does not know the secret can neither make an answer, nor change one, nor give one of another time, transaction or question.
Reference: RFC 2104; Standard Webhooks, symmetric secrets.
"""

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from tern_wire.settings.producer_settings import SECRET_PREFIX

NONCE_SIZE_BYTES = 16
_LABEL = b"ternmq-check-answer-v1"
_VERSION = "v1,"
_NONCE = re.compile(r"[0-9a-f]{32}")


def is_nonce(text: str) -> bool:
    """Whether *text* is as a checker writes them: anything else is not worth an answer."""
    return _NONCE.fullmatch(text) is not None


def answer_signature(secret: str, nonce: str, transaction_id: str, body: bytes) -> str:
    """What an answer with *body* carries; *secret* as the producer group has it. ValueError when that is none."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX))
    except Base64Error as error:
        raise ValueError("a check secret is whsec_ and base64") from error
    if not key:
        raise ValueError("a check secret is whsec_ and base64, and not empty")
    text = b"\n".join((_LABEL, nonce.encode(), transaction_id.encode(), body))
    return _VERSION + b64encode(hmac.digest(key, text, "sha256")).decode()


def is_signed(header: str, secret: str, nonce: str, transaction_id: str, body: bytes) -> bool:
    """Whether *header* is the signature of this answer. Takes the same time wherever it differs."""
    expected = answer_signature(secret, nonce, transaction_id, body)
    return hmac.compare_digest(header.encode("latin-1", "replace"), expected.encode())
