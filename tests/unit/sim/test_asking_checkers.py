"""The checker of checks, of those that nobody asks for: attempts in vain are what a group without a check URL may have, and no other."""

import pytest

from tern_wire.transactions import COMMIT, EXPIRED, EXPIRED_BEFORE, NOT_ASKED
from tests.sim.checkers import checks
from tests.sim.history.transaction_values import CheckNote
from tests.unit.sim.test_check_checkers import FIRST_MS, Tale, begun, later
from tests.unit.sim.transaction_stories import INTERVAL_MS, MAX_CHECKS, TransactionStory


def nobody_asked(story: TransactionStory) -> None:
    """For an interval: the first attempt was in vain."""
    story.claims(1, 2, FIRST_MS + INTERVAL_MS)
    story.is_now("open", attempts=2, notes=(CheckNote(1, FIRST_MS, "", NOT_ASKED),))


def nobody_asked_at_all(story: TransactionStory) -> None:
    """It expires after as many intervals as it would have been asked times."""
    later(story, FIRST_MS + MAX_CHECKS * INTERVAL_MS)
    story.ends(COMMIT, EXPIRED_BEFORE, told=3)
    later(story, FIRST_MS + MAX_CHECKS * INTERVAL_MS)
    notes = tuple(CheckNote(1 + at, FIRST_MS + at * INTERVAL_MS, "", NOT_ASKED) for at in range(MAX_CHECKS))
    story.is_now(EXPIRED, attempts=MAX_CHECKS, notes=notes)


@pytest.mark.parametrize("tell", [nobody_asked, nobody_asked_at_all])
def test_attempts_in_vain_are_left_alone(tell: Tale) -> None:
    """They take an interval each."""
    story = begun()
    tell(story)
    assert checks.check(story.history, story.end()) == []


def test_with_a_check_url_no_attempt_is_missed() -> None:
    """What is no violation where clients have to ask is one here."""
    story = begun()
    story.calls()
    nobody_asked(story)
    texts = [violation.text for violation in checks.check(story.history, story.end())]
    assert any("begins with attempt 2" in text for text in texts), texts
    assert any("nobody has reported" in text for text in texts), texts
