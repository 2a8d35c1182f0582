"""Keys of clients: their texts, what is kept of them, and when and from where each is good."""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_wire.errors import InvalidField
from tern_wire.limits import KEY_NETWORKS_MAX
from tern_wire.principals.client_keys import (
    BEARER,
    ED25519,
    ROOT_KID,
    ClientKey,
    bearer_text,
    decoded,
    digest_of,
    encoded_public_key,
    is_bearer_of,
    kid_of,
    read_client_key,
    read_key_text,
    read_networks,
    root_key_text,
    signing_text,
)

KID, SECRET = "Zk3vQ8mT1xWc5RbN", bytes(range(32))
TEXT = bearer_text(KID, SECRET)


def key(**fields: Any) -> ClientKey:
    """The bearer key TEXT with *fields*."""
    return ClientKey(**{"kid": KID, "digest": digest_of(TEXT), "version": 1, **fields})


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32))
def test_a_key_is_read_as_it_was_written(secret: bytes) -> None:
    """Both kinds, 64 characters each; only the kid of a bearer key is taken from a request."""
    assert read_key_text(bearer_text(KID, secret)) == (BEARER, KID, secret)
    assert read_key_text(signing_text(KID, secret)) == (ED25519, KID, secret)
    assert kid_of(bearer_text(KID, secret)) == KID
    assert kid_of(signing_text(KID, secret)) == ""
    assert decoded(encoded_public_key(secret)) == secret


@pytest.mark.parametrize(
    "text",
    [
        "",
        TEXT[:-1],
        TEXT + "A",
        TEXT + "\n",
        " " + TEXT,
        TEXT.replace("mqk_", "mqx_"),
        TEXT.replace("mqk_", "mqh_"),  # an HMAC key of an earlier build
        TEXT.replace(KID, KID[:-1] + "_"),
        TEXT.replace(KID, KID + "1"),
        TEXT[:-1] + "é",
        TEXT[:-1] + "9",  # the same 32 bytes, in another text: the last two bits are not zero
    ],
)
def test_what_is_written_otherwise_is_no_key(text: str) -> None:
    """Not one character more, less or different; and each key has one text."""
    assert read_key_text(text) is None


def test_only_the_hash_of_the_whole_text_is_kept_and_only_the_text_fits() -> None:
    """Any other text, and any text of a key that is not known or signs, is none; whatever it holds, there is an answer."""
    assert digest_of(TEXT) == hashlib.sha256(TEXT.encode()).digest()
    assert is_bearer_of(key(), TEXT)
    assert not is_bearer_of(key(), bearer_text(KID, bytes(32)))
    assert not is_bearer_of(None, TEXT)
    assert not is_bearer_of(ClientKey(kid=KID, public_key=SECRET), TEXT)
    assert not is_bearer_of(ClientKey(kid=KID, salt=SECRET), TEXT)
    assert not is_bearer_of(key(), "\udc80é")


def test_the_root_key_follows_from_the_cluster_key() -> None:
    """As the contract of the cluster's files says, so that every proxy knows it."""
    mac = hmac.new(bytes(32), b"ternmq root key 1", "sha256").digest()
    assert root_key_text(bytes(32)) == f"mqk_root000000000000_{urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert kid_of(root_key_text(SECRET)) == ROOT_KID
    assert root_key_text(bytes(32)) != root_key_text(SECRET)


@pytest.mark.parametrize(
    ("not_before_ms", "expires_ms", "now_ms", "is_good"),
    [
        (0, 0, 5, True),
        (5, 0, 4, False),
        (5, 0, 5, True),
        (0, 5, 4, True),
        (0, 5, 5, False),
        (3, 5, 4, True),
    ],
)
def test_a_key_is_good_from_its_begin_until_before_its_end(
    not_before_ms: int, expires_ms: int, now_ms: int, is_good: bool
) -> None:
    """In milliseconds, the end not included; 0 is none."""
    assert key(not_before_ms=not_before_ms, expires_ms=expires_ms).is_good_at(now_ms) is is_good


@pytest.mark.parametrize(
    ("networks", "address", "is_good"),
    [
        ([], "203.0.113.7", True),
        ([], "no address", True),
        (["10.0.0.0/8"], "10.255.0.1", True),
        (["10.0.0.0/8"], "11.0.0.1", False),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["10.0.0.0/8"], "::10.1.2.3", False),
        (["2001:db8::/32", "10.0.0.1"], "2001:db8::1%eth0", True),
        (["2001:db8::/32", "10.0.0.1"], "10.0.0.1", True),
        (["0.0.0.0/0"], "", False),
        (["0.0.0.0/0"], "no address", False),
    ],
)
def test_networks_narrow_where_a_key_is_good(networks: list[str], address: str, is_good: bool) -> None:
    """IPv4 in IPv6 is IPv4; what is no address is in no network."""
    assert key(networks=read_networks(networks)).is_good_from(address) is is_good


@pytest.mark.parametrize(
    "texts",
    [
        "10.0.0.0/8",
        ["10.0.0.1/8"],
        ["10.0.0.0/33"],
        ["example.org"],
        [7],
        ["fe80::1%eth0"],
        ["10.0.0.1"] * (KEY_NETWORKS_MAX + 1),
    ],
)
def test_what_is_no_list_of_networks_is_refused(texts: Any) -> None:
    """Host bits, names, zones, and more than a key may have."""
    with pytest.raises(InvalidField):
        read_networks(texts)


def test_a_key_travels_and_is_checked_where_it_arrives() -> None:
    """Packed and read it is the same; each member that is not as it should be is refused."""
    packed = key(networks=("10.0.0.0/8",), expires_ms=9, description="x").packed()
    assert read_client_key(packed).packed() == packed
    for at, wrong in (
        (0, "short"),
        (0, ROOT_KID),
        (1, b"x"),
        (1, "text"),
        (2, SECRET),
        (3, -1),
        (4, True),
        (5, 1 << 60),
        (6, ["x"]),
        (7, "a\nb"),
        (7, "x" * 129),
        (8, 1.5),
    ):
        with pytest.raises(InvalidField):
            read_client_key([*packed[:at], wrong, *packed[at + 1 :]])
    malformed: tuple[Any, ...] = (packed[:-1], {}, None, "mqk")
    for other in malformed:
        with pytest.raises(InvalidField):
            read_client_key(other)


@pytest.mark.parametrize("fields", [{"digest": SECRET}, {"public_key": SECRET}, {"salt": SECRET}])
def test_a_key_of_each_kind_travels_in_one_form(fields: dict[str, Any]) -> None:
    """A salt is a tenth member; the other kinds have nine. No key is of two kinds, or of none. HMAC keys of earlier
    builds are read and written as these have done it, since replicas compare the bytes, and are not accepted."""
    packed = ClientKey(kid=KID, version=1, **fields).packed()
    assert len(packed) == (10 if "salt" in fields else 9)
    assert ClientKey(kid=KID, version=1, **fields).is_accepted == ("salt" not in fields)
    assert read_client_key(packed) == ClientKey(kid=KID, version=1, **fields)
    nine = packed[:9]
    wrong: list[list[Any]] = [[*nine, b""], [*nine, None], [*nine, SECRET[:-1]], [*nine, SECRET, 0], [*nine, "x" * 32]]
    if "salt" in fields:
        wrong += [nine, *([*nine[:at], SECRET, *nine[at + 1 :], SECRET] for at in (1, 2))]
    else:
        wrong += [[*nine, SECRET]]
    for other in wrong:
        with pytest.raises(InvalidField):
            read_client_key(other)
