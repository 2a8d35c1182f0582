"""Handles made and read together equal those made and read one by one, and what one of them refuses
is refused.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tern_wire.errors import ReceiptInvalid
from tern_wire.handles import HandleMaker, Receipt

MAKER = HandleMaker(b"k" * 32, "orders", "billing")
NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True)
IDS, NUMBERS = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)
RUNS = st.tuples(NAMES, IDS, IDS, IDS, NUMBERS, st.integers(0, 2**17))
OFFSETS = st.lists(NUMBERS, min_size=1, max_size=40)


def handles_of(run: tuple[str, int, int, int, int, int], offsets: list[int]) -> list[str]:
    name, topic_id, group_id, queue, lease, attempt = run
    return [MAKER.make(Receipt(name, topic_id, group_id, queue, offset, lease, attempt)) for offset in offsets]


@given(RUNS, OFFSETS)
def test_a_run_of_handles_equals_single_ones(run: tuple[str, int, int, int, int, int], offsets: list[int]) -> None:
    """Broker groups' names of every length: handles with and without a remainder of base64."""
    assert MAKER.make_run(*run, offsets) == handles_of(run, offsets)


def test_a_run_may_be_empty() -> None:
    """A lease of which nothing is left."""
    assert MAKER.make_run("a", 1, 2, 3, 4, 5, []) == []


@given(st.lists(st.tuples(RUNS, OFFSETS), min_size=1, max_size=4), NAMES)
def test_handles_read_together_equal_single_ones(
    runs: list[tuple[tuple[str, int, int, int, int, int], list[int]]], name: str
) -> None:
    """Several leases of one broker group."""
    handles = [handle for run, offsets in runs for handle in handles_of((name, *run[1:]), offsets)]
    found = MAKER.read_together(handles)
    assert found is not None
    broker_group, heads = found
    assert [
        Receipt(
            broker_group, *(int(head[field]) for field in ("topic", "group", "queue", "offset", "lease", "attempt"))
        )
        for head in heads
    ] == [MAKER.read(handle) for handle in handles]


HANDLES = handles_of(("broker-a", 1, 2, 3, 4, 1), list(range(8)))
OTHERS = {
    "of another group": HandleMaker(b"k" * 32, "orders", "other").make(Receipt("broker-a", 1, 2, 3, 4, 5, 1)),
    "of another key": HandleMaker(b"x" * 32, "orders", "billing").make(Receipt("broker-a", 1, 2, 3, 4, 5, 1)),
    "one bit": HANDLES[3][:20] + ("B" if HANDLES[3][20] != "B" else "C") + HANDLES[3][21:],
    "its end": HANDLES[3][:-1] + ("B" if HANDLES[3][-1] != "B" else "C"),
    "shorter": HANDLES[3][:-1],
    "longer": HANDLES[3] + "A",
    "empty": "",
    "no base64": "*" * len(HANDLES[3]),
    "padding": HANDLES[3][:-2] + "==",
    "not ASCII": "é" * len(HANDLES[3]),
}


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("place", [0, 3, 7])
def test_one_invalid_handle_is_found_among_good_ones(what: str, place: int) -> None:
    """Nothing is read together then, so each gets its own verdict."""
    handles = HANDLES.copy()
    handles[place] = OTHERS[what]
    assert MAKER.read_together(handles) is None
    with pytest.raises(ReceiptInvalid):
        MAKER.read(OTHERS[what])


def test_two_lengths_that_add_up_are_not_one() -> None:
    """A handle too short and one too long have as many characters as two good ones."""
    assert MAKER.read_together([HANDLES[0], HANDLES[1][:-1], HANDLES[2] + "A", HANDLES[3]]) is None


def test_several_broker_groups_are_read_one_by_one() -> None:
    """Names of one length."""
    assert MAKER.read_together([HANDLES[0], *handles_of(("broker-b", 1, 2, 3, 4, 1), [5])]) is None
