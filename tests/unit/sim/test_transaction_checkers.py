"""The checker of transactions: good stories pass, each kind of broken promise does not."""

from collections.abc import Callable

import pytest

from tern_wire.link.rows import PREPARED_BEFORE
from tern_wire.transactions import (
    BY_CHECK,
    BY_HAND,
    COMMIT,
    COMMITTED,
    ENDED_BEFORE,
    EXPIRED_BEFORE,
    OTHER_OUTCOME,
    ROLLBACK,
    ROLLED_BACK,
)
from tests.sim.checkers import transactions
from tests.sim.clients.bodies import message_id
from tests.unit.sim.stories import TOPIC
from tests.unit.sim.transaction_stories import NAME, SECOND, TransactionStory, begun, found

Tale = Callable[[TransactionStory], object]


# Good -------------------------------------------------------------------------------------------------------------
def left_open(story: TransactionStory) -> None:
    """Nobody ever ends it."""
    story.searches(NAME)
    story.describes()


def committed(story: TransactionStory) -> None:
    """And seen."""
    story.ends(COMMIT)
    story.receives(0, 1, 100, name=NAME)
    story.pulls_queue(1, SECOND)
    story.searches(NAME, 0)
    story.describes(COMMITTED, by="client", offset=0)


def rolled_back(story: TransactionStory) -> None:
    """Twice; the other way is refused; a check comes too late."""
    story.ends(ROLLBACK)
    story.ends(ROLLBACK, ENDED_BEFORE)
    story.ends(COMMIT, OTHER_OUTCOME, told=ROLLBACK)
    story.describes(ROLLED_BACK, by="client")


def committed_by_a_lost_end(story: TransactionStory) -> None:
    """Nobody heard that it was committed, but it was asked for before it was seen."""
    end = story.begin(story.end_of(COMMIT), "t0")
    story.visible()
    story.pulls_queue(0, NAME)
    story.info(end)


def committed_at_the_second_attempt(story: TransactionStory) -> None:
    """The first attempt's answer was lost."""
    story.visible()
    operation = story.ends(COMMIT, ENDED_BEFORE)
    operation.lost_attempts = 1


def seen_while_it_is_committed(story: TransactionStory) -> None:
    """Before the one who commits has heard of it."""
    end = story.begin(story.end_of(COMMIT), "t0")
    story.pulls_queue(0, NAME)
    story.visible()
    story.ok(end, story.verdict(0, COMMIT, offset=0))


def resolved_after_it_was_given_up(story: TransactionStory) -> None:
    """By a person, after its client had come too late."""
    story.ends(COMMIT, EXPIRED_BEFORE, told=3)
    story.ends(ROLLBACK, by=BY_HAND)


def begun_again(story: TransactionStory) -> None:
    """The key's repeat is the same transaction."""
    story.begins(NAME, SECOND, key="k", status=PREPARED_BEFORE, first_id=message_id(1, 0))


def partly_dropped_by_retention(story: TransactionStory) -> None:
    """Its first message is gone from all nodes."""
    story.ends(COMMIT)
    del story.queues[TOPIC, 0]
    story.mins[TOPIC, 0] = 1
    story.queues[TOPIC, 0] = []


@pytest.mark.parametrize(
    "tell",
    [
        *(left_open, committed, rolled_back, committed_by_a_lost_end, committed_at_the_second_attempt),
        *(seen_while_it_is_committed, resolved_after_it_was_given_up, begun_again, partly_dropped_by_retention),
    ],
)
def test_transactions_that_end_once_and_whole_are_left_alone(tell: Tale) -> None:
    """All that may happen to one."""
    story = begun("k" if tell is begun_again else "")
    tell(story)
    assert found(story) == []


# Bad --------------------------------------------------------------------------------------------------------------
def published(story: TransactionStory) -> None:
    """It is open, and received."""
    story.receives(0, 1, 100, name=NAME)


def found_by_its_id(story: TransactionStory) -> None:
    """Without an offset, but found."""
    story.searches(NAME, -1)


def held_while_open(story: TransactionStory) -> None:
    """A node holds it at the end."""
    story.put(NAME, 0)


def seen_before_its_commit(story: TransactionStory) -> None:
    """The commit comes afterwards."""
    story.pulls_queue(0, NAME)
    story.ends(COMMIT)


def seen_before_the_one_that_committed(story: TransactionStory) -> None:
    """Somebody else had asked for it before, but was not the one."""
    story.info(story.begin(story.end_of(COMMIT), "t0"))
    story.pulls_queue(0, NAME)
    story.ends(COMMIT)


def seen_though_rolled_back(story: TransactionStory) -> None:
    """By a receive."""
    story.ends(ROLLBACK)
    story.receives(0, 1, 100, name=NAME)


def held_though_rolled_back(story: TransactionStory) -> None:
    """By all nodes."""
    story.ends(ROLLBACK)
    story.put(SECOND, 0, queue=1)


def torn(story: TransactionStory) -> None:
    """The second message never comes."""
    story.ends(COMMIT)
    del story.queues[TOPIC, 1]


def torn_and_never_answered(story: TransactionStory) -> None:
    """The same, and only the nodes know of the commit."""
    story.info(story.begin(story.end_of(COMMIT), "t0"))
    story.visible()
    del story.queues[TOPIC, 1]


def not_together(story: TransactionStory) -> None:
    """The second message comes later than the first one is seen."""
    story.ends(COMMIT)
    story.pulls_queue(0, NAME)
    story.pulls_queue(1)


def not_there_when_answered(story: TransactionStory) -> None:
    """It is answered, and not there."""
    story.ends(COMMIT)
    story.pulls_queue(0)


def not_found_afterwards(story: TransactionStory) -> None:
    """By its id."""
    story.ends(COMMIT)
    story.searches(NAME)


def appended_twice(story: TransactionStory) -> None:
    """The same message at two offsets."""
    story.ends(COMMIT)
    story.put(NAME, 1)


def ended_twice(story: TransactionStory) -> None:
    """Two are told that they did it."""
    story.ends(ROLLBACK)
    story.ends(ROLLBACK)


def ended_in_both_ways(story: TransactionStory) -> None:
    """A late answer turns it over."""
    story.ends(ROLLBACK)
    story.info(story.begin(story.end_of(COMMIT), "t0"))
    story.ends(COMMIT, ENDED_BEFORE, offset=0)


def turned_over_in_the_state(story: TransactionStory) -> None:
    """The nodes say something else than was answered."""
    story.info(story.begin(story.end_of(COMMIT), "t0"))
    story.ends(ROLLBACK)
    story.is_now(COMMITTED, by="client", offset=0)


def ended_by_nobody(story: TransactionStory) -> None:
    """It is rolled back since it was too old."""
    story.is_now(ROLLED_BACK, by="client")


def ended_as_nobody_asked(story: TransactionStory) -> None:
    """Who commits is told that it was rolled back."""
    story.ends(COMMIT, OTHER_OUTCOME, told=ROLLBACK)


def told_as_another_ones(story: TransactionStory) -> None:
    """A client's end is called a check's."""
    operation = story.ends(ROLLBACK)
    operation.answer = (operation.closed[0]._replace(by=BY_CHECK),)


def told_in_two_ways(story: TransactionStory) -> None:
    """The repeat is told another offset."""
    story.ends(COMMIT)
    story.ends(COMMIT, ENDED_BEFORE, offset=3)


def told_of_a_part(story: TransactionStory) -> None:
    """Only one message is counted."""
    operation = story.ends(ROLLBACK)
    operation.answer = (operation.closed[0]._replace(messages=1),)
    story.kept.clear()


def told_of_another_place(story: TransactionStory) -> None:
    """Another message lies there."""
    story.ends(COMMIT)
    story.queues[TOPIC, 0] = []
    story.put("p0.1", 0)
    story.put(NAME, 1)


def expired_after_its_end(story: TransactionStory) -> None:
    """It had been rolled back."""
    story.ends(ROLLBACK)
    story.ends(ROLLBACK, EXPIRED_BEFORE)


def open_after_its_end(story: TransactionStory) -> None:
    """Somebody sees it open."""
    story.ends(ROLLBACK)
    story.describes()


def open_in_the_state_after_its_end(story: TransactionStory) -> None:
    """The nodes have it as open."""
    story.ends(ROLLBACK)
    story.is_now("open")


BAD: dict[Tale, str] = {
    published: "is seen before anybody can have committed it",
    found_by_its_id: "is seen before anybody can have committed it",
    held_while_open: "which is open",
    seen_before_its_commit: "is seen before anybody can have committed it",
    seen_before_the_one_that_committed: "is seen before anybody can have committed it",
    seen_though_rolled_back: "is seen before anybody can have committed it",
    held_though_rolled_back: "which is rolled-back",
    torn: "and not ['t0.2']",
    torn_and_never_answered: "and not ['t0.2']",
    not_together: "a message at 0 was visible",
    not_there_when_answered: "a message at 0 was visible",
    not_found_afterwards: "is not found",
    appended_twice: "more than once",
    ended_twice: "it was ended twice",
    ended_in_both_ways: "it has ended in both ways",
    turned_over_in_the_state: "it has ended in both ways",
    ended_by_nobody: "an outcome that nobody asked for",
    ended_as_nobody_asked: "an outcome that nobody asked for",
    told_as_another_ones: "it was ended by 2",
    told_in_two_ways: "its end is told in different ways",
    told_of_a_part: "('client', 1, 'orders', 0, -1) is told of",
    told_of_another_place: "is told, but there",
    expired_after_its_end: "it is not known to have ended any more",
    open_after_its_end: "it is open again",
    open_in_the_state_after_its_end: "it has not ended",
}


@pytest.mark.parametrize("tell", BAD)
def test_a_promise_that_was_broken_is_seen(tell: Tale) -> None:
    """Each of them once, and for what it is."""
    story = begun("k")
    tell(story)
    texts = [violation.text for violation in transactions.check(story.history, story.end())]
    assert any(BAD[tell] in text for text in texts), texts
