"""Checkers over messages: each leaves a good history alone, and convicts one of every kind that it is there for."""

from collections.abc import Callable

import pytest

from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.rows import KEY_REUSED, NO_QUEUE, REPLAYED, SENT
from tests.sim.checkers import duplicates, every, lost, reads, send_order, unexpected
from tests.sim.clients.bodies import message_id
from tests.sim.history.history import Send, Sent
from tests.unit.sim.stories import TOPIC, Story, message

Bad = Callable[[Story], object]


def good_story() -> Story:
    """Sends with every outcome, a repeat, reads: all as it should be."""
    story = Story()
    first = story.sends(message("p0.1", key="k1"), 0)
    story.sends(message("p0.1", key="k1"), 0, REPLAYED, message_id(first.number, 0))
    story.sends(message("p0.2"), 1)
    unknown = story.begin(Send(TOPIC, (message("p0.3"),)))
    story.put("p0.3", 2, unknown)  # an unknown outcome that turns out to be there
    story.info(unknown)
    story.info(story.begin(Send(TOPIC, (message("p0.4"),))))  # and one that is not
    story.fail(story.begin(Send(TOPIC, (message("p0.5"),))))
    story.sends(message("p0.6", queue=9), -1, NO_QUEUE)
    overlapping = [story.begin(Send(TOPIC, (message(name),)), "p1") for name in ("p1.1", "p1.2")]
    for operation, offset in zip(overlapping, (4, 3), strict=True):  # asked at once: any order is right
        story.put(f"p1.{5 - offset}", offset, operation)
        story.ok(operation, (Sent(SENT, 0, offset),))
    story.pulls(0, "p0.1", "p0.2", "p0.3", "p1.2", "p1.1", end=5)
    story.receives(0, 1, 100, name="p0.1")
    story.settles(0, 1)
    return story


def test_a_good_history_is_left_alone_by_every_checker() -> None:
    """No checker sees a violation where there is none."""
    story = good_story()
    assert every.check_all(story.history, story.end()) == []


def absent(story: Story) -> None:
    """Acknowledged, and nowhere."""
    story.sends(message("p2.1"), 5, is_stored=False)


def elsewhere(story: Story) -> None:
    """Acknowledged at 5, stored at 6, where another one is at 5."""
    story.sends(message("p2.1"), 5, is_stored=False)
    story.put("p2.1", 6)
    story.put("p0.4", 5)


def lost_on_one_node_only(story: Story) -> None:
    """One node has it, the other has not: `end` is made of both."""
    story.sends(message("p2.1"), 5)


@pytest.mark.parametrize("spoil", [absent, elsewhere])
def test_an_acknowledged_message_that_is_not_where_its_receipt_says_is_lost(spoil: Bad) -> None:
    """Absent, or another one in its place."""
    story = good_story()
    spoil(story)
    assert {violation.checker for violation in lost.check(story.history, story.end())} == {"lost"}


def test_a_message_is_lost_when_one_node_of_two_lacks_it() -> None:
    """All nodes are looked at, not the first one."""
    story = good_story()
    whole = story.node("n0")
    story.queues[TOPIC, 0].pop()
    assert len(lost.check(story.history, story.end(whole, story.node("n1")))) == 1


def test_what_retention_has_dropped_is_not_lost() -> None:
    """Below the oldest offset nothing is demanded."""
    story = good_story()
    story.queues[TOPIC, 0] = [stored for stored in story.queues[TOPIC, 0] if stored.offset >= 2]
    story.mins[TOPIC, 0] = 2
    assert lost.check(story.history, story.end()) == []


def nobody_sent_it(story: Story) -> None:
    """A body that no client made."""
    story.put("?deadbeef", 5)


def refused_yet_there(story: Story) -> None:
    """A `fail` that was none."""
    story.put("p0.5", 5)


def refused_row_yet_there(story: Story) -> None:
    """An `ok` whose verdict said NO_QUEUE."""
    story.put("p0.6", 0, queue=9)


def twice_without_a_key(story: Story) -> None:
    """An unknown outcome may be there once, not twice."""
    story.put("p0.3", 5)


def in_another_queue(story: Story) -> None:
    """Sent to queue 0."""
    story.put("p0.4", 0, queue=1)


@pytest.mark.parametrize(
    "spoil", [nobody_sent_it, refused_yet_there, refused_row_yet_there, twice_without_a_key, in_another_queue]
)
def test_what_nobody_may_have_stored_is_unexpected(spoil: Bad) -> None:
    """Never sent, refused, stored twice, in a wrong queue."""
    story = good_story()
    spoil(story)
    assert unexpected.check(story.history, story.end())


def stored_twice(story: Story) -> None:
    """Two copies of one key."""
    story.put("p0.1", 5)


def other_receipt(story: Story) -> None:
    """The repeat names another offset."""
    story.sends(message("p0.1", key="k1"), 1, REPLAYED, message_id(0, 0))


def sent_again(story: Story) -> None:
    """The repeat is SENT, at the same offset."""
    story.sends(message("p0.1", key="k1"), 0, SENT, is_stored=False)


def other_first_id(story: Story) -> None:
    """The replay's receipt is another message's."""
    story.sends(message("p0.1", key="k1"), 0, REPLAYED, message_id(77, 0))


def called_another_message(story: Story) -> None:
    """The body is the same."""
    story.sends(message("p0.1", key="k1"), 0, KEY_REUSED)


@pytest.mark.parametrize("spoil", [stored_twice, other_receipt, sent_again, other_first_id, called_another_message])
def test_a_key_that_does_not_do_its_work_is_a_duplicate(spoil: Bad) -> None:
    """Two offsets, two receipts, a second store, a foreign receipt, a refusal."""
    story = good_story()
    spoil(story)
    assert duplicates.check(story.history, story.end())


def test_a_key_is_promised_for_its_window_alone() -> None:
    """Copies further apart than the window, in the group's time, are no violation."""
    story = good_story()
    story.put("p0.1", 5, stored_ms=5 + IDEMPOTENCY_WINDOW_MS)
    assert duplicates.check(story.history, story.end()) == []


def test_the_first_receipt_of_a_message_that_is_gone_may_be_gone() -> None:
    """A replay without an id is right only below the oldest message kept."""
    story = good_story()
    story.sends(message("p0.1", key="k1"), 0, REPLAYED)
    assert duplicates.check(story.history, story.end())
    story.queues[TOPIC, 0] = [stored for stored in story.queues[TOPIC, 0] if stored.offset >= 1]
    story.mins[TOPIC, 0] = 1
    assert duplicates.check(story.history, story.end()) == []


def later_but_before(story: Story) -> None:
    """Invoked after p0.2 was acknowledged at 1, and lies at 0."""
    story.sends(message("p2.1"), 0)


def rows_swapped(story: Story) -> None:
    """One send, two rows of one queue, the wrong way round."""
    operation = story.begin(Send(TOPIC, (message("p2.1"), message("p2.2"))))
    story.ok(operation, (Sent(SENT, 0, 8), Sent(SENT, 0, 7)))


@pytest.mark.parametrize("spoil", [later_but_before, rows_swapped])
def test_messages_in_another_order_than_they_were_accepted_in(spoil: Bad) -> None:
    """Between sends, and within one."""
    story = good_story()
    spoil(story)
    assert send_order.check(story.history, story.end())


def other_bytes(story: Story) -> None:
    """A body that is not what was sent."""
    story.pulls(0, "?00ff", end=5)


def read_what_is_gone(story: Story) -> None:
    """A read of what was never committed."""
    story.pulls(5, "p0.4", end=6)


def received_another(story: Story) -> None:
    """A receive names the wrong message."""
    story.receives(1, 9, 200, name="p0.4")


def with_a_gap(story: Story) -> None:
    """Asked from 0 on, answered from 1 on."""
    story.pulls(0, "p0.2", end=5, first=1)


def wrong_next(story: Story) -> None:
    """Whoever follows this skips a message."""
    story.pulls(0, "p0.1", end=5, next_offset=2)


def nothing_though_there_is(story: Story) -> None:
    """A reader would wait for ever."""
    story.pulls(0, end=5)


@pytest.mark.parametrize(
    "spoil", [other_bytes, read_what_is_gone, received_another, with_a_gap, wrong_next, nothing_though_there_is]
)
def test_a_reader_was_served_something_else(spoil: Bad) -> None:
    """Wrong bytes, uncommitted messages, gaps."""
    story = good_story()
    spoil(story)
    assert reads.check(story.history, story.end())
