"""The signature of an answer: computed by hand here, and different for every other secret, nonce, transaction or body."""

import base64
import hashlib
import hmac

import pytest

from tern_wire.checks.answers import answer_signature, is_nonce, is_signed

SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
NONCE, ID, BODY = "0123456789abcdef" * 2, "AQ-1", b'{"state":"commit"}'


def test_it_is_an_hmac_of_label_nonce_id_and_body() -> None:
    """As anybody without this library would compute it."""
    key = base64.b64decode("C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
    text = b"ternmq-check-answer-v1\n" + NONCE.encode() + b"\n" + ID.encode() + b"\n" + BODY
    expected = "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    assert answer_signature(SECRET, NONCE, ID, BODY) == expected
    assert is_signed(expected, SECRET, NONCE, ID, BODY)


@pytest.mark.parametrize(
    ("secret", "nonce", "transaction_id", "body"),
    [
        ("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oE", NONCE, ID, BODY),
        (SECRET, NONCE[:-1] + "0", ID, BODY),
        (SECRET, NONCE, "AQ-2", BODY),
        (SECRET, NONCE, ID, b'{"state":"rollback"}'),
        (SECRET, NONCE, ID, BODY + b" "),
        (SECRET, NONCE, ID + "\n", BODY[1:]),
    ],
)
def test_nothing_else_has_it(secret: str, nonce: str, transaction_id: str, body: bytes) -> None:
    """Nor does a header that is empty, of another version, or no text that there can be."""
    assert not is_signed(answer_signature(SECRET, NONCE, ID, BODY), secret, nonce, transaction_id, body)
    for header in ("", "v1,", "v2," + answer_signature(SECRET, NONCE, ID, BODY)[3:], "\xff", "\N{SNOWMAN}"):
        assert not is_signed(header, secret, nonce, transaction_id, body)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_a"])
def test_there_is_none_without_a_secret(secret: str) -> None:
    """An empty key would sign for everybody."""
    with pytest.raises(ValueError, match="check secret"):
        answer_signature(secret, NONCE, ID, BODY)


def test_a_nonce_has_one_form() -> None:
    """What a checker writes, and no line feed behind it."""
    assert is_nonce(NONCE)
    assert not any(map(is_nonce, ("", NONCE + "\n", NONCE.upper(), NONCE + "00", "x" * 32)))
