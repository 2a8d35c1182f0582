"""Requests under way at the nodes of one broker group: whom they wait for, since when, and when to stop waiting.

A leader that was stopped or cut off keeps its connections open and answers nothing. Its requests end here once another node is known
to serve; until then somebody is told that it is silent, and asks around. Silence alone ends nothing: a slow leader is still the leader.

    begin ......... answered               the usual case
    begin .... another node serves ....... given up: at once if the node has been silent for GRACE_S, else when it has been
    begin ........ SILENCE_S of nothing .. on_silence, again every ASK_AGAIN_S until an answer comes

Owner of all state: the GroupLink that made it, in its event loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

# A leader that was deposed in order answers all that it holds within a turn or two of its loop; its answers are better than open
# outcomes, so they are waited for. A paused one has been silent for longer than this by the time another one serves.
GRACE_S = 0.1
# Most answers take a few ms, a synced append on a busy disk some hundred: asking around sooner would be noise, and asks nothing of
# the disk. Brokers notice a silent leader after about as long, so the first question finds the election under way.
SILENCE_S = 0.4
# An election is over soon after it began; each asking costs one small frame a node.
ASK_AGAIN_S = 0.2


class Attempt:
    """One request at one node. *is_prompt*: an answer is due at once (a parked NOTIFY may rightly take seconds)."""

    __slots__ = ("began", "give_up", "is_prompt", "node")

    def __init__(self, node: str, began: float, give_up: Callable[[], None], *, is_prompt: bool) -> None:
        self.node, self.began, self.give_up, self.is_prompt = node, began, give_up, is_prompt


class Timer(Protocol):
    """What a clock gives for a call at a time."""

    def cancel(self) -> None:
        """The call will not be made."""
        ...


class Attempts:
    """All of one broker group, oldest first. *now* and *call_at* are the loop's clock, in seconds."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], Timer],
        on_silence: Callable[[], None],
    ) -> None:
        self._now, self._call_at, self._on_silence = now, call_at, on_silence
        # Dictionaries for their order: what was sent first is given up, and so repeated, first.
        self._prompt: dict[Attempt, None] = {}
        self._patient: dict[Attempt, None] = {}
        self._answered_at: dict[str, float] = {}
        self._watch: Timer | None = None
        self._endings: dict[str, Timer] = {}

    def begin(self, node: str, give_up: Callable[[], None], *, is_prompt: bool) -> Attempt:
        """A request was sent to *node*; *give_up* ends the wait for its answer, and is called at most once."""
        attempt = Attempt(node, self._now(), give_up, is_prompt=is_prompt)
        if is_prompt:
            self._prompt[attempt] = None
            if self._watch is None:
                self._watch = self._call_at(attempt.began + SILENCE_S, self._look)
        else:
            self._patient[attempt] = None
        return attempt

    def end(self, attempt: Attempt, *, is_answered: bool) -> None:
        """It needs no watching any more: answered, lost, given up or cancelled."""
        (self._prompt if attempt.is_prompt else self._patient).pop(attempt, None)
        if is_answered:
            self._answered_at[attempt.node] = self._now()

    def supersede(self, leader: str) -> None:
        """*leader* serves now: attempts at all other nodes are given up, as soon as their nodes have been silent for GRACE_S."""
        self._keep(leader)
        now = self._now()
        for node in {attempt.node for attempt in (*self._prompt, *self._patient)} - {leader}:
            end_at = self._quiet_since(node) + GRACE_S
            if end_at <= now:
                self._give_up(node)
            elif node not in self._endings:
                # Not put off by answers that still come: by then a node that lives has answered everything.
                self._endings[node] = self._call_at(now + GRACE_S, partial(self._give_up, node))

    def forget(self, node: str) -> None:
        """*node* left the group; its link is closed, so its attempts end by themselves."""
        self._keep(node)
        self._answered_at.pop(node, None)

    def close(self) -> None:
        """No timer fires any more."""
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
        """Since when an answer of *node* has been due: its last one, or the oldest question after it.

        A patient attempt may have waited for long at a node that lives, so it counts only where there is no prompt one.
        """
        for under_way in (self._prompt, self._patient):
            began = next((attempt.began for attempt in under_way if attempt.node == node), None)
            if began is not None:
                return max(began, self._answered_at.get(node, began))
        return self._now()

    def _look(self) -> None:
        """Tell of silence, and look again when the next one could be complete."""
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
