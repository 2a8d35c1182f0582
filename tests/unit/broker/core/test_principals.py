"""Principals as a part of the state machine: changes joined, refused where they are too much, saved, and told in order."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from tern_broker.core import StateMachine, saving
from tern_wire import limits
from tern_wire.errors import TernError
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.principals.client_keys import ClientKey
from tern_wire.principals.documents import PrincipalDocument, addition, deletion, joined, revocation, settings_change
from tern_wire.principals.principals import read_grant

GRANT = read_grant("allow", ["PUB"], "topic", "orders")


class Clerk:
    """A state machine; each call is one entry."""

    def __init__(self) -> None:
        self.state = StateMachine()
        self.now_ms = 1_700_000_000_000

    def apply(self, request: Any) -> Any:
        """The verdict of one PUT_PRINCIPAL."""
        body = b"".join(entry_parts(self.now_ms, [(CommandKind.PUT_PRINCIPAL, [encode_msgpack(request)])]))
        (verdict,) = self.state.apply(memoryview(body), 0, 1).verdicts
        return verdict

    def put(self, change: PrincipalDocument, base: int = -1, *, is_repair: bool = False) -> Any:
        """As a proxy says it."""
        return self.apply({"document": change.packed(), "base": base, "is_repair": is_repair})

    def get(self, name: str = "shop") -> PrincipalDocument:
        """What is known of *name*."""
        return self.state.principals.get(name) or PrincipalDocument(name=name)

    def names(self, after: int = 0, limit: int = 100) -> list[str]:
        """Those that changed after a revision."""
        return self.named(self.state.principals.changed_after(after, limit))

    def named(self, page: Any) -> list[str]:
        """The names on a page."""
        return [decode_msgpack(document)["name"] for _, document in page["principals"]]


def code(verdict: Any) -> str:
    """The code of an error; "" of a verdict that is none."""
    return verdict.code if isinstance(verdict, TernError) else ""


def told(clerk: Clerk) -> bytes:
    """What proxies are told of shop, and saved states have."""
    ((_, packed),) = clerk.state.principals.changed_after(0, 1)["principals"]
    return bytes(packed)


def make(name: str) -> PrincipalDocument:
    """The change that creates *name*."""
    return settings_change(PrincipalDocument(name=name), grants=[GRANT])


def key(kid: str) -> ClientKey:
    """A bearer key called *kid* sixteen times."""
    return ClientKey(kid=kid * 16, digest=bytes(32))


def test_changes_are_joined_and_said_again_change_nothing() -> None:
    """A principal, a key, its revocation; a repeat is answered as done, and costs no revision."""
    clerk = Clerk()
    assert clerk.put(make("shop"), 0)["changed"] is True
    added = addition(clerk.get(), key("a"), 0)
    assert clerk.put(added)["revision"] == 2
    assert [each.kid for each in clerk.get().keys] == ["a" * 16]
    gone = revocation("shop", clerk.get().keys)
    assert clerk.put(gone)["changed"] is True
    for again in (gone, added, make("shop")):
        assert clerk.put(again, 0) == {"changed": False, "revision": 3, "version": 1}
    assert clerk.get().keys == ()


def test_a_change_of_what_somebody_else_has_changed_is_refused() -> None:
    """Unless it does not care; and one that was heard of elsewhere is merged whatever the version."""
    clerk = Clerk()
    clerk.put(make("shop"), 0)
    first, second = (settings_change(clerk.get(), description=text) for text in ("x", "y"))
    assert clerk.put(first, 1)["changed"] is True
    late = clerk.put(second, 1)
    assert (code(late), late.fields["actual"], late.fields["expected"]) == ("principal-changed", 2, 1)
    assert code(clerk.put(make("shop"), 0)) == ""
    assert clerk.get().description == "x"
    assert clerk.put(settings_change(clerk.get(), description="z"), 2)["version"] == 3
    assert clerk.put(replace(make("shop"), version=9), -1, is_repair=True)["version"] == 9


def test_a_proxy_asks_for_what_changed_since_it_asked_last() -> None:
    """In the order of changes, page by page; one that changes again comes again, at the end."""
    clerk = Clerk()
    for name in "abcd":
        clerk.put(make(name))
    assert clerk.names() == ["a", "b", "c", "d"]
    page = clerk.state.principals.changed_after(1, 2)
    assert ([number for number, _ in page["principals"]], page["more"], page["revision"]) == ([2, 3], True, 4)
    clerk.put(settings_change(clerk.get("b"), description="x"))
    assert clerk.names(4) == ["b"]
    assert clerk.names() == ["a", "c", "d", "b"]
    assert clerk.state.principals.changed_after(5, 9) == {"principals": [], "revision": 5, "more": False}
    # It knows more than there is: the group was made anew, so everything is news.
    assert clerk.names(77) == ["a", "c", "d", "b"]


def test_a_page_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one, and no more than fit."""
    monkeypatch.setattr("tern_broker.core.principals.PRINCIPALS_PAGE_SIZE_MAX_BYTES", 120)
    clerk = Clerk()
    for name in "abcd":
        clerk.put(make(name))
    sizes = [len(encode_msgpack(clerk.get(name).packed())) for name in "ab"]
    assert sum(sizes) <= 120 < sum(sizes) + sizes[0]
    assert clerk.names() == ["a", "b"]
    assert clerk.names(2) == ["c", "d"]


def test_a_saved_state_has_them_all_in_their_order() -> None:
    """Revisions, deleted ones, keys, revoked ones; what comes next gets the next revision."""
    clerk = Clerk()
    for name in "abc":
        clerk.put(make(name))
    clerk.put(addition(clerk.get("a"), key("k"), 0))
    clerk.put(revocation("a", clerk.get("a").keys))
    clerk.put(deletion(clerk.get("b"), 5))
    before = clerk.state.principals
    clerk.state = saving.load(b"".join(saving.encode(saving.take(clerk.state))))
    after = clerk.state.principals
    assert after.changed_after(0, 9) == before.changed_after(0, 9)
    assert clerk.names() == ["c", "a", "b"]
    assert clerk.put(make("d"))["revision"] == 7
    assert clerk.named(after.pack())[-1] == "d"


def test_an_hmac_key_of_an_earlier_build_is_applied_saved_and_revoked_as_that_build_does_it() -> None:
    """Proxies do not make or accept it any more; the state machine treats it as ever, so replicas of both builds agree."""
    clerk = Clerk()
    clerk.put(make("shop"))
    clerk.put(addition(clerk.get(), key("a"), 0))
    assert {len(each) for each in decode_msgpack(told(clerk))["keys"]} == {9}
    clerk.put(addition(clerk.get(), ClientKey(kid="h" * 16, salt=bytes(range(32))), 0))
    assert {len(each) for each in decode_msgpack(told(clerk))["keys"]} == {9, 10}
    before, whole = clerk.get(), told(clerk)
    clerk.state = saving.load(b"".join(saving.encode(saving.take(clerk.state))))
    assert (clerk.get(), told(clerk)) == (before, whole)
    assert [each.kind for each in clerk.get().keys] == ["bearer", "hmac-sha256"]
    # The other replica, that has heard the same.
    other = Clerk()
    other.put(before)
    assert other.get() == before
    assert clerk.put(revocation("shop", before.keys[1:]))["changed"] is True
    assert [each.kind for each in clerk.get().keys] == ["bearer"]


def test_a_state_that_a_release_without_principals_has_saved_is_read() -> None:
    """Format 8: everything else is there, and nobody is known."""
    clerk = Clerk()
    clerk.put(make("shop"))
    parts = saving.encode(saving.take(clerk.state))
    facts = decode_msgpack(parts[1])
    facts["format"] = 8
    del facts["parts"]["principals"]
    packed = encode_msgpack(facts)
    old = b"".join([struct.pack("<I", len(packed)), packed, *parts[2:]])
    assert saving.is_known(old)
    state = saving.load(old)
    assert (len(state.principals), state.now_ms, state.digest) == (0, clerk.now_ms, clerk.state.digest)
    facts["format"] = 7
    packed = encode_msgpack(facts)
    assert not saving.is_known(b"".join([struct.pack("<I", len(packed)), packed, *parts[2:]]))


def test_nodes_that_have_joined_differently_have_different_digests() -> None:
    """Two documents of one size and version; the digest tells them apart, so a node that went wrong ends."""
    one, other = Clerk(), Clerk()
    one.put(settings_change(PrincipalDocument(name="shop"), description="x"))
    other.put(settings_change(PrincipalDocument(name="shop"), description="y"))
    assert one.state.digest != other.state.digest


def test_a_third_live_key_is_refused_unless_it_was_given_elsewhere() -> None:
    """A race of two proxies; what another broker group has already is taken, up to KEYS_KEPT_MAX."""
    clerk = Clerk()
    clerk.put(make("shop"))
    known = clerk.get()
    for kid in "ab":
        assert clerk.put(addition(known, key(kid), 0))["changed"] is True
    third = addition(known, key("c"), 0)
    assert code(clerk.put(third)) == "limit-reached"
    assert clerk.put(third, is_repair=True)["changed"] is True
    many = [addition(known, key(kid), 0) for kid in "defghij"]
    verdicts = [code(clerk.put(change, is_repair=True)) for change in many]
    assert verdicts == [""] * (limits.KEYS_KEPT_MAX - 3) + ["limit-reached"] * 2
    # More than two: it can be revoked, and nothing else is in the way.
    assert clerk.put(revocation("shop", clerk.get().keys[:1]))["changed"] is True
    assert clerk.put(settings_change(clerk.get(), description="x"))["changed"] is True


def test_there_is_room_for_so_many_and_deleted_ones_make_room_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted principal counts until it is old; who revokes and deletes needs no room."""
    monkeypatch.setattr("tern_broker.core.principals.PRINCIPALS_MAX", 3)
    clerk = Clerk()
    for name in "abc":
        clerk.put(make(name))
    assert code(clerk.put(make("d"))) == "limit-reached"
    clerk.put(deletion(clerk.get("b"), clerk.now_ms))
    assert code(clerk.put(make("d"))) == "limit-reached"
    clerk.now_ms += limits.DELETED_PRINCIPAL_KEPT_MS
    assert clerk.put(make("d"))["changed"] is True
    assert clerk.names() == ["a", "c", "d"]


def test_all_of_them_have_so_many_bytes_and_taking_away_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Size is counted with every change and after a restart."""
    clerk = Clerk()
    clerk.put(make("shop"))
    clerk.put(addition(clerk.get(), key("a"), 0))
    size = len(encode_msgpack(clerk.get().packed()))
    monkeypatch.setattr("tern_broker.core.principals.PRINCIPALS_SIZE_MAX_BYTES", size)
    clerk.state = saving.load(b"".join(saving.encode(saving.take(clerk.state))))
    assert code(clerk.put(settings_change(clerk.get(), description="x"))) == "limit-reached"
    assert code(clerk.put(make("other"))) == "limit-reached"
    unknown = revocation("shop", [replace(key("z"), version=2), *clerk.get().keys])
    assert clerk.put(unknown)["changed"] is True
    monkeypatch.setattr("tern_broker.core.principals.PRINCIPALS_SIZE_MAX_BYTES", 1 << 20)
    monkeypatch.setattr("tern_broker.core.principals.PRINCIPAL_SIZE_MAX_BYTES", size)
    big = [read_grant("allow", ["PUB"], "topic", "x" * 100)]
    assert code(clerk.put(settings_change(clerk.get(), grants=big))) == "limit-reached"
    assert clerk.put(deletion(clerk.get(), 5))["changed"] is True


@pytest.mark.parametrize(
    "request_",
    [
        None,
        [],
        {},
        {"document": None},
        {"document": {"name": "root"}},
        {"document": {"name": "shop", "keys": [1]}},
        {"document": make("shop").packed(), "base": "1"},
        {"document": make("shop").packed(), "base": -2},
        {"document": make("shop").packed(), "is_repair": 1},
        {"document": {**make("shop").packed(), "revoked": [["a" * 16, number] for number in range(1, 130)]}},
    ],
)
def test_commands_that_nobody_should_send_are_refused_and_change_nothing(request_: Any) -> None:
    """Total: an error of ours, on every node alike."""
    clerk = Clerk()
    assert code(clerk.apply(request_)) in {"invalid-field", "link-body-malformed"}
    assert clerk.state.principals.revision == 0


def test_broker_groups_that_hear_of_things_in_another_order_agree_in_the_end() -> None:
    """Each gets what the other has, as proxies tell them: both say the same."""
    one, other = Clerk(), Clerk()
    start = joined(make("shop"), make("shop"))
    start = joined(start, addition(start, key("a"), 0))
    for clerk in (one, other):
        clerk.put(start)
    one.put(revocation("shop", start.keys))
    other.put(addition(other.get(), key("b"), 0))
    other.put(settings_change(other.get(), description="x"))
    one.put(other.get(), is_repair=True)
    other.put(one.get(), is_repair=True)
    assert one.get() == other.get()
    assert ([each.kid[0] for each in one.get().keys], one.get().description) == (["b"], "x")
