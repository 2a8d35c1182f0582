"""Parked waits for a reply: by topic and by the hash of the reply's tag. Woken at apply; no
polling.

    add ........ at most PARKED_POLLS_MAX
    applied .... a queue entry of the topic has an awaited hash -> look: the record decides
    sweep ...... the deadline has passed -> late, until it is removed

Law: a wait stays until it is removed; a wait that looks and finds another message continues. An
entry costs the waits for other replies nothing: hashes are compared as sets, for any number of
waits.
"""

from functools import partial
from typing import Protocol

import numpy as np

from tern_broker.core.applied import Applied
from tern_broker.waiting.completion import tell
from tern_broker.waiting.deadlines import Deadlines
from tern_wire.errors import Overloaded, TernError
from tern_wire.limits import PARKED_POLLS_MAX


class ReplyWait(Protocol):
    """One parked wait. Neither key nor deadline (seconds, monotonic) changes."""

    @property
    def topic_id(self) -> int:
        """The topic of the reply."""

    @property
    def tag(self) -> int:
        """The hash of the reply's tag."""

    @property
    def deadline_s(self) -> float:
        """Deadline of the wait."""

    def look(self) -> None:
        """Look: there may be a reply."""

    def late(self) -> None:
        """End the wait: the deadline has passed."""

    def refuse(self, error: TernError) -> None:
        """End the wait: this node no longer leads."""

    def fail(self, error: TernError) -> None:
        """End the wait with *error*: one of the calls above has failed."""


class ReplyWaiters:
    """Owner: the core loop; swept every few ms, only while a wait is parked."""

    def __init__(self) -> None:
        # Topic id -> hash -> waits; dictionaries keep the order.
        self._by_topic: dict[int, dict[int, dict[ReplyWait, None]]] = {}
        self._deadlines = Deadlines[ReplyWait]()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, wait: ReplyWait) -> None:
        """Park *wait*; Overloaded when there are too many."""
        if self._count >= PARKED_POLLS_MAX:
            raise Overloaded(what="parked requests")
        self._by_topic.setdefault(wait.topic_id, {}).setdefault(wait.tag, {})[wait] = None
        self._deadlines.add(wait)
        self._count += 1

    def remove(self, wait: ReplyWait) -> None:
        """Remove *wait*; a wait may be removed twice."""
        by_tag = self._by_topic.get(wait.topic_id, {})
        waits = by_tag.get(wait.tag, {})
        if wait not in waits:
            return
        del waits[wait]
        if not waits:
            del by_tag[wait.tag]
        if not by_tag:
            del self._by_topic[wait.topic_id]
        self._deadlines.remove(wait)
        self._count -= 1

    def applied(self, applied: Applied) -> None:
        """Make the waits look whose hash the entry has appended to a queue of their topic."""
        if not self._by_topic:
            return
        for appends in applied.appends:
            awaited = self._by_topic.keys() & appends.topic_ids()
            if not awaited:
                continue
            topics = np.repeat(appends.codes >> 32, np.diff(appends.bounds))
            for topic_id in awaited:
                by_tag = self._by_topic[topic_id]
                for tag in by_tag.keys() & set(appends.entries["tag"][topics == topic_id].tolist()):
                    for wait in list(by_tag[tag]):
                        tell(wait.look, wait.fail)

    def sweep(self, now_s: float) -> None:
        """End waits whose deadline has passed."""
        for wait in self._deadlines.over(now_s):
            tell(wait.late, wait.fail)

    def refuse_all(self, error: TernError) -> None:
        """Refuse all waits: this node no longer leads, and proxies continue at the new leader."""
        for wait in list(self._deadlines):
            tell(partial(wait.refuse, error), wait.fail)

    def look_of(self, topic_id: int) -> None:
        """Make all waits of this topic look: it was deleted."""
        for waits in list(self._by_topic.get(topic_id, {}).values()):
            for wait in list(waits):
                tell(wait.look, wait.fail)
