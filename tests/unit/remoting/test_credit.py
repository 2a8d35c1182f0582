"""Credit of one link: nothing is read for which there is no room, every read is answered or given up, room is shared fairly and never lost."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tern_remoting import credit
from tern_remoting.credit import (
    BULK_SIZE_MIN_BYTES,
    FLOWS_KEPT_MAX,
    UNSENT_SIZE_MAX_BYTES,
    FairQueue,
    Grants,
    Room,
    Window,
)

KIB = 1024
PAGE = 64 * KIB
ROOM = Room(window_bytes=4 * PAGE, page_bytes=PAGE)


@dataclass
class Answerer:
    """A window whose reads answer when the test says so. Owner: one test."""

    now_s: float = 0.0
    unsent: int = 0
    begun: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window = Window(unsent=lambda: self.unsent, now=lambda: self.now_s)

    def ask(self, opaque: int, flow: str = "f", size_bytes: int = PAGE) -> bool:
        """One read; whether it waits."""

        def begin(page_bytes: int) -> None:
            assert opaque not in self.begun, "begun twice"
            self.begun[opaque] = page_bytes
            self.order.append(opaque)

        return self.window.ask(opaque, flow, size_bytes, begin, lambda: self.given_up.append(opaque))

    def answer(self, opaque: int, size_bytes: int = PAGE) -> bool:
        """The answer leaves; whether it uses credit."""
        del self.begun[opaque]
        return self.window.replied(opaque, size_bytes)

    def grant(self, grants: Grants) -> None:
        """What the asker says now arrives."""
        body = grants.due()
        if body is not None:
            self.window.granted(body)
        self.window.go_on()


# The asker ---------------------------------------------------------------------------------------------------------
def test_a_grant_is_said_once_a_quarter_of_the_window_is_taken_up() -> None:
    """Not with every answer, and at once when the pages change."""
    room = ROOM
    grants = Grants(lambda: room)
    assert grants.due() == credit.CREDIT_BODY.pack(4 * PAGE, PAGE)
    assert grants.due() is None
    grants.took(PAGE - 1)
    assert grants.due() is None
    grants.took(1)
    assert grants.due() == credit.CREDIT_BODY.pack(5 * PAGE, PAGE)
    room = Room(window_bytes=0, page_bytes=PAGE)
    grants.took(4 * PAGE)
    assert grants.due() is None, "there is no room"
    room = Room(window_bytes=PAGE, page_bytes=0)
    assert grants.due() == credit.CREDIT_BODY.pack(6 * PAGE, 0)


def test_a_grant_is_never_taken_back() -> None:
    """A smaller window counts as soon as what was granted is used."""
    room = ROOM
    grants = Grants(lambda: room)
    grants.due()
    room = Room(window_bytes=PAGE, page_bytes=1)
    assert grants.due() == credit.CREDIT_BODY.pack(4 * PAGE, 1)
    grants.took(2 * PAGE)
    assert grants.due() is None
    grants.took(2 * PAGE)
    assert grants.due() == credit.CREDIT_BODY.pack(5 * PAGE, 1)


# The answerer ------------------------------------------------------------------------------------------------------
def test_what_does_not_fit_waits_unread() -> None:
    """Begun one for one as room comes back, with the page that the asker wants; the same grant twice is one grant."""
    answerer, grants = Answerer(), Grants(lambda: ROOM)
    answerer.grant(grants)
    assert [answerer.ask(opaque) for opaque in range(6)] == [False] * 4 + [True] * 2
    assert answerer.begun == dict.fromkeys(range(4), PAGE)
    assert answerer.answer(0)
    answerer.window.go_on()
    assert len(answerer.begun) == 3, "an answer on its way is no room"
    grants.took(PAGE)
    body = grants.due()
    assert body is not None
    for _ in range(2):
        answerer.window.granted(body)
        answerer.window.go_on()
    assert list(answerer.begun) == [1, 2, 3, 4]


def test_an_answer_smaller_than_what_it_reserved_leaves_room() -> None:
    """Who reserves much and finds little costs little."""
    answerer = Answerer()
    answerer.grant(Grants(lambda: ROOM))
    for opaque in range(100):
        answerer.ask(opaque)
        assert answerer.answer(opaque, 100)
    assert answerer.window._reserved_bytes == 0
    assert not answerer.given_up


def test_a_read_that_waits_for_something_else_holds_no_room() -> None:
    """Parked, then woken: it asks again, and is begun again."""
    answerer = Answerer()
    answerer.grant(Grants(lambda: ROOM))
    for opaque in range(1_000):
        assert not answerer.ask(opaque)
        answerer.window.leave(opaque)
        answerer.window.leave(opaque)
        del answerer.begun[opaque]
    for opaque in range(4):
        assert not answerer.ask(opaque)
    assert answerer.ask(4)


def test_small_answers_need_no_credit() -> None:
    """Sends and settles: nothing reserved and little to say; a large answer uses credit though it reserved nothing."""
    answerer = Answerer()
    answerer.grant(Grants(lambda: ROOM))
    for opaque in range(4):
        answerer.ask(opaque)
    assert not answerer.window.replied(1_000, BULK_SIZE_MIN_BYTES - 1)
    assert answerer.window.replied(1_001, BULK_SIZE_MIN_BYTES)


def test_a_peer_that_grants_nothing_has_the_socket_alone() -> None:
    """An older release: no answer is marked, and nothing is begun while the kernel takes nothing."""
    answerer = Answerer()
    assert not answerer.ask(0)
    answerer.unsent = UNSENT_SIZE_MAX_BYTES + 1
    assert answerer.ask(1)
    assert not answerer.answer(0, 1 << 20)
    answerer.window.go_on()
    assert answerer.order == [0]
    answerer.unsent = 0
    answerer.window.go_on()
    assert answerer.order == [0, 1]


def test_who_waits_too_long_is_given_up() -> None:
    """The oldest first, and all of them when the link goes; each once."""
    answerer = Answerer()
    answerer.grant(Grants(lambda: Room(window_bytes=1, page_bytes=0)))
    for opaque in range(5):
        answerer.now_s = float(opaque)
        answerer.ask(opaque)
    answerer.window.give_up_after(3.0)
    assert answerer.given_up == [1]
    assert answerer.window.waiting == 3
    answerer.window.replied(2, 10)  # answered for another reason
    answerer.window.close()
    answerer.window.close()
    assert answerer.given_up == [1, 3, 4]


def test_flows_share_equally_in_bytes() -> None:
    """A flow of small reads gets as many bytes as one of large ones, a newcomer waits for nobody's backlog, and nobody saves up."""
    queue, served = FairQueue(), Counter[str]()
    answerer = Answerer()
    number = 0

    def push(flow: str, size_bytes: int) -> None:
        nonlocal number
        number += 1
        queue.push(credit._Waiting(number, flow, size_bytes, 0.0, lambda _: None, lambda: None))

    for _ in range(200):
        push("large", 64 * KIB)
        push("small", 4 * KIB)
    for _ in range(100):
        waiting = queue.pop()
        assert waiting is not None
        served[str(waiting.flow)] += waiting.size_bytes
    assert abs(served["large"] - served["small"]) <= 64 * KIB
    push("newcomer", 64 * KIB)
    assert "newcomer" in {getattr(queue.pop(), "flow", "") for _ in range(3)}
    assert answerer.given_up == []


def test_what_is_remembered_of_flows_is_bounded() -> None:
    """Of flows that come and go."""
    answerer = Answerer()
    answerer.grant(Grants(lambda: ROOM))
    for number in range(FLOWS_KEPT_MAX + 10):
        answerer.ask(number, flow=str(number))
        answerer.answer(number)
        answerer.grant(Grants(lambda: Room(window_bytes=1 << 40, page_bytes=0)))
    assert len(answerer.window._queue._served) == FLOWS_KEPT_MAX


# Both sides together -----------------------------------------------------------------------------------------------
def run_model(seed: int, *, steps: int = 400) -> None:
    """Random reads, answers, losses of interest, parkings and windows. AssertionError when a law is broken.

    Laws: what is on its way stays within the window and one answer more; each read is begun or given up; once the asker has room and
    everything is taken up, nothing waits.
    """
    rng = Random(seed)
    room = ROOM
    answerer, grants = Answerer(), Grants(lambda: room)
    sizes: dict[int, int] = {}
    wire: list[int] = []
    asked = 0

    def check() -> None:
        on_the_way = sum(wire)
        assert on_the_way + answerer.window._reserved_bytes <= largest + PAGE, (
            "more is on its way than there is room for"
        )

    largest = room.window_bytes
    answerer.grant(grants)
    for _ in range(steps):
        what = rng.random()
        if what < 0.4:
            sizes[asked] = rng.choice((100, PAGE // 2, PAGE))
            answerer.ask(asked, flow=rng.choice("abc"))
            asked += 1
        elif what < 0.7 and answerer.begun:
            opaque = rng.choice(list(answerer.begun))
            if answerer.answer(opaque, sizes[opaque]):
                wire.append(sizes[opaque])
            answerer.window.go_on()
        elif what < 0.8 and answerer.begun:
            opaque = rng.choice(list(answerer.begun))
            answerer.window.leave(opaque)
            del answerer.begun[opaque]
            answerer.window.go_on()
            answerer.ask(opaque)
        elif what < 0.95 and wire:
            grants.took(wire.pop(0))
            answerer.grant(grants)
        else:
            room = Room(window_bytes=rng.choice((0, PAGE, 4 * PAGE)), page_bytes=PAGE)
            answerer.grant(grants)
        check()
    room = ROOM
    while wire or answerer.begun or answerer.window.waiting:
        before = (len(wire), len(answerer.begun), answerer.window.waiting)
        for opaque in list(answerer.begun):
            if answerer.answer(opaque, sizes[opaque]):
                wire.append(sizes[opaque])
            answerer.window.go_on()
        while wire:
            grants.took(wire.pop(0))
        answerer.grant(grants)
        assert (len(wire), len(answerer.begun), answerer.window.waiting) != before, (
            "reads wait, and nothing will wake them"
        )
    assert answerer.window._reserved_bytes == 0, "room is reserved for nobody"


@pytest.mark.parametrize("seed", range(30))
def test_room_is_neither_lost_nor_given_twice(seed: int) -> None:
    """Whatever comes in between."""
    run_model(seed)


def _lost_with_answers_nobody_waits_for(self: Grants, size_bytes: int) -> None:
    if size_bytes != PAGE:
        self._taken += size_bytes


def _given_twice(self: Grants, size_bytes: int) -> None:
    self._taken += 2 * size_bytes


def _never_returned(self: Window, opaque: int) -> None:
    self._begun.pop(opaque, None)


def _unlimited(self: Window) -> bool:
    return self._unsent() <= UNSENT_SIZE_MAX_BYTES


def _reservation_kept(self: Window, opaque: int, size_bytes: int) -> bool:
    waiting = self._waiting.pop(opaque, None)
    if waiting is not None:
        self._queue.remove(waiting)
    self._begun.pop(opaque, None)
    self._sent_bytes += size_bytes
    return True


BUGS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "credit lost": (Grants, "took", _lost_with_answers_nobody_waits_for),
    "credit given twice": (Grants, "took", _given_twice),
    "room of a parked read never returned": (Window, "leave", _never_returned),
    "reservation kept after the answer": (Window, "replied", _reservation_kept),
    "no limit": (Window, "_has_room", _unlimited),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_convicted(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by the model, within its seeds."""
    where, name, wrong = BUGS[bug]
    monkeypatch.setattr(where, name, wrong)
    with pytest.raises(AssertionError):
        for seed in range(30):
            run_model(seed)
