"""When requests at a node are given up and when silence is told: a table of moments on a clock that the test turns."""

import heapq
from collections.abc import Callable

import pytest

from tern_routing.attempts import ASK_AGAIN_S, GRACE_S, SILENCE_S, Attempt, Attempts
from tern_routing.leadership import LeaderBelief


class Call:
    """A call that is due at a time."""

    def __init__(self, at: float, number: int, callback: Callable[[], None]) -> None:
        self.at, self.number, self.callback, self.is_cancelled = at, number, callback, False

    def cancel(self) -> None:
        """It will not be made."""
        self.is_cancelled = True

    def __lt__(self, other: "Call") -> bool:
        return (self.at, self.number) < (other.at, other.number)


class Clock:
    """Time that stands still until it is turned; then what is due is called, in order."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.made = 0
        self._due: list[Call] = []

    def call_at(self, at: float, callback: Callable[[], None]) -> Call:
        """As the loop's."""
        self.made += 1
        call = Call(at, self.made, callback)
        heapq.heappush(self._due, call)
        return call

    def turn(self, seconds: float) -> None:
        """Let *seconds* pass."""
        end = self.now_s + seconds
        while self._due and self._due[0].at <= end:
            call = heapq.heappop(self._due)
            self.now_s = max(self.now_s, call.at)
            if not call.is_cancelled:
                call.callback()
        self.now_s = end

    @property
    def waiting(self) -> int:
        """Calls that will be made."""
        return sum(not call.is_cancelled for call in self._due)


class World:
    """Attempts on such a clock, and what came of them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.silences: list[float] = []
        self.given_up: list[str] = []
        self.attempts = Attempts(
            now=lambda: self.clock.now_s,
            call_at=self.clock.call_at,
            on_silence=lambda: self.silences.append(self.clock.now_s),
        )

    def begin(self, name: str, node: str = "a", *, is_prompt: bool = True) -> Attempt:
        """A request called *name* at *node*."""
        return self.attempts.begin(node, lambda: self.given_up.append(name), is_prompt=is_prompt)

    def answer(self, attempt: Attempt) -> None:
        """Its answer came."""
        self.attempts.end(attempt, is_answered=True)


@pytest.fixture
def world() -> World:
    """One broker group at work."""
    return World()


def test_a_silent_leaders_requests_end_at_once_when_another_serves_and_in_their_order(world: World) -> None:
    """Nothing more is waited for than the next leader; who was first is repeated first. The new leader's own go on."""
    for name in ("first", "second", "third"):
        world.begin(name)
    world.begin("at the new one", "b")
    world.begin("parked", is_prompt=False)
    world.clock.turn(0.9)
    world.attempts.supersede("b")
    assert world.given_up == ["first", "second", "third", "parked"]


def test_a_deposed_leader_that_lives_has_the_grace_to_answer(world: World) -> None:
    """Its answers are better than open outcomes; what it has not answered by then is given up although it goes on answering."""
    held, answered, last = world.begin("held"), world.begin("answered"), world.begin("last")
    world.clock.turn(0.01)
    world.attempts.supersede("b")
    assert world.given_up == []
    world.clock.turn(GRACE_S / 2)
    world.answer(answered)
    world.clock.turn(GRACE_S / 3)
    world.answer(last)
    assert world.given_up == []
    world.clock.turn(GRACE_S / 3)
    assert world.given_up == ["held"]
    world.attempts.end(held, is_answered=False)
    assert world.given_up == ["held"]


def test_a_poll_that_waits_for_long_does_not_make_a_leader_silent(world: World) -> None:
    """A send of a moment ago, beside a parked poll, has the grace too."""
    world.begin("parked", is_prompt=False)
    world.clock.turn(5.0)
    world.begin("send")
    world.attempts.supersede("b")
    assert world.given_up == []


def test_a_leader_that_came_back_keeps_its_requests(world: World) -> None:
    """Deposed and elected again within the grace: nothing is given up."""
    world.begin("send")
    world.attempts.supersede("b")
    world.attempts.supersede("a")
    world.clock.turn(10 * GRACE_S)
    assert world.given_up == []


def test_silence_is_told_once_it_is_complete_and_again_while_it_lasts(world: World) -> None:
    """And ends with the first answer to anything."""
    world.begin("send")
    world.clock.turn(SILENCE_S * 0.9)
    assert world.silences == []
    world.clock.turn(SILENCE_S * 0.2)
    assert len(world.silences) == 1
    world.clock.turn(3 * ASK_AGAIN_S)
    assert len(world.silences) == 4
    world.answer(world.begin("another"))
    world.clock.turn(SILENCE_S * 0.5)
    assert len(world.silences) == 4


def test_a_slow_leader_that_answers_something_is_not_silent(world: World) -> None:
    """One answer in every half second's fraction is a sign of life, however old the oldest request is; nothing is given up."""
    world.begin("old")
    for _ in range(20):
        one = world.begin("one")
        world.clock.turn(SILENCE_S * 0.8)
        world.answer(one)
    assert (world.silences, world.given_up) == ([], [])


def test_parked_polls_are_not_watched_and_an_idle_group_has_no_timer(world: World) -> None:
    """A NOTIFY may rightly take ten seconds; without requests nothing ticks."""
    world.begin("parked", is_prompt=False)
    assert world.clock.waiting == 0
    world.answer(world.begin("send"))
    world.clock.turn(10.0)
    assert (world.silences, world.clock.waiting) == ([], 0)


def test_closing_stops_the_timers(world: World) -> None:
    """Neither the watch nor a grace fires afterwards."""
    world.begin("send")
    world.attempts.supersede("b")
    world.attempts.close()
    world.clock.turn(10.0)
    assert (world.silences, world.given_up) == ([], [])


# The belief -------------------------------------------------------------------------------------------------------
def test_an_older_term_never_wins() -> None:
    """Nor a second leader of the same term; the first one may come back in it."""
    belief = LeaderBelief()
    assert belief.serves("a", 3)
    assert belief.serves("b", 5)
    assert not belief.serves("a", 4)
    assert not belief.serves("a", 5)
    belief.forget("b")
    assert not belief.serves("a", 5)
    assert belief.serves("b", 5)
    assert (belief.leader, belief.term) == ("b", 5)


def test_a_late_resignation_does_not_unseat() -> None:
    """What a node said of an older term is over; of this term it counts, but only of itself."""
    belief = LeaderBelief()
    belief.serves("a", 5)
    belief.resigns("a", 4)
    belief.resigns("b", 7)
    assert belief.leader == "a"
    belief.resigns("a", 5)
    assert belief.leader == ""


def test_a_hint_is_a_guess() -> None:
    """It is followed, and any word with a term replaces it; a refusal by somebody else changes nothing."""
    belief = LeaderBelief()
    belief.serves("a", 5)
    belief.refused("b", "c")
    assert belief.leader == "a"
    belief.refused("a", "b")
    assert (belief.leader, belief.term) == ("b", 5)
    assert belief.serves("c", 6)
    belief.refused("c", "c")
    assert belief.leader == ""
