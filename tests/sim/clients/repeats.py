"""Requests with idempotency keys that a client may ask once more, for as long as their keys are promised to be known."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tests.sim.clients.plan import Plan
from tests.sim.history.history import Send
from tests.sim.history.transaction_values import Begin

Keyed = TypeVar("Keyed", Send, Begin)


class ClientContext(Protocol):
    """What this needs of the clients."""

    plan: Plan

    def later(self, delay_s: float, step: Callable[[], None]) -> None:
        """Go on with *step* later."""
        ...


class Repeats(Generic[Keyed]):
    """What may be repeated, in the order in which it came. Owner: one client."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self.asked: list[Keyed] = []
        # Where the window is short: what was here once comes no second time, which would be later than it may be.
        self._known: set[Keyed] = set()

    def add(self, asked: Keyed, spent_s: float = 0.0) -> None:
        """*asked* was first asked *spent_s* ago."""
        within_s = self._context.plan.repeat_within_s
        if not within_s:
            self.asked.append(asked)
        elif asked not in self._known:
            self._known.add(asked)
            if spent_s < within_s:
                self.asked.append(asked)
                self._context.later(within_s - spent_s, lambda: self.asked.remove(asked))
