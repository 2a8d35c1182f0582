"""How a simulated client reaches the leader: as the proxy's GroupLink does, in callbacks instead of coroutines.

The belief about the leader comes from `not-leader` replies and, when there is none or it is silent, from asking every node for its STATUS.
What certainly did nothing is asked again elsewhere; what may have been done, only if repeating it is safe.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tern_wire.errors import NoLeader, NotLeader, OutcomeUnknown, TernError
from tern_wire.limits import APPEND_DEADLINE_MS, LEADER_WAIT_MS
from tern_wire.link.requests import ERROR, Parts, RequestCode, body_parts, read_body, read_error
from tests.sim.clients.send_encoding import Request
from tests.sim.history.history import Outcome


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply frame: code 0 or ERROR, and its body."""

    code: int
    body: bytes | memoryview


# Told exactly once: the reply, or None when there was none (link gone, time-out): outcome unknown.
Told = Callable[[Answer | None], None]
# (broker node, request code, body parts, time-out in s, told)
Ask = Callable[[str, int, Parts, float, Told], None]
CallLater = Callable[[float, Callable[[], None]], object]

STATUS_TIMEOUT_S = 0.3
SEARCH_INTERVAL_S = 0.1
# A leader that says nothing for so long may have a successor.
SILENCE_S = 0.25
ATTEMPT_S = 2.0
REFUSED_PAUSE_S = 0.02
DEADLINE_S, LEADER_WAIT_S = APPEND_DEADLINE_MS / 1000, LEADER_WAIT_MS / 1000


@dataclass(slots=True)
class Asking:
    """One request on its way to an answer, and then the answer. Owner: the router until `done` is called."""

    request: Request
    done: "Callable[[Asking], None]"
    until_s: float
    leader_until_s: float
    outcome: Outcome = Outcome.OPEN
    node: str = ""
    error: str = ""
    lost_attempts: int = 0
    refusals: int = 0
    head: dict[str, Any] = field(default_factory=dict)
    raw: memoryview = memoryview(b"")


class Router:
    """Requests to one broker group, as seen from one proxy. Owner: the clients."""

    def __init__(self, ask: Ask, brokers: list[str], now_s: Callable[[], float], call_later: CallLater) -> None:
        self._ask, self._brokers, self._now_s, self._call_later = ask, brokers, now_s, call_later
        self._leader = ""
        self._waiting: list[Asking] = []
        self._unanswered = 0
        self._found: list[tuple[int, str]] = []
        # Requests without an answer, when one was last answered, and whether `_watch` is going to look at that.
        self._pending = 0
        self._heard_s = 0.0
        self._is_watching = False

    @property
    def leader(self) -> str:
        """Who is believed to lead; empty if nobody is."""
        return self._leader

    def request(self, request: Request, done: Callable[[Asking], None]) -> None:
        """Ask the leader; *done* is told once, at most DEADLINE_S (and one round trip) later."""
        now_s = self._now_s()
        self._go_on(Asking(request, done, now_s + DEADLINE_S, now_s + LEADER_WAIT_S))

    def _go_on(self, asking: Asking) -> None:
        left_s = asking.until_s - self._now_s()
        if left_s <= 0 or (not self._leader and asking.leader_until_s <= self._now_s()):
            self._end(asking, Outcome.FAIL, NoLeader.code)
        elif self._leader:
            request, node = asking.request, self._leader
            attempt_s = min(left_s, ATTEMPT_S) if request.is_repeatable else left_s
            if not self._pending:
                self._heard_s = self._now_s()
            self._pending += 1
            if not self._is_watching:
                self._is_watching = True
                self._call_later(SILENCE_S, self._watch)
            self._ask(node, request.code, request.parts, attempt_s, lambda answer: self._answered(asking, node, answer))
        else:
            self._waiting.append(asking)
            if len(self._waiting) == 1 and not self._unanswered:
                self._search()

    def _answered(self, asking: Asking, node: str, answer: Answer | None) -> None:
        asking.node = node
        self._pending -= 1
        self._heard_s = self._now_s()
        if answer is None:
            if self._leader == node:
                self._leader = ""
            if not asking.request.is_repeatable:
                self._end(asking, Outcome.INFO, "no-answer")
                return
            asking.lost_attempts += 1
            # The first one may have arrived, so from here only the deadline ends the search for its outcome.
            asking.leader_until_s = asking.until_s
            self._go_on(asking)
        elif answer.code != ERROR:
            asking.head, asking.raw = read_body(answer.body)
            asking.outcome = Outcome.OK
            asking.done(asking)
        else:
            self._refused(asking, node, read_error(answer.body))

    def _refused(self, asking: Asking, node: str, error: TernError) -> None:
        if isinstance(error, NotLeader | NoLeader):
            if self._leader == node:
                hint = str(error.fields.get("leader", ""))
                self._leader = hint if hint in self._brokers and hint != node else ""
        elif isinstance(error, OutcomeUnknown) and asking.request.is_repeatable:
            asking.lost_attempts += 1
            asking.leader_until_s = asking.until_s
        else:
            # 500 is a broker that could not explain itself: it may have done it.
            is_open = isinstance(error, OutcomeUnknown) or error.status == 500
            self._end(asking, Outcome.INFO if is_open else Outcome.FAIL, error.code)
            return
        asking.refusals += 1
        if asking.refusals == 1:
            self._go_on(asking)
        else:  # hints point in a circle, or a new leader does not serve yet
            self._leader = ""
            self._call_later(min(asking.refusals * REFUSED_PAUSE_S, SEARCH_INTERVAL_S), lambda: self._go_on(asking))

    @staticmethod
    def _end(asking: Asking, outcome: Outcome, error: str) -> None:
        # "Nothing was stored" is true of the last attempt only.
        asking.outcome = Outcome.INFO if asking.lost_attempts else outcome
        asking.error = error
        asking.done(asking)

    def _watch(self) -> None:
        self._is_watching = self._pending > 0
        if self._is_watching:
            if self._now_s() - self._heard_s >= SILENCE_S and not self._unanswered:
                self._search()
            self._call_later(SILENCE_S, self._watch)

    # Who leads -------------------------------------------------------------------------------------------------
    def _search(self) -> None:
        """Ask all nodes again and again, as long as somebody waits."""
        self._unanswered, self._found = len(self._brokers), []
        for node in self._brokers:
            self._ask(
                *(node, RequestCode.STATUS, body_parts({}), STATUS_TIMEOUT_S),
                lambda answer, node=node: self._status(node, answer),  # type: ignore[misc]
            )

    def _status(self, node: str, answer: Answer | None) -> None:
        self._unanswered -= 1
        if answer is not None and answer.code != ERROR:
            head, _ = read_body(answer.body)
            if head.get("role") == "leader" and head.get("serving", True):
                self._found.append((int(head["term"]), node))
        if self._unanswered:
            return
        if self._found:
            self._leader = max(self._found)[1]
            self._wake()
        elif self._waiting:
            self._call_later(SEARCH_INTERVAL_S, self._search_again)

    def _search_again(self) -> None:
        now_s = self._now_s()
        over = [asking for asking in self._waiting if asking.leader_until_s <= now_s]
        self._waiting = [asking for asking in self._waiting if asking.leader_until_s > now_s]
        for asking in over:
            self._end(asking, Outcome.FAIL, NoLeader.code)
        if self._leader:
            self._wake()
        elif self._waiting and not self._unanswered:
            self._search()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for asking in waiting:
            self._go_on(asking)
