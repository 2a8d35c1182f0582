"""Configuration by namespace and key: what may stand in it, how much, and what a change is made of."""

import random

import pytest

from tern_namesrv.core import ORDER_NAMESPACE, Configuration, OperatorState, configuration_of
from tern_wire.errors import ConfigurationNotFound, IllegalTopic, InvalidField, LimitReached
from tern_wire.limits import (
    KV_ENTRIES_MAX,
    KV_NAME_SIZE_MAX_BYTES,
    KV_SIZE_MAX_BYTES,
    KV_VALUE_SIZE_MAX_BYTES,
    WIPED_GROUPS_MAX,
)


def test_what_is_put_is_found_and_a_namespace_goes_with_its_last_key() -> None:
    """A change makes a new configuration; the one before stays as it is."""
    empty = Configuration()
    one = empty.put("NS", "key", "value")
    two = one.put("NS", "key", "other").put("NS", "second", "2")
    assert (one.get("NS", "key"), two.get("NS", "key")) == ("value", "other")
    assert list(two.listed("NS").items()) == [("key", "other"), ("second", "2")]
    gone = two.without("NS", "key").without("NS", "second")
    assert (gone, gone.listed("NS"), gone.entries, gone.size_bytes) == (empty, {}, 0, 0)
    assert gone.without("NS", "key") is gone
    with pytest.raises(ConfigurationNotFound, match="kv put"):
        gone.get("NS", "key")


@pytest.mark.parametrize(
    ("namespace", "key", "value", "pointer"),
    [
        ("", "k", "v", "/namespace"),
        ("a/b", "k", "v", "/namespace"),
        ("..", "k", "v", "/namespace"),
        ("n" * (KV_NAME_SIZE_MAX_BYTES + 1), "k", "v", "/namespace"),
        ("n", "k k", "v", "/key"),
        ("n", "k\x00", "v", "/key"),
        ("n", "", "v", "/key"),
        ("n", "k", "", "/value"),
        ("n", "k", "\ud800", "/value"),
        ("n", "k", "ä" * (KV_VALUE_SIZE_MAX_BYTES // 2 + 1), "/value"),
    ],
)
def test_what_cannot_be_kept_is_refused(namespace: str, key: str, value: str, pointer: str) -> None:
    """With the pointer of what is wrong."""
    with pytest.raises(InvalidField) as caught:
        Configuration().put(namespace, key, value)
    assert caught.value.fields["pointer"] == pointer


@pytest.mark.parametrize("value", ["broker-a:8", "broker-a:8;broker-b:8", "a:1;b:1024"])
def test_an_ordered_configuration_is_found_by_its_topic(value: str) -> None:
    """As RocketMQ writes it."""
    held = Configuration().put(ORDER_NAMESPACE, "orders", value)
    assert (held.orders, held.put("NS", "k", "v").orders) == ({"orders": value}, held.orders)
    assert Configuration().orders == {}


@pytest.mark.parametrize(
    "value", ["broker-a", "broker-a:0", "broker-a:8;", "broker-a:8,broker-b:8", "a:1025", "a:8;a:4", "a:-1", "A:8"]
)
def test_an_ordered_configuration_that_is_none_is_refused(value: str) -> None:
    """Clients would spread ordered messages over queues that nobody has."""
    with pytest.raises(InvalidField, match="broker-a:8;broker-b:8"):
        Configuration().put(ORDER_NAMESPACE, "orders", value)
    with pytest.raises(IllegalTopic):
        Configuration().put(ORDER_NAMESPACE, "%no-topic", "a:1")


def test_the_number_of_entries_is_bounded_and_what_is_known_may_change() -> None:
    """One more is refused; none is forgotten for it."""
    full = configuration_of({"NS": {f"k{number}": "v" for number in range(KV_ENTRIES_MAX)}})
    with pytest.raises(LimitReached):
        full.put("NS", "late", "v")
    assert full.put("NS", "k0", "other").get("NS", "k0") == "other"
    full.without("NS", "k0").put("NS", "late", "v")


def test_the_bytes_are_bounded_and_counted_exactly() -> None:
    """After whatever changes: in the end the count is what counting again gives."""
    full = Configuration()
    with pytest.raises(LimitReached, match="Bytes"):
        for number in range(KV_ENTRIES_MAX):
            full = full.put("NS", f"k{number}", "v" * KV_VALUE_SIZE_MAX_BYTES)
    assert KV_SIZE_MAX_BYTES - KV_VALUE_SIZE_MAX_BYTES - 16 <= full.size_bytes <= KV_SIZE_MAX_BYTES
    assert configuration_of(full.namespaces) == full


@pytest.mark.parametrize("seed", range(5))
def test_counts_survive_any_changes(seed: int) -> None:
    """A table of plain dictionaries says the same."""
    rng = random.Random(seed)
    held, plain = Configuration(), dict[tuple[str, str], str]()
    for _ in range(500):
        place = (rng.choice("AB"), rng.choice("abcd"))
        if rng.random() < 0.6:
            plain[place] = "ö" * rng.randrange(1, 5)
            held = held.put(*place, plain[place])
        else:
            plain.pop(place, None)
            held = held.without(*place)
        assert held.entries == len(plain)
        assert held == configuration_of(held.namespaces)
    assert {(name, key): value for name, rows in held.namespaces.items() for key, value in rows.items()} == plain


def test_withdrawn_permissions_are_bounded() -> None:
    """A known one is no new one."""
    state = OperatorState(wiped=frozenset(f"g{number}" for number in range(WIPED_GROUPS_MAX)))
    assert state.permit("g0", writable=False) == state
    with pytest.raises(LimitReached):
        state.permit("late", writable=False)
    assert "late" in state.permit("g0", writable=True).permit("late", writable=False).wiped
