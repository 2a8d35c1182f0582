"""The checker of checks: good stories pass, each kind of broken promise does not."""

from collections.abc import Callable

import pytest

from tern_wire.transactions import (
    BY_CHECK,
    BY_HAND,
    CHECK_NOT_YOURS,
    COMMIT,
    EXPIRED,
    EXPIRED_BEFORE,
    LOST,
    ROLLBACK,
)
from tests.sim.checkers import checks
from tests.sim.history.transaction_values import CheckNote, Claim
from tests.unit.sim.transaction_stories import (
    AFTER_MS,
    BANK,
    BEGUN_MS,
    CLAIM_MS,
    INTERVAL_MS,
    NAME,
    NUMBER,
    TransactionStory,
)

Tale = Callable[[TransactionStory], object]
FIRST_MS = BEGUN_MS + AFTER_MS
# When the attempt that was claimed at FIRST_MS is over without a report, and is claimed again; and when the second one is due then.
AGAIN_MS = FIRST_MS + CLAIM_MS
NEXT_MS = AGAIN_MS + CLAIM_MS + INTERVAL_MS


def begun() -> TransactionStory:
    """One transaction of two messages, begun at 1,000."""
    story = TransactionStory()
    story.begins(NAME, "t0.2")
    return story


def later(story: TransactionStory, now_ms: int) -> None:
    """Something else shows what time it is."""
    story.receives(now_ms, now_ms, now_ms)


# Good -------------------------------------------------------------------------------------------------------------
def asked_in_vain(story: TransactionStory) -> None:
    """Each attempt is passed on once; then it is given up, and resolved by hand."""
    story.claims(1, 1, FIRST_MS)
    story.claims(2, 1, AGAIN_MS)
    story.describes(attempts=1)
    story.claims(3, 2, NEXT_MS)
    story.claims(4, 2, NEXT_MS + CLAIM_MS)
    later(story, NEXT_MS + 2 * CLAIM_MS + INTERVAL_MS)
    story.describes(EXPIRED, attempts=2, notes=(CheckNote(1, FIRST_MS, "i0", LOST), CheckNote(2, NEXT_MS, "i0", LOST)))
    story.ends(COMMIT, EXPIRED_BEFORE, told=3)
    story.ends(ROLLBACK, by=BY_HAND, attempts=2)


def reported(story: TransactionStory) -> None:
    """A report ends its attempt; the next one is an interval later."""
    story.claims(1, 1, FIRST_MS)
    later(story, FIRST_MS + 10)
    story.reports(1)
    story.claims(2, 2, FIRST_MS + 10 + INTERVAL_MS)
    story.is_now("open", attempts=2)


def perhaps_reported(story: TransactionStory) -> None:
    """Nobody knows."""
    story.claims(1, 1, FIRST_MS)
    story.info(story.begin(story.report_of(1), "i0"))
    story.claims(2, 2, FIRST_MS + INTERVAL_MS)
    story.is_now("open", attempts=2)


def reported_too_late(story: TransactionStory) -> None:
    """The claim was over, and somebody else's by then."""
    story.claims(1, 1, FIRST_MS)
    story.claims(2, 1, AGAIN_MS)
    story.reports(1, CHECK_NOT_YOURS)
    story.reports(2)
    story.is_now("open", attempts=1)


def reported_after_the_time(story: TransactionStory) -> None:
    """The claim may have been over."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1, CHECK_NOT_YOURS)
    later(story, AGAIN_MS)
    story.is_now("open", attempts=1)


def answered(story: TransactionStory) -> None:
    """By the second checker, whose report comes after the end."""
    story.claims(1, 1, FIRST_MS)
    story.ends(COMMIT, by=BY_CHECK, attempts=1)
    story.reports(1, CHECK_NOT_YOURS)
    later(story, FIRST_MS + 1)


def claimed_by_somebody_else(story: TransactionStory) -> None:
    """A claim without an answer may have taken an attempt."""
    asked = Claim("i1", BANK, 4, CLAIM_MS, 0)
    story.info(story.begin(asked, "i1"))
    later(story, NEXT_MS)
    story.claims(2, 2, NEXT_MS)
    story.is_now("open", attempts=2)


def nothing_due_yet(story: TransactionStory) -> None:
    """A claim gets nothing."""
    later(story, FIRST_MS - 1)
    story.claims_nothing()


@pytest.mark.parametrize(
    "tell",
    [
        *(asked_in_vain, reported, perhaps_reported, reported_too_late, reported_after_the_time, answered),
        *(claimed_by_somebody_else, nothing_due_yet),
    ],
)
def test_checks_in_their_order_and_time_are_left_alone(tell: Tale) -> None:
    """All that may become of one."""
    story = begun()
    tell(story)
    assert checks.check(story.history, story.end()) == []


# Bad --------------------------------------------------------------------------------------------------------------
def too_early(story: TransactionStory) -> None:
    """By a millisecond."""
    story.claims(1, 1, FIRST_MS - 1)


def too_early_for_its_own_wish(story: TransactionStory) -> None:
    """It had asked for more time than its group gives."""
    story.begins("t0.3", number=NUMBER + 1, after_ms=2 * AFTER_MS)
    asked = Claim("i0", BANK, 4, CLAIM_MS, 0)
    story.ok(story.begin(asked, "i0"), (story.check(1, 1, FIRST_MS, NUMBER + 1),))


def two_at_once(story: TransactionStory) -> None:
    """The first claim is not over."""
    story.claims(1, 1, FIRST_MS)
    story.claims(2, 1, AGAIN_MS - 1)


def again_and_again(story: TransactionStory) -> None:
    """The attempt does not count."""
    for claim in range(3):
        story.claims(claim + 1, 1, FIRST_MS + claim * (CLAIM_MS + INTERVAL_MS))


def next_too_early(story: TransactionStory) -> None:
    """Before an interval is over."""
    story.claims(1, 1, FIRST_MS)
    story.claims(2, 1, AGAIN_MS)
    story.claims(3, 2, NEXT_MS - 1)


def next_too_early_after_a_report(story: TransactionStory) -> None:
    """The report was made 10 ms after the claim at the earliest."""
    story.claims(1, 1, FIRST_MS)
    later(story, FIRST_MS + 10)
    story.reports(1)
    story.claims(2, 2, FIRST_MS + INTERVAL_MS + 9)


def not_passed_on(story: TransactionStory) -> None:
    """The attempt dies with its first checker."""
    story.claims(1, 1, FIRST_MS)
    story.claims(2, 2, AGAIN_MS + INTERVAL_MS - 1)


def one_left_out(story: TransactionStory) -> None:
    """From the first to the third attempt."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.claims(2, 3, FIRST_MS + INTERVAL_MS + 10)


def begins_with_the_second(story: TransactionStory) -> None:
    """Nobody has made the first attempt, and nobody has missed it."""
    story.claims(1, 2, FIRST_MS + INTERVAL_MS - 1)


def too_many(story: TransactionStory) -> None:
    """Its group is asked two times."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.claims(2, 2, NEXT_MS)
    story.reports(2)
    story.claims(3, 3, 2 * NEXT_MS)


def one_id_twice(story: TransactionStory) -> None:
    """Two claims have one id."""
    story.claims(1, 1, FIRST_MS)
    story.claims(1, 1, AGAIN_MS)


def asked_after_its_end(story: TransactionStory) -> None:
    """It was rolled back, and its client heard that."""
    story.ends(ROLLBACK, attempts=1)
    story.claims(1, 1, FIRST_MS)


def asked_though_reported(story: TransactionStory) -> None:
    """The attempt is passed on though its report was noted."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.claims(2, 1, AGAIN_MS)


def other_messages(story: TransactionStory) -> None:
    """A check shows what the transaction does not have."""
    operation = story.claims(1, 1, FIRST_MS)
    operation.answer = (operation.checks[0]._replace(names=(NAME, "?")),)


def one_message_less(story: TransactionStory) -> None:
    """A check shows a part."""
    operation = story.claims(1, 1, FIRST_MS)
    check = operation.checks[0]
    operation.answer = (check._replace(names=check.names[:1], places=check.places[:1]),)


def another_groups(story: TransactionStory) -> None:
    """Who asks for all that have a URL gets one that has none."""
    asked = Claim("i0", "", 4, CLAIM_MS, 0)
    story.ok(story.begin(asked, "i0"), (story.check(1, 1, FIRST_MS),))


def more_than_asked_for(story: TransactionStory) -> None:
    """Two for one."""
    story.begins("t0.3", number=NUMBER + 1)
    asked = Claim("i0", BANK, 1, CLAIM_MS, 0)
    found = (story.check(1, 1, FIRST_MS), story.check(2, 1, FIRST_MS, NUMBER + 1))
    story.ok(story.begin(asked, "i0"), found)


def noted_twice(story: TransactionStory) -> None:
    """Two reports of one claim."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.reports(1)


def noted_for_an_old_claim(story: TransactionStory) -> None:
    """The attempt is somebody else's by now."""
    story.claims(1, 1, FIRST_MS)
    story.claims(2, 1, AGAIN_MS)
    story.reports(1)


def noted_after_its_end(story: TransactionStory) -> None:
    """There is nothing to be noted any more."""
    story.claims(1, 1, FIRST_MS)
    story.ends(ROLLBACK, attempts=1)
    story.reports(1)


def not_noted(story: TransactionStory) -> None:
    """The claim was not over, as a later receive shows."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1, CHECK_NOT_YOURS)
    later(story, AGAIN_MS - 1)


def given_up_too_early(story: TransactionStory) -> None:
    """After one attempt of two."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.ends(COMMIT, EXPIRED_BEFORE, told=3)
    later(story, FIRST_MS + 1)


def given_up_in_the_state(story: TransactionStory) -> None:
    """Only the nodes say so."""
    story.is_now(EXPIRED, attempts=1)


def given_up_at_once(story: TransactionStory) -> None:
    """With the last attempt, without another interval."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.claims(2, 2, NEXT_MS)
    story.reports(2)
    story.describes(EXPIRED, attempts=2)
    later(story, NEXT_MS + INTERVAL_MS - 1)


def given_up_for_a_while(story: TransactionStory) -> None:
    """Then its client may end it after all."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.claims(2, 2, NEXT_MS)
    story.ends(COMMIT, EXPIRED_BEFORE, told=3)
    story.ends(COMMIT, attempts=2)


def attempts_forgotten(story: TransactionStory) -> None:
    """Who looks sees fewer than there were."""
    story.claims(1, 1, FIRST_MS)
    story.describes(attempts=0)
    story.is_now("open", attempts=1)


def attempts_forgotten_in_the_state(story: TransactionStory) -> None:
    """The nodes say so."""
    story.claims(1, 1, FIRST_MS)
    story.is_now("open", attempts=0)


def noted_what_nobody_said(story: TransactionStory) -> None:
    """An answer that nobody has given."""
    story.claims(1, 1, FIRST_MS)
    story.reports(1)
    story.describes(attempts=1, notes=(CheckNote(1, FIRST_MS, "i0", "refused"),))
    story.is_now("open", attempts=1)


def passed_by(story: TransactionStory) -> None:
    """It is due, and a claim does not get it."""
    later(story, FIRST_MS)
    story.claims_nothing()


BAD: dict[Tale, str] = {
    too_early: "is due at",
    too_early_for_its_own_wish: "is due at",
    two_at_once: "at once",
    again_and_again: "again and again",
    next_too_early: "is not to be asked before",
    next_too_early_after_a_report: "is not to be asked before",
    not_passed_on: "is not passed on",
    one_left_out: "attempts go from",
    begins_with_the_second: "begins with attempt",
    too_many: "attempt 3 of 2",
    one_id_twice: "claim 1 is in",
    asked_after_its_end: "is asked about after its end",
    asked_though_reported: "is asked again though",
    other_messages: "is not what there is to ask about",
    one_message_less: "is not what there is to ask about",
    another_groups: "is not what there is to ask about",
    more_than_asked_for: "more checks than were asked for",
    noted_twice: "two reports of one claim",
    noted_for_an_old_claim: "of an old claim",
    noted_after_its_end: "noted after the end",
    not_noted: "a report is not noted",
    given_up_too_early: "is given up after 1 of 2",
    given_up_in_the_state: "is given up after 1 of 2",
    given_up_at_once: "is given up at",
    given_up_for_a_while: "though it was given up",
    attempts_forgotten: "attempts were made",
    attempts_forgotten_in_the_state: "attempts were made",
    noted_what_nobody_said: "nobody has reported",
    passed_by: "is not handed out",
}


@pytest.mark.parametrize("tell", BAD)
def test_a_check_out_of_order_or_time_is_seen(tell: Tale) -> None:
    """Each of them once, and for what it is."""
    story = begun()
    tell(story)
    texts = [violation.text for violation in checks.check(story.history, story.end())]
    assert any(BAD[tell] in text for text in texts), texts


def test_a_group_with_a_check_url_is_asked_by_those_who_ask_for_all_of_them() -> None:
    """And one without is not."""
    story = begun()
    story.calls()
    another_groups(story)
    story.is_now("open", attempts=1)
    assert checks.check(story.history, story.end()) == []
