"""Checkers over retries and message groups: good histories pass, each kind of bad one does not."""

from collections.abc import Callable

import pytest

from tern_wire.dead_letters import EXPIRED
from tern_wire.link.rows import NACK, RELEASE
from tests.sim.checkers import attempts, group_order
from tests.sim.history.history import Receive, Redrive, Task
from tests.unit.sim.stories import GROUP, INVISIBLE_MS, TOPIC, Story, message

Tale = Callable[[Story], object]


# Attempts ---------------------------------------------------------------------------------------------------------
def held() -> Story:
    """Three attempts, 200 and then 500 ms apart; one message, received at 100."""
    story = Story()
    story.declares(3, 200, 500)
    story.sends(message("p0.1"), 0)
    story.receives(0, 1, 100)
    return story


def next_attempt(story: Story) -> None:
    """After its lease, and after its nack."""
    story.receives(0, 2, 1_100, attempt=2)
    story.settles(0, 2, NACK, -1)
    story.receives(0, 3, 1_600, attempt=3)


def released(story: Story) -> None:
    """The same attempt again."""
    story.settles(0, 1, RELEASE)
    story.receives(0, 2, 150)


def perhaps_released(story: Story) -> None:
    """It may be the same one, or the next."""
    story.info(story.begin(story.settling(0, 1, RELEASE)))
    story.receives(0, 2, 1_150, attempt=2)


def one_unseen(story: Story) -> None:
    """Somebody may have got it who was never heard."""
    story.info(story.begin(Receive(GROUP, TOPIC, 1, INVISIBLE_MS), "c1"))
    story.receives(0, 2, 2_150, attempt=3)


def sought(story: Story) -> None:
    """A seek begins anew."""
    story.commits(0)
    story.receives(0, 2, 150)


def nacked_for_less(story: Story) -> None:
    """A delay of its own, from the time that is known of."""
    story.settles(0, 1, NACK, 50)
    story.receives(0, 2, 150, attempt=2)


def perhaps_nacked(story: Story) -> None:
    """Nobody knows when, or whether."""
    story.info(story.begin(story.settling(0, 1, NACK, 900)))
    story.receives(0, 2, 1_100, attempt=2)


@pytest.mark.parametrize(
    "tell", [next_attempt, released, perhaps_released, one_unseen, sought, nacked_for_less, perhaps_nacked]
)
def test_attempts_that_count_what_failed_are_left_alone(tell: Tale) -> None:
    """Expiries and nacks count, releases do not, seeks begin anew."""
    story = held()
    tell(story)
    assert attempts.check(story.history, story.end()) == []


def same_again(story: Story) -> None:
    """Not counted."""
    story.receives(0, 2, 1_100, attempt=1)


def two_at_once(story: Story) -> None:
    """Nobody else can have got it."""
    story.receives(0, 2, 1_100, attempt=3)


def no_time_for_another(story: Story) -> None:
    """Somebody who was not heard would have held it for longer."""
    story.info(story.begin(Receive(GROUP, TOPIC, 1, INVISIBLE_MS), "c1"))
    story.receives(0, 2, 1_000, attempt=3)


def release_counted(story: Story) -> None:
    """It was answered."""
    story.settles(0, 1, RELEASE)
    story.receives(0, 2, 150, attempt=2)


def one_too_many(story: Story) -> None:
    """Three were allowed."""
    story.receives(0, 2, 1_100, attempt=2)
    story.receives(0, 3, 2_100, attempt=3)
    story.receives(0, 4, 3_100, attempt=4)


def first_is_second(story: Story) -> None:
    """Never delivered before."""
    story.sends(message("p0.2"), 1)
    story.receives(1, 2, 150, attempt=2, name="p0.2")


def before_its_delay(story: Story) -> None:
    """One ms too early after the first attempt."""
    story.settles(0, 1, NACK, -1)
    story.receives(0, 2, 299, attempt=2)


def before_its_own_delay(story: Story) -> None:
    """The delay that was asked for."""
    story.settles(0, 1, NACK, 700)
    story.receives(0, 2, 799, attempt=2)


@pytest.mark.parametrize(
    "tell",
    [
        *(same_again, two_at_once, no_time_for_another, release_counted),
        *(one_too_many, first_is_second, before_its_delay, before_its_own_delay),
    ],
)
def test_attempts_that_are_counted_wrongly_or_come_too_early(tell: Tale) -> None:
    """Too few, too many, and too soon."""
    story = held()
    tell(story)
    assert attempts.check(story.history, story.end())


# Order of message groups ------------------------------------------------------------------------------------------
def ordered() -> Story:
    """Two messages of one message group, one of another; the first one is received at 100."""
    story = Story()
    for offset, (name, message_group) in enumerate((("p0.1", "a"), ("p0.2", "a"), ("p0.3", "b"))):
        story.sends(message(name, message_group=message_group), offset)
    story.receives(0, 1, 100)
    return story


def one_after_the_other(story: Story) -> None:
    """Another message group waits for nobody."""
    story.receives(2, 2, 110, name="p0.3")
    story.settles(0, 1)
    story.receives(1, 3, 120, name="p0.2")


def same_again_first(story: Story) -> None:
    """Its lease ended."""
    story.receives(0, 2, 1_100, attempt=2)
    story.settles(0, 2)
    story.receives(1, 3, 1_200, name="p0.2")


def first_is_dead(story: Story) -> None:
    """Buried at 500."""
    story.buries(0, 16, EXPIRED, 500)
    story.receives(1, 3, 500, name="p0.2")


def sought_forward(story: Story) -> None:
    """The first one is passed over."""
    story.seeks("shift", 1, before=0, after=1)
    story.receives(1, 3, 120, name="p0.2")


def redriven(story: Story) -> None:
    """It died and was redriven, and comes when the next one is settled."""
    story.declares(1, 0)
    story.receives(1, 2, 1_100, name="p0.2")
    story.ok(story.begin(Redrive(GROUP, "t", False)), Task("done", 1, 0))
    story.settles(1, 2)
    story.receives(0, 3, 1_200)


def redriven_behind_which_all_is_settled(story: Story) -> None:
    """The first one died; the next one was settled long before it comes again, and the one after that follows it."""
    story.sends(message("p0.4", message_group="a"), 3)
    story.declares(1, 0)
    story.receives(1, 2, 1_100, name="p0.2")
    story.settles(1, 2)
    story.ok(story.begin(Redrive(GROUP, "t", False)), Task("done", 1, 0))
    story.receives(0, 3, 1_200)
    story.settles(0, 3)
    story.receives(3, 4, 1_300, name="p0.4")


def dropped(story: Story) -> None:
    """Retention has dropped the first one."""
    story.receives(1, 3, 120, name="p0.2")
    story.mins[TOPIC, 0] = 1


@pytest.mark.parametrize(
    "tell",
    [
        one_after_the_other,
        same_again_first,
        first_is_dead,
        sought_forward,
        redriven,
        redriven_behind_which_all_is_settled,
        dropped,
    ],
)
def test_messages_in_the_order_of_their_message_groups_are_left_alone(tell: Tale) -> None:
    """The next one when the one before it is settled, or gone."""
    story = ordered()
    tell(story)
    assert group_order.check(story.history, story.end()) == []


def two_in_hand(story: Story) -> None:
    """Nobody has acked the first."""
    story.receives(1, 2, 120, name="p0.2")


def next_after_a_nack(story: Story) -> None:
    """It rests, and the next one waits."""
    story.settles(0, 1, NACK, 500)
    story.receives(1, 2, 120, name="p0.2")


def next_before_it_is_buried(story: Story) -> None:
    """It is only dying."""
    story.buries(0, 16, EXPIRED, 500)
    story.receives(1, 2, 499, name="p0.2")


def back_again(story: Story) -> None:
    """After a later one."""
    story.settles(0, 1)
    story.receives(1, 2, 120, name="p0.2")
    story.receives(0, 3, 1_200, attempt=2)


def redriven_beside_another(story: Story) -> None:
    """The next one is in hand."""
    story.declares(1, 0)
    story.receives(1, 2, 1_100, name="p0.2")
    story.ok(story.begin(Redrive(GROUP, "t", False)), Task("done", 1, 0))
    story.receives(0, 3, 1_200)


def redriven_over_one_in_hand(story: Story) -> None:
    """As above, but nobody has settled the one between: the last one may not come."""
    story.sends(message("p0.4", message_group="a"), 3)
    story.declares(1, 0)
    story.receives(1, 2, 1_100, name="p0.2")
    story.ok(story.begin(Redrive(GROUP, "t", False)), Task("done", 1, 0))
    story.receives(3, 3, 1_300, name="p0.4")


def begins_in_the_middle(story: Story) -> None:
    """Nobody ever got what lies before it."""
    story.sends(message("p0.4", message_group="c"), 3)
    story.sends(message("p0.5", message_group="c"), 4)
    story.receives(4, 2, 120, name="p0.5")


@pytest.mark.parametrize(
    "tell",
    [
        *(two_in_hand, next_after_a_nack, next_before_it_is_buried, back_again),
        *(redriven_beside_another, redriven_over_one_in_hand, begins_in_the_middle),
    ],
)
def test_message_groups_out_of_order(tell: Tale) -> None:
    """Two in hand, gaps, and back again."""
    story = ordered()
    tell(story)
    assert group_order.check(story.history, story.end())
