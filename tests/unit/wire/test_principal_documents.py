"""Principals as they are replicated: joins whose order does not matter, and changes that never bring back what was taken away."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tern_wire.errors import InvalidField, LimitReached
from tern_wire.limits import KEYS_LIVE_MAX, REVOKED_KEPT_MAX
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.principals.client_keys import ClientKey
from tern_wire.principals.documents import (
    QUOTA_MAX,
    PrincipalDocument,
    addition,
    deletion,
    joined,
    read_principal_document,
    revocation,
    settings_change,
)
from tern_wire.principals.principals import read_grant

PUB = read_grant("allow", ["PUB"], "topic", "orders")
NOBODY = PrincipalDocument(name="shop")
# Written by the build before keys could have salts.
BEFORE_SALTS = bytes.fromhex(
    "84a46e616d65a473686f70a776657273696f6e01a66772616e74739194a5616c6c6f77a5746f706963a66f726465727391a3505542a46b"
    "6579739299b061616161616161616161616161616161c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e"
    "1fc40000000591aa31302e302e302e302f38a474696c6c0299b062626262626262626262626262626262c400c420202122232425262728"
    "292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f00090090a003"
)
# Few, so that they meet.
VERSIONS = st.integers(0, 6)
KIDS = st.sampled_from(["a" * 16, "b" * 16, "c" * 16])
KEYS = st.builds(
    ClientKey, kid=KIDS, digest=st.just(bytes(32)), version=VERSIONS, created_ms=st.integers(0, 1)
) | st.builds(ClientKey, kid=KIDS, salt=st.sampled_from([bytes(32), bytes(range(32))]), version=VERSIONS)
DOCUMENTS = st.builds(
    PrincipalDocument,
    name=st.just("shop"),
    version=VERSIONS,
    description=st.sampled_from(["", "x", "y"]),
    grants=st.sampled_from([(), (PUB,)]),
    requests_per_s=st.integers(0, 1),
    deleted=VERSIONS,
    deleted_ms=st.integers(0, 2),
    floor=VERSIONS,
    keys=st.lists(KEYS, max_size=3).map(tuple),
    revoked=st.lists(st.tuples(KIDS, VERSIONS), max_size=3).map(tuple),
)


def key(kid: str, **fields: Any) -> ClientKey:
    """A bearer key called *kid* sixteen times."""
    return ClientKey(**{"kid": kid * 16, "digest": bytes(32), **fields})


def after(*changes: PrincipalDocument) -> PrincipalDocument:
    """All of them joined."""
    found = changes[0]
    for change in changes:
        found = joined(found, change)
    return found


def kids(document: PrincipalDocument) -> list[str]:
    """First letters of the kids of its keys."""
    return [each.kid[0] for each in document.keys]


@settings(max_examples=500, deadline=None)
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_it_does_not_matter_in_which_order_and_how_often_documents_are_joined(
    one: PrincipalDocument, two: PrincipalDocument, three: PrincipalDocument
) -> None:
    """Commutative, associative, idempotent; and a normal form that travels."""
    assert joined(one, two) == joined(two, one)
    assert joined(joined(one, two), three) == joined(one, joined(two, three))
    both = joined(one, two)
    assert joined(both, both) == both
    assert joined(both, one) == both
    assert read_principal_document(both.packed()) == both


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_what_was_revoked_or_deleted_stays_so_whatever_is_joined(
    one: PrincipalDocument, two: PrincipalDocument
) -> None:
    """By whoever had not heard of it."""
    normal = joined(one, one)
    gone = joined(normal, revocation("shop", normal.keys))
    assert not set(joined(gone, joined(two, normal)).keys) & set(normal.keys)
    dead = joined(joined(two, normal), deletion(joined(two, normal), 5))
    assert joined(dead, joined(normal, two)).principal() is None
    again = joined(dead, settings_change(dead))
    assert joined(again, joined(normal, two)).keys == ()


def test_settings_are_those_of_the_last_writer_and_what_is_not_named_stays() -> None:
    """A change is made from what is known; keys are not touched by it."""
    made = after(NOBODY, settings_change(NOBODY, grants=[PUB], requests_per_s=5))
    assert (made.version, made.is_there) == (1, True)
    keyed = after(made, addition(made, key("a"), 0))
    changed = after(keyed, settings_change(keyed, description="x"))
    assert (changed.version, changed.grants, changed.requests_per_s, kids(changed)) == (3, (PUB,), 5, ["a"])
    principal = changed.principal()
    assert principal is not None
    assert (principal.name, principal.grants, principal.requests_per_s) == ("shop", (PUB,), 5)


def test_a_principal_that_is_deleted_and_made_again_has_nothing_of_the_old_one() -> None:
    """No grants, no quotas, no keys: not even one that another broker group still had."""
    old = after(NOBODY, settings_change(NOBODY, grants=[PUB], bytes_per_s=9))
    old = after(old, addition(old, key("a"), 0))
    # Changed and added somewhere else, one after the other, while this was deleted here.
    late = after(old, settings_change(old, description="x"))
    late = after(late, addition(late, key("b"), 0))
    dead = after(old, deletion(old, 77))
    assert (dead.principal(), dead.keys, dead.deleted_ms) == (None, (), 77)
    new = after(dead, settings_change(dead))
    assert after(new, old, late).principal() == replace(new, keys=()).principal()
    assert (new.grants, new.bytes_per_s) == ((), 0)


def test_a_principal_has_two_live_keys_and_expired_ones_make_room() -> None:
    """Rotation: a second key, the first revoked, a third."""
    one = after(NOBODY, settings_change(NOBODY))
    one = after(one, addition(one, key("a", expires_ms=10), 0))
    one = after(one, addition(one, key("b"), 0))
    with pytest.raises(LimitReached) as refused:
        addition(one, key("c"), 9)
    assert refused.value.fields["limit"] == KEYS_LIVE_MAX
    assert kids(after(one, addition(one, key("c"), 10))) == ["b", "c"]
    assert kids(after(one, revocation("shop", one.keys[:1]))) == ["b"]
    # A key that comes back under its old name is not the old one's.
    gone = after(one, revocation("shop", one.keys))
    assert after(gone, one).keys == ()


def test_revoked_keys_are_forgotten_once_all_that_are_older_are_revoked() -> None:
    """A thousand rotations leave few names behind, and no key that was revoked comes back."""
    one = after(NOBODY, settings_change(NOBODY))
    every: list[ClientKey] = []
    for number in range(1_000):
        change = addition(one, ClientKey(kid=f"k{number:015}", digest=bytes(32)), 0)
        every += change.keys
        one = after(one, change)
        if len(one.keys) == KEYS_LIVE_MAX:
            one = after(one, revocation("shop", one.keys[:1]))
    assert len(one.revoked) <= REVOKED_KEPT_MAX
    assert [each.kid for each in one.keys] == ["k000000000000999"]
    assert after(one, replace(one, keys=tuple(every), revoked=(), floor=0)).keys == one.keys


def test_a_key_that_is_never_rotated_beside_one_that_is_must_be_rotated_too() -> None:
    """Otherwise the names of the other's predecessors could never be forgotten; the error says which one it is."""
    one = after(NOBODY, settings_change(NOBODY))
    one = after(one, addition(one, key("a"), 0))
    with pytest.raises(LimitReached) as refused:
        for number in range(1_000):
            one = after(one, addition(one, ClientKey(kid=f"k{number:015}", digest=bytes(32)), 0))
            one = after(one, revocation("shop", one.keys[1:]))
    assert "a" * 16 in refused.value.detail
    assert len(one.revoked) == REVOKED_KEPT_MAX
    one = after(one, revocation("shop", one.keys))
    assert kids(after(one, addition(one, key("z"), 0))) == ["z"]


def test_what_was_written_before_there_were_salts_is_read_and_written_again_to_the_byte() -> None:
    """In log entries, saved states and what proxies are told: a bearer and an Ed25519 key of an earlier build."""
    document = read_principal_document(decode_msgpack(BEFORE_SALTS))
    assert [(each.kind, each.salt) for each in document.keys] == [("bearer", b""), ("ed25519", b"")]
    assert document.keys[0].digest == bytes(range(32))
    assert encode_msgpack(document.packed()) == BEFORE_SALTS


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {},
        {"name": "root"},
        {"name": "shop", "version": -1},
        {"name": "shop", "version": True},
        {"name": "shop", "deleted": 1 << 60},
        {"name": "shop", "requests_per_s": QUOTA_MAX + 1},
        {"name": "shop", "description": 7},
        {"name": "shop", "grants": {}},
        {"name": "shop", "grants": [["allow", "topic", "x"]]},
        {"name": "shop", "grants": [["allow", "topic", "x", ["TXN"]]]},
        {"name": "shop", "keys": "x"},
        {"name": "shop", "keys": [[]]},
        {"name": "shop", "keys": [None] * 1_000},
        {"name": "shop", "revoked": [["short", 1]]},
        {"name": "shop", "revoked": [["a" * 16]]},
        {"name": "shop", "revoked": [["a" * 16, 1.5]]},
    ],
)
def test_what_is_no_document_is_refused(wrong: Any) -> None:
    """An error of ours, whatever a peer sends."""
    with pytest.raises(InvalidField):
        read_principal_document(wrong)
