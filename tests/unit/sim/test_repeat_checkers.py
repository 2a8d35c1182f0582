"""The checker of receives that are repeated with their attempt id: good histories pass, each kind of bad one does not."""

from collections.abc import Callable

import pytest

from tern_wire.link.rows import ACK, EXTEND, RELEASE
from tests.sim.checkers import attempts, leases, repeats
from tests.sim.history.history import Held, Operation, Receive
from tests.sim.laws.observers import Observers
from tests.unit.sim.stories import GROUP, INVISIBLE_MS, TOPIC, Story, message

Tale = Callable[[Story], object]
ASKED = Receive(GROUP, TOPIC, 2, INVISIBLE_MS, "c0.1")


def gets(story: Story, *leased: tuple[int, int, int], attempt: str = "c0.1") -> Operation:
    """A receive of the attempt; (offset, lease, granted ms) of each message that it gets."""
    held = tuple(
        Held(0, offset, lease, 1, granted_ms + INVISIBLE_MS, f"p0.{offset + 1}") for offset, lease, granted_ms in leased
    )
    return story.ok(story.begin(ASKED._replace(attempt=attempt), "c0"), held)


def begun() -> Story:
    """Four messages, two of them received at 100 and held until 1,100."""
    story = Story()
    for offset in range(4):
        story.sends(message(f"p0.{offset + 1}"), offset)
    gets(story, (0, 1, 100), (1, 1, 100))
    return story


def the_same(story: Story) -> None:
    """Both, twice; and somebody else gets the third meanwhile."""
    gets(story, (0, 1, 100), (1, 1, 100))
    gets(story, (2, 2, 300), attempt="c1.1")
    gets(story, (0, 1, 100), (1, 1, 100))


def the_rest(story: Story) -> None:
    """One is acked, the other one is extended: its deadline is another one now."""
    story.settles(0, 1, ACK)
    story.settles(1, 1, EXTEND, 2_000)
    gets(story, (1, 1, 1_200))
    gets(story, (2, 2, 300), attempt="c1.1")


def others_when_it_is_over(story: Story) -> None:
    """Both are over, or given back: it is the first one again."""
    story.settles(0, 1, RELEASE)
    gets(story, (0, 3, 1_100), (2, 3, 1_100))


def leased_for_one_that_nobody_heard(story: Story) -> None:
    """The first answer of an attempt was lost; others lease meanwhile."""
    asked = ASKED._replace(attempt="c2.1")
    lost = story.begin(asked, "c2")
    gets(story, (3, 3, 300), attempt="c3.1")
    story.info(lost)
    story.ok(story.begin(asked, "c2"), (Held(0, 2, 2, 1, 200 + INVISIBLE_MS, "p0.3"),))


def others(story: Story) -> None:
    """While both are held."""
    gets(story, (2, 2, 200))


def less(story: Story) -> None:
    """One of them is missing, and a later grant shows that it was held."""
    gets(story, (0, 1, 100))
    gets(story, (2, 2, 300), attempt="c1.1")


def under_another_lease(story: Story) -> None:
    """As if it had been received anew."""
    gets(story, (0, 1, 100), (1, 2, 100))


@pytest.mark.parametrize("tale", [the_same, the_rest, others_when_it_is_over, leased_for_one_that_nobody_heard])
def test_a_repeat_may_get_what_it_holds(tale: Tale) -> None:
    """Nothing is found; nor do the other checkers of leases take it for a second lease."""
    story = begun()
    tale(story)
    for checker in (repeats, leases, attempts):
        assert checker.check(story.history, story.end()) == []


@pytest.mark.parametrize("tale", [others, less, under_another_lease])
def test_a_repeat_that_gets_something_else_is_convicted(tale: Tale) -> None:
    """Each kind."""
    story = begun()
    tale(story)
    assert repeats.check(story.history, story.end())


def test_another_attempt_with_the_same_lease_is_convicted() -> None:
    """One lease is of one receive."""
    story = begun()
    gets(story, (0, 1, 100), attempt="c1.1")
    assert leases.check(story.history, story.end())


@pytest.mark.parametrize(
    ("alive", "kept", "pairs", "is_good"), [(3, 3, 14, True), (3, 4, 14, False), (3, 3, 2_000, False)]
)
def test_deadlines_of_nothing_and_pairs_of_before_are_convicted(
    alive: int, kept: int, pairs: int, is_good: bool
) -> None:
    """After any entry."""
    observers = Observers()
    observers.deadlines("n0", alive, kept, pairs)
    assert (observers.violations == []) is is_good


def test_an_answer_that_names_a_bug_is_convicted() -> None:
    """Nothing that a client asks may meet one."""
    observers = Observers()
    observers.served("n0", 1, False)
    assert observers.violations == []
    observers.served("n0", 1, False, "IndexError at somewhere.py:1")
    assert [violation.checker for violation in observers.violations] == ["bug"]
