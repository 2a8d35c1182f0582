"""The rules R2 to R5 over single messages: a log of terms, a message, the plan."""

from typing import Any

import pytest

from tern_raft.rules import VoteCount, may_lead, plan_append

# The own log: index 1.. with these terms; index 1 is the genesis entry of term 0.
TERMS = [0, 1, 1, 2, 2]


def plan(
    previous: int, previous_term: int, entries: list[tuple[int, int]], commit: int = 9, own_commit: int = 2
) -> Any:
    """Plan a message with entries (index, term) against TERMS."""
    message = {
        "type": "append_entries",
        "term": 3,
        "commit_index": commit,
        "prevLogIdx": previous,
        "prevLogTerm": previous_term,
        "entries": [(b"", index, term) for index, term in entries],
    }
    return plan_append(message, first=1, last=len(TERMS), commit=own_commit, term_at=lambda index: TERMS[index - 1])


@pytest.mark.parametrize(
    ("previous", "previous_term", "entries", "expected"),
    [
        # what follows the end is passed on untouched
        (5, 2, [(6, 3)], {"prevLogIdx": 5, "entries": [(6, 3)], "commit_index": 6, "verified": 6}),
        # R3: what is known already is not appended again, and nothing behind it is truncated
        (2, 1, [(3, 1), (4, 2)], {"prevLogIdx": 5, "entries": [], "commit_index": 4, "verified": 4}),
        (3, 1, [(4, 2), (5, 2), (6, 3)], {"prevLogIdx": 5, "entries": [(6, 3)], "commit_index": 6, "verified": 6}),
        # R3: an old heartbeat verifies only its own previous entry
        (2, 1, [], {"prevLogIdx": 5, "entries": [], "commit_index": 2, "verified": 2}),
        # a real conflict is cut by pysyncobj: the message begins before it
        (3, 1, [(4, 3)], {"prevLogIdx": 3, "entries": [(4, 3)], "commit_index": 4, "verified": 4}),
        # a gap verifies nothing and commits nothing (R2)
        (8, 2, [(9, 3)], {"prevLogIdx": 8, "entries": [(9, 3)], "commit_index": 0, "verified": -1}),
    ],
)
def test_a_message_is_cut_down_to_what_is_new_and_verified(
    previous: int, previous_term: int, entries: list[tuple[int, int]], expected: dict[str, Any]
) -> None:
    """One row a case: what pysyncobj sees, and what may be acknowledged."""
    made = plan(previous, previous_term, entries)
    seen = {
        "prevLogIdx": made.message["prevLogIdx"],
        "entries": [(index, term) for _, index, term in made.message["entries"]],
        "commit_index": made.message["commit_index"],
        "verified": made.verified,
    }
    assert expected == seen
    assert made.cut_from == 0
    assert made.message["prevLogIdx"] > 5 or made.message["prevLogTerm"] == TERMS[made.message["prevLogIdx"] - 1]


def test_a_proven_conflict_is_cut_so_that_the_restart_point_only_falls() -> None:
    """R4: previous entry of another term."""
    made = plan(4, 1, [(5, 3)])
    assert (made.cut_from, made.verified, made.message["commit_index"]) == (4, -1, 0)


def test_a_conflict_below_the_commit_index_is_never_cut() -> None:
    """The sender is wrong, not the log."""
    assert plan(2, 7, [(3, 3)], own_commit=3) is None


def test_snapshots_and_chunks_are_ignored() -> None:
    """R2: messages without a previous entry would commit an unverified log."""
    for extra in ({"serialized": b"x"}, {"transmission": "start"}):
        message = {
            "type": "append_entries",
            "prevLogIdx": 1,
            "prevLogTerm": 0,
            "entries": [],
            "commit_index": 5,
            **extra,
        }
        assert plan_append(message, first=1, last=5, commit=1, term_at=lambda _: 0) is None
    assert plan_append({"commit_index": 5}, first=1, last=5, commit=1, term_at=lambda _: 0) is None


def test_a_voter_counts_once_a_term() -> None:
    """R5: a repeated message is not a second vote."""
    votes = VoteCount()
    counted = [votes.is_new(3, "b"), votes.is_new(3, "b"), votes.is_new(3, "c"), votes.is_new(4, "b")]
    assert counted == [True, False, True, True]


@pytest.mark.parametrize(("term", "index", "expected"), [(2, 5, True), (3, 1, True), (2, 4, False), (1, 99, False)])
def test_only_a_log_that_is_at_least_as_new_may_lead(term: int, index: int, expected: bool) -> None:
    """Raft, 5.4.1."""
    assert expected is may_lead(own_term=2, own_index=5, last_term=term, last_index=index)
