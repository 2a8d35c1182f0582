"""Checkers over dead letters, delivery times and seeks: good histories pass, each kind of bad one does not."""

from collections.abc import Callable

import pytest

from tern_wire.dead_letters import EXPIRED, NACKED, REJECTED
from tern_wire.errors import AlreadyDelivered, NotScheduled
from tern_wire.link.rows import ACK, SCHEDULED
from tests.sim.checkers import attempts, dead_letters, delays, seeks
from tests.sim.history.history import Browse, Browsed, Operation, Recall, Redrive, Seek, Send, Sent, Task
from tests.unit.sim.stories import GROUP, TOPIC, Story, message

Tale = Callable[[Story], object]


# Dead letters -----------------------------------------------------------------------------------------------------
def dead() -> Story:
    """Two attempts of 0, used up and buried at 2,200; 1 rejected and buried at 2,300."""
    story = Story()
    story.declares(2, 0)
    story.sends(message("p0.1"), 0)
    story.sends(message("p0.2"), 1)
    story.receives(0, 1, 100)
    story.receives(0, 2, 1_100, attempt=2)
    story.receives(1, 3, 1_200, name="p0.2")
    story.rejects(1, 3)
    story.buries(0, 2, EXPIRED, 2_200)
    story.buries(1, 1, REJECTED, 2_300, name="p0.2")
    return story


def browsed(story: Story) -> Operation:
    """All of it."""
    return story.ok(story.begin(Browse(GROUP, 0), "drain"), Browsed(-1, len(story.letters), tuple(story.letters)))


def test_what_died_lies_there_once() -> None:
    """And whoever browses sees it; an ack that came too late is answered well, and changes nothing."""
    story = dead()
    story.settles(0, 2)
    story.letters.reverse()
    story.letters[:] = [letter._replace(offset=number) for number, letter in enumerate(story.letters)]
    browsed(story)
    assert dead_letters.check(story.history, story.end()) == []


def test_what_is_redriven_lives_again() -> None:
    """It is delivered, and no dead letter any more."""
    story = dead()
    story.ok(story.begin(Redrive(GROUP, "t", False)), Task("done", 2, 0))
    story.receives(0, 4, 3_000)
    story.letters.clear()
    assert dead_letters.check(story.history, story.end()) == []
    assert attempts.check(story.history, story.end()) == []


def buried_twice(story: Story) -> None:
    """At two offsets."""
    story.buries(0, 2, EXPIRED, 2_200)


def another_message(story: Story) -> None:
    """Its bytes are another's."""
    story.letters[0] = story.letters[0]._replace(body_name="p0.2")


def too_early(story: Story) -> None:
    """It had one more attempt."""
    story.letters[0] = story.letters[0]._replace(attempts=1, cause=NACKED)


def nobody_rejected(story: Story) -> None:
    """Not that message."""
    story.letters[0] = story.letters[0]._replace(cause=REJECTED)


def rejected_and_gone(story: Story) -> None:
    """It was answered."""
    del story.letters[1]


def used_up_and_gone(story: Story) -> None:
    """Nobody acked it."""
    del story.letters[0]


def delivered_afterwards(story: Story) -> None:
    """At 2,400."""
    story.receives(0, 4, 2_400, attempt=2)


def acked_before(story: Story) -> None:
    """As a lease at 2,150 shows."""
    story.settles(0, 2)
    story.sends(message("p0.3"), 2)
    story.receives(2, 4, 2_150, name="p0.3")


def browsed_less(story: Story) -> None:
    """One is not shown."""
    letters = tuple(story.letters[:1])
    story.ok(story.begin(Browse(GROUP, 0), "drain"), Browsed(-1, 1, letters))


@pytest.mark.parametrize(
    "tell",
    [
        *(buried_twice, another_message, too_early, nobody_rejected, rejected_and_gone, used_up_and_gone),
        *(delivered_afterwards, acked_before, browsed_less),
    ],
)
def test_dead_letters_that_are_wrong(tell: Tale) -> None:
    """Twice, of the living, missing, delivered, not shown."""
    story = dead()
    tell(story)
    assert dead_letters.check(story.history, story.end())


# Delivery times ---------------------------------------------------------------------------------------------------
def scheduled() -> Story:
    """One message for 500 or later, stored in the end; one for 600, of which nobody knows yet."""
    story = Story()
    for name, deliver_ms in (("p0.1", 500), ("p0.2", 600)):
        story.ok(story.begin(Send(TOPIC, (message(name, deliver_ms=deliver_ms),))), (Sent(SCHEDULED, 0, deliver_ms),))
    story.put("p0.1", 0)
    return story


def recall(deliver_ms: int = 600, name: str = "p0.2") -> Recall:
    """The question alone."""
    return Recall(TOPIC, name, deliver_ms, deliver_ms)


def in_time(story: Story) -> None:
    """Both, one of them late."""
    story.receives(0, 1, 500)
    story.put("p0.2", 1)
    story.receives(1, 2, 900, name="p0.2")
    story.history.fail(story.begin(recall()), "n0", AlreadyDelivered.code)


def recalled(story: Story) -> None:
    """The second one is never seen."""
    story.ok(story.begin(recall()), None)
    story.history.fail(story.begin(recall()), "n0", NotScheduled.code)


def perhaps_recalled(story: Story) -> None:
    """It may be missing, then."""
    story.info(story.begin(recall()))


@pytest.mark.parametrize("tell", [in_time, recalled, perhaps_recalled])
def test_messages_that_come_in_time_or_were_recalled_are_left_alone(tell: Tale) -> None:
    """Late is in time."""
    story = scheduled()
    tell(story)
    assert delays.check(story.history, story.end()) == []


def received_early(story: Story) -> None:
    """One ms."""
    in_time(story)
    story.receives(0, 3, 499)


def pulled_early(story: Story) -> None:
    """A later lease shows how early."""
    recalled(story)
    story.sends(message("p0.3"), 1)
    story.pulls(0, "p0.1", end=2)
    story.receives(1, 3, 499, name="p0.3")


def never_delivered(story: Story) -> None:
    """Nobody recalled the second one."""


def recalled_and_delivered(story: Story) -> None:
    """It was answered."""
    recalled(story)
    story.put("p0.2", 1)


def recalled_and_shown(story: Story) -> None:
    """To one reader."""
    recalled(story)
    story.receives(1, 2, 900, name="p0.2")


def not_scheduled(story: Story) -> None:
    """It was accepted, and nobody else recalled it."""
    story.put("p0.2", 1)
    story.history.fail(story.begin(recall()), "n0", NotScheduled.code)


@pytest.mark.parametrize(
    "tell",
    [received_early, pulled_early, never_delivered, recalled_and_delivered, recalled_and_shown, not_scheduled],
)
def test_messages_that_come_early_never_or_in_spite_of_a_recall(tell: Tale) -> None:
    """All that a delivery time promises."""
    story = scheduled()
    tell(story)
    assert delays.check(story.history, story.end())


# Seeks ------------------------------------------------------------------------------------------------------------
def five() -> Story:
    """Messages 0 to 4, stored at 10, 20 ... 50; the group has acked 0 and 1."""
    story = Story()
    for offset in range(5):
        operation = story.begin(Send(TOPIC, (message(f"p0.{offset}"),)))
        story.put(f"p0.{offset}", offset, operation, stored_ms=10 * (offset + 1))
        story.ok(operation, (Sent(0, 0, offset),))
    for offset in range(2):
        story.receives(offset, offset + 1, 100, name=f"p0.{offset}")
        story.settles(offset, offset + 1, ACK)
    return story


def delivers(story: Story, *offsets: int) -> None:
    """These are received afterwards."""
    for offset in offsets:
        story.receives(offset, 100 + offset, 5_000, name=f"p0.{offset}")


@pytest.mark.parametrize(
    ("to", "number", "after"),
    [
        *(("earliest", 0, 0), ("latest", 0, 5), ("shift", -1, 1), ("shift", 2, 4), ("shift", -9, 0), ("shift", 9, 5)),
        *(("time", 30, 2), ("time", 21, 2), ("time", 99, 5), ("time", 0, 0)),
    ],
)
def test_a_seek_that_leads_where_it_should_is_left_alone(to: str, number: int, after: int) -> None:
    """From 2, as far as the queue goes."""
    story = five()
    story.seeks(to, number, before=2, after=after)
    delivers(story, *range(after, 5))
    assert seeks.check(story.history, story.end()) == []


@pytest.mark.parametrize(
    ("to", "number", "after"),
    [
        *(("earliest", 0, 1), ("latest", 0, 4), ("shift", -1, 2), ("shift", 2, 3), ("shift", 2, 5), ("shift", -9, 1)),
        *(("time", 30, 3), ("time", 30, 1), ("time", 99, 4)),
    ],
)
def test_a_seek_that_leads_elsewhere(to: str, number: int, after: int) -> None:
    """One too far, one too near."""
    story = five()
    story.seeks(to, number, before=2, after=after)
    delivers(story, *range(after, 5))
    assert seeks.check(story.history, story.end())


def test_what_a_group_was_moved_to_is_delivered() -> None:
    """Again, from there on; unless it may have been moved on, or the message died."""
    story = five()
    story.seeks("shift", -1, before=2, after=1)
    delivers(story, 1, 2, 4)
    assert seeks.check(story.history, story.end())
    story.buries(3, 16, EXPIRED, 9_000)
    assert seeks.check(story.history, story.end()) == []
    story.letters.clear()
    story.info(story.begin(Seek(GROUP, TOPIC, "latest", 0)))
    assert seeks.check(story.history, story.end()) == []
