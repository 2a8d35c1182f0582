"""Secrets of HMAC keys: what they are computed from, and that no two keys have one."""

import hashlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_wire.errors import ClusterKeyMissing
from tern_wire.principals.principals import check_principal
from tern_wire.principals.signing_secrets import SigningSecrets

CLUSTER_KEY, KID, SALT = bytes(range(32)), "Zk3vQ8mT1xWc5RbN", bytes(range(32, 64))
KIDS = st.text("abcXYZ019", min_size=16, max_size=16)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", fullmatch=True)
SALTS = st.binary(min_size=32, max_size=32)


def rfc2104(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256 as the RFC writes it, of a key that is no longer than a block."""
    padded = key.ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in padded) + inner).digest()


def test_a_secret_is_the_one_that_is_written_down() -> None:
    """By hand, and one known answer: whoever changes it takes every such key away from its owner."""
    by_hand = rfc2104(rfc2104(CLUSTER_KEY, b"ternmq hmac-sha256 signing keys 1"), KID.encode() + b"\0shop\0" + SALT)
    assert SigningSecrets(CLUSTER_KEY).of("shop", KID, SALT) == by_hand
    assert by_hand.hex() == "3d7897011fe526f381d8e4912468a8ef1f6df4de1e12ef209f39e9540bd320c3"


@settings(deadline=None)
@given(st.tuples(NAMES, KIDS, SALTS), st.tuples(NAMES, KIDS, SALTS))
def test_two_keys_never_have_one_secret(one: tuple[str, str, bytes], other: tuple[str, str, bytes]) -> None:
    """Another name, kid or salt is another secret, and another cluster key too."""
    secrets = SigningSecrets(CLUSTER_KEY)
    check_principal("x" + one[0][1:] if one[0] in {"root", "-"} else one[0])
    assert (secrets.of(*one) == secrets.of(*other)) == (one == other)
    assert SigningSecrets(bytes(32)).of(*one) != secrets.of(*one)


def test_the_parts_of_a_key_cannot_be_shifted_into_each_other() -> None:
    """What is one byte longer here and shorter there would be the same bytes without an end between them."""
    secrets = SigningSecrets(CLUSTER_KEY)
    assert secrets.of("ab", KID, SALT) != secrets.of("a", KID, b"b" + SALT[:-1])
    assert secrets.of("a", KID, SALT) != secrets.of(KID[-1] + "a", "x" + KID[:-1], SALT)
    wrong: tuple[Any, ...] = (
        *(("", KID, SALT), ("a\0b", KID, SALT), ("a", KID[:-1], SALT), ("a", KID + "x", SALT)),
        *(("a", KID[:-1] + "\0", SALT), ("a", KID, SALT[:-1]), ("a", KID, SALT + b"x"), ("a", KID, b"")),
    )
    for parts in wrong:
        with pytest.raises(ValueError):
            secrets.of(*parts)


@pytest.mark.parametrize("cluster_key", [b"", bytes(31)])
def test_without_a_cluster_key_there_are_no_secrets(cluster_key: bytes) -> None:
    """One that is computed from nothing would be everybody's."""
    secrets = SigningSecrets(cluster_key)
    assert not secrets.is_there
    with pytest.raises(ClusterKeyMissing, match="--cluster-key-file"):
        secrets.of("shop", KID, SALT)


def test_nothing_of_the_cluster_key_is_shown() -> None:
    """Not by whoever prints the object."""
    assert CLUSTER_KEY.hex() not in repr(SigningSecrets(CLUSTER_KEY))
    assert not hasattr(SigningSecrets(CLUSTER_KEY), "__dict__")
