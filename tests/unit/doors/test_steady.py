"""What of the steady client's answers counts at once, and what is measured a second time."""

from collections import Counter

from tests.doors.__main__ import Row, judged
from tests.doors.steady import BUSY, Seen


def test_what_a_pause_of_the_machine_does_is_no_refusal() -> None:
    """An answer that says when to come again is told apart from one that is wrong."""
    seen = Seen(1.0, Counter({"201": 180, "200": 20, BUSY: 3, "later (no-leader)": 1, "receive later (no-leader)": 1}))

    assert seen.refused == {}
    assert seen.postponed == {"later (no-leader)": 1, "receive later (no-leader)": 1}


def test_any_other_answer_is_a_refusal() -> None:
    """A status that is no success, or a connection that broke."""
    seen = Seen(1.0, Counter({"201": 180, "500": 1, "receive 403": 1, "ConnectionResetError": 1}))

    assert seen.refused == {"500": 1, "receive 403": 1, "ConnectionResetError": 1}
    assert seen.postponed == {}


def test_a_load_that_was_only_late_is_measured_again() -> None:
    """The second row counts; what was wrong counts at once."""
    late, well = Row("polls", 190, 441, late=["p99"]), Row("polls", 200, 40)
    wrong = Row("polls", 190, 441, late=["p99"], wrong=["500"])

    assert judged(lambda: late, lambda: well) is well
    assert judged(lambda: late, lambda: late).late
    assert judged(lambda: wrong, lambda: well) is wrong
