"""Requests under way at the nodes of one broker group, and when to stop waiting for them.

A stopped or disconnected leader keeps its connections open and sends nothing. Its requests end here
once another node is known to serve; until then a silent leader triggers a round of STATUS requests.
Silence alone ends nothing: a slow leader is still the leader.
 begin ......... answered               the usual case
 begin .... another node serves ....... given up: at once if the node has been silent for GRACE_S,
                                        else when it has been
 begin ........ SILENCE_S of nothing .. on_silence, again every ASK_AGAIN_S until an answer comes
Owner of all state: the GroupLink that made it, in its event loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

# A leader deposed in order answers all its requests within a turn or two of its loop. Those answers
# are better than open outcomes, so they are waited for. A paused leader has been silent for longer
# than this by the time another one serves.
GRACE_S = 0.1
# Most answers take a few ms, a synced append on a busy disk some hundred: earlier STATUS requests
# would be noise. Brokers notice a silent leader after about as long, so the first one meets the
# election under way.
SILENCE_S = 0.4
# An election is short, and each round costs one small frame a node.
ASK_AGAIN_S = 0.2


class Attempt:
    """One request at one node.
    *is_prompt*: the answer is due at once; a parked NOTIFY may take seconds.
    """

    __slots__ = ("began", "give_up", "is_prompt", "node")

    def __init__(self, node: str, began: float, give_up: Callable[[], None], *, is_prompt: bool) -> None:
        self.node, self.began, self.give_up, self.is_prompt = node, began, give_up, is_prompt


class Timer(Protocol):
    """The handle of a scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Attempts:
    """All attempts of one broker group, oldest first.
    *now*, *call_at*: the loop's clock in seconds.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Timer],
        on_silence: Callable[[], None],
    ) -> None:
        self._now, self._call_at, self._on_silence = now, call_at, on_silence
        # Dictionaries for their order: requests are given up, and so repeated, in the order of
        # sending.
        self._prompt: dict[Attempt, None] = {}
        self._patient: dict[Attempt, None] = {}
        self._answered_at: dict[str, float] = {}
        self._watch: Timer | None = None
        self._endings: dict[str, Timer] = {}

    def begin(self, node: str, give_up: Callable[[], None], *, is_prompt: bool) -> Attempt:
        """Record a request to *node*; *give_up* ends the wait for its answer, at most once."""
        attempt = Attempt(node, self._now(), give_up, is_prompt=is_prompt)
        if is_prompt:
            self._prompt[attempt] = None
            if self._watch is None:
                self._watch = self._call_at(attempt.began + SILENCE_S, self._look)
        else:
            self._patient[attempt] = None
        return attempt

    def end(self, attempt: Attempt, *, is_answered: bool) -> None:
        """Stop watching *attempt*: answered, lost, given up or cancelled."""
        (self._prompt if attempt.is_prompt else self._patient).pop(attempt, None)
        if is_answered:
            self._answered_at[attempt.node] = self._now()

    def supersede(self, leader: str) -> None:
        """Give up attempts at all nodes but *leader*, once they have been silent for GRACE_S."""
        self._keep(leader)
        now = self._now()
        for node in {attempt.node for attempt in (*self._prompt, *self._patient)} - {leader}:
            end_at = self._quiet_since(node) + GRACE_S
            if end_at <= now:
                self._give_up(node)
            elif node not in self._endings:
                # Later answers do not extend this: a live node has answered everything by then.
                self._endings[node] = self._call_at(now + GRACE_S, partial(self._give_up, node))

    def forget(self, node: str) -> None:
        """Forget *node*, which left the group; its closed link ends its attempts."""
        self._keep(node)
        self._answered_at.pop(node, None)

    def close(self) -> None:
        """Cancel all timers."""
        for timer in (*self._endings.values(), *([self._watch] if self._watch is not None else [])):
            timer.cancel()
        self._endings.clear()
        self._watch = None

    def _keep(self, node: str) -> None:
        if (timer := self._endings.pop(node, None)) is not None:
            timer.cancel()

    def _give_up(self, node: str) -> None:
        self._keep(node)
        for under_way in (self._prompt, self._patient):
            for attempt in [attempt for attempt in under_way if attempt.node == node]:
                del under_way[attempt]
                attempt.give_up()

    def _quiet_since(self, node: str) -> float:
        """The time since which an answer of *node* is due: its last one, or the oldest request
        after it.
        A patient attempt may rightly wait long at a live node, so it counts only without a prompt
        one.
        """
        for under_way in (self._prompt, self._patient):
            began = next((attempt.began for attempt in under_way if attempt.node == node), None)
            if began is not None:
                return max(began, self._answered_at.get(node, began))
        return self._now()

    def _look(self) -> None:
        """Report silence, and look again when the next one could be complete."""
        self._watch = None
        now = self._now()
        oldest: dict[str, float] = {}
        for attempt in self._prompt:
            oldest.setdefault(attempt.node, attempt.began)
        if not oldest:
            return
        quiet_since = min(max(began, self._answered_at.get(node, began)) for node, began in oldest.items())
        look_at = quiet_since + SILENCE_S
        if look_at <= now:
            self._on_silence()
            look_at = now + ASK_AGAIN_S
        self._watch = self._call_at(look_at, self._look)
