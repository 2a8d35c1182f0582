"""The checker of transactions, of their begins: one number for all messages, and none that was told is forgotten."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tern_wire.errors import TransactionUnknown
from tern_wire.link.rows import KEY_REUSED, PREPARED_BEFORE
from tern_wire.transactions import BY_HAND, COMMIT, TRANSACTION_UNKNOWN
from tests.sim.checkers import transactions
from tests.sim.history.history import Sent
from tests.sim.history.transaction_values import Describe, Resolve, TransactionEnd
from tests.unit.sim.stories import TOPIC
from tests.unit.sim.transaction_stories import BANK, NAME, NUMBER, SECOND, TransactionStory, begun, found

Tale = Callable[[TransactionStory], object]


def forgotten(story: TransactionStory) -> None:
    """No node knows it."""
    story.kept.clear()


def unknown(story: TransactionStory) -> None:
    """Who ends it hears that there is no such transaction."""
    story.ends(COMMIT, TRANSACTION_UNKNOWN, told=3)


def unknown_to_a_look(story: TransactionStory) -> None:
    """Who looks at it, too."""
    story.history.fail(story.begin(Describe(NUMBER, BANK), "clerk"), "n0", TransactionUnknown.code)


def kept_in_part(story: TransactionStory) -> None:
    """The nodes keep another message in its place."""
    story.kept[NUMBER] = TransactionEnd(story.described(), (NAME, "?"))


def begun_with_one_number_twice(story: TransactionStory) -> None:
    """Another transaction has the same number."""
    story.begins("t0.3", "t0.4")


def begun_twice(story: TransactionStory) -> None:
    """A repeat is another transaction."""
    story.begins(NAME, SECOND, key="k", number=NUMBER + 1)


def begun_before_by_nobody(story: TransactionStory) -> None:
    """A new transaction is taken for an old one."""
    story.begins("t0.3", "t0.4", number=NUMBER + 1, status=PREPARED_BEFORE)


def taken_for_another(story: TransactionStory) -> None:
    """A key that nobody has used is called used."""
    story.begins("t0.3", "t0.4", number=NUMBER + 1, status=KEY_REUSED)


def prepared_in_part(story: TransactionStory) -> None:
    """Its messages are told different things."""
    operation = story.begins("t0.3", "t0.4", number=NUMBER + 1)
    operation.answer = (operation.sent[0], Sent(KEY_REUSED, 1, 0))


BAD: dict[Tale, str] = {
    forgotten: "has forgotten",
    unknown: "is unknown",
    unknown_to_a_look: "is unknown",
    kept_in_part: "keeps",
    begun_with_one_number_twice: "have one number",
    begun_twice: "is begun twice",
    begun_before_by_nobody: "nobody did that",
    taken_for_another: "is refused with",
    prepared_in_part: "are told different things",
}


@pytest.mark.parametrize("tell", BAD)
def test_a_begin_that_was_not_kept_is_seen(tell: Tale) -> None:
    """Each of them once, and for what it is."""
    story = begun("k")
    tell(story)
    texts = [violation.text for violation in transactions.check(story.history, story.end())]
    assert any(BAD[tell] in text for text in texts), texts


def test_one_node_that_forgets_is_enough() -> None:
    """All nodes keep what one was acknowledged."""
    story = begun()
    end = story.end(story.node("n0"), replace(story.node("n1"), transactions={}))
    assert [violation.text for violation in transactions.check(story.history, end)] == [
        f"n1: has forgotten {NUMBER} ({NAME})"
    ]


def test_a_transaction_whose_begin_nobody_heard_of_may_be_resolved_by_hand() -> None:
    """Its number comes from a list, its name from where its first message lies, or from nowhere at all."""
    story = TransactionStory()
    asked = story.begin_of(NAME, SECOND)
    story.info(story.begin(asked, "t0"))
    story.halves[NUMBER] = asked.transactions[0]
    story.ok(story.begin(Resolve(NUMBER, BANK, COMMIT), "clerk"), story.verdict(0, COMMIT, by=BY_HAND, offset=0))
    story.visible(by=BY_HAND)
    story.pulls_queue(0, NAME)
    assert found(story) == []
    story.mins[TOPIC, 0], story.queues[TOPIC, 0] = 1, []
    assert found(story) == []


def test_a_message_of_a_begin_without_an_answer_is_not_to_be_seen() -> None:
    """Nobody knows its number, so nobody can have committed it."""
    story = TransactionStory()
    story.info(story.begin(story.begin_of(NAME), "t0"))
    story.pulls_queue(0, NAME)
    assert transactions.check(story.history, story.end())
