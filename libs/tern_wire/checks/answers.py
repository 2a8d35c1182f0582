"""Signature of an answer to a transaction callback.

It proves that the producer group gave this answer to this question. Pure.

    question   MQ-Check-Nonce: 32 hexadecimal digits, new for each call
               (beside the signature of Standard Webhooks)
    answer     MQ-Check-Signature: v1,BASE64(HMAC-SHA256(KEY,
               "ternmq-check-answer-v1" LF NONCE LF TRANSACTION ID LF BODY))

KEY is the producer group's `check_secret` without `whsec_`, decoded from base64. The first line
separates such a MAC from that of a question, whose text begins with a transaction's id. Nonce and
id contain no line feed, so no other three texts have the same bytes.

Law: without the secret an answer can be neither made nor changed nor replayed for another time,
transaction or question. Reference: RFC 2104; Standard Webhooks, symmetric secrets.
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
    """Return whether *text* has the form of a checker's nonce. Other questions need no answer."""
    return _NONCE.fullmatch(text) is not None


def answer_signature(secret: str, nonce: str, transaction_id: str, body: bytes) -> str:
    """Return the signature of an answer with *body*; raise ValueError unless *secret* is a check
    secret.
    """
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX))
    except Base64Error as error:
        raise ValueError("a check secret is whsec_ and base64") from error
    if not key:
        raise ValueError("a check secret is whsec_ and base64, and not empty")
    text = b"\n".join((_LABEL, nonce.encode(), transaction_id.encode(), body))
    return _VERSION + b64encode(hmac.digest(key, text, "sha256")).decode()


def is_signed(header: str, secret: str, nonce: str, transaction_id: str, body: bytes) -> bool:
    """Return whether *header* is the signature of this answer, in constant time."""
    expected = answer_signature(secret, nonce, transaction_id, body)
    return hmac.compare_digest(header.encode("latin-1", "replace"), expected.encode())
