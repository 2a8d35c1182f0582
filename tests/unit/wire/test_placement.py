"""Placements: as text, which of several counts, who owns a slot, and that growth moves no more than it must."""

import random

import numpy as np
import pytest

from tern_wire.errors import InvalidField
from tern_wire.link.rows import key_hash, message_group_hash
from tern_wire.routing.placement import (
    SLOTS,
    Placement,
    owners,
    placement_of,
    read_placement,
    slot_of_key,
    slot_of_message_group,
)
from tern_wire.routing.placement_slots import owned_by, slots_of_keys, slots_of_message_groups

A, AB, ABC = ("broker-a",), ("broker-a", "broker-b"), ("broker-a", "broker-b", "broker-c")


def test_a_placement_is_its_text_and_changes_step_by_step() -> None:
    """Born, growing, grown, drained: each has an epoch of its own, and its text reads back."""
    born = Placement(epoch=1, groups=A)
    growing = born.next(["broker-b", "broker-a"])
    grown = growing.ended()
    drained = grown.next(["broker-b"])
    assert [str(each) for each in (Placement(), born, growing, grown, drained)] == [
        "",
        "1|broker-a|",
        "2|broker-a,broker-b|broker-a",
        "3|broker-a,broker-b|",
        "4|broker-b|broker-a,broker-b",
    ]
    assert [read_placement(str(each)) for each in (born, growing, grown, drained)] == [born, growing, grown, drained]
    assert [each.is_moving for each in (born, growing, grown, drained)] == [False, True, False, True]


@pytest.mark.parametrize(
    "text",
    [
        *("1", "1|", "1||", "0|broker-a|", "-1|broker-a|", "x|broker-a|", "1|broker-a", "1|broker-a||", "²|broker-a|"),
        *("1|broker-b,broker-a|", "1|broker-a,broker-a|", "1|broker-a,|", "1|Broker|", "1000000000|broker-a|"),
        "1|" + ",".join(f"b{number:02}" for number in range(65)) + "|",
    ],
)
def test_what_is_no_placement_is_refused(text: str) -> None:
    """Names ascending, each once, at most 64; an epoch from 1."""
    with pytest.raises(InvalidField):
        read_placement(text)


def test_the_newest_counts_and_of_two_of_one_epoch_the_one_its_members_agree_on() -> None:
    """Also when a proxy that did not know all broker groups has created the topic elsewhere at the same moment."""
    assert placement_of({"broker-b": "", "broker-a": ""}) == Placement(groups=AB)
    assert placement_of({"broker-a": "2|broker-a,broker-b|broker-a", "broker-b": ""}).epoch == 2
    assert placement_of({"broker-a": "1|broker-a|", "broker-b": "1|broker-a,broker-b|"}).groups == A
    assert placement_of({"broker-a": "1|broker-b,broker-c|", "broker-b": "1|broker-b|"}).groups == ("broker-b",)
    # A broker group that nobody can ask contradicts nobody.
    assert placement_of({"broker-b": "1|broker-b,broker-c|"}).groups == ("broker-b", "broker-c")


def test_growth_moves_slots_to_the_new_broker_group_alone_and_a_fair_share() -> None:
    """Whoever had a slot has it still, or the new one has; each has about as many."""
    before, after = owners(AB), owners(ABC)
    moved = [slot for slot in range(SLOTS) if before[slot] != after[slot]]
    assert {after[slot] for slot in moved} == {"broker-c"}
    assert all(SLOTS / 4 < after.count(name) < SLOTS / 2.4 for name in ABC)
    assert owners(A) == ("broker-a",) * SLOTS
    assert owned_by(ABC, "broker-c").sum() == len(moved)
    assert not owned_by(AB, "broker-z").any()


def test_slots_of_one_and_of_many_are_the_same_and_all_of_them_occur() -> None:
    """Proxies look at one message, brokers at arrays."""
    rng = random.Random(5)
    keys = [key_hash(b"t", rng.randbytes(9)) for _ in range(9_000)]
    groups = [message_group_hash(rng.randbytes(9)) for _ in range(9_000)]
    assert slots_of_keys(np.frombuffer(b"".join(keys), "V16")).tolist() == [slot_of_key(key) for key in keys]
    assert slots_of_message_groups(np.array(groups, np.uint64)).tolist() == list(map(slot_of_message_group, groups))
    assert len({slot_of_key(key) for key in keys}) > 1_000
    assert len({slot_of_message_group(group) for group in groups}) > 1_000
