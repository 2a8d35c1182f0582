"""Topics that several broker groups share: the messages that belong to this broker group, and moves
to another one.

Law: a message that a broker group has answered with MOVED never comes to it again under that
placement, so the next owner may take it. The answer is MOVED for an unknown key. For a message
group it is MOVED when all messages of its slot are settled here by every group that reads the topic
in order, as for a move between two queues (slots.py). A move ends in two steps. First every former
owner releases everything that is left, once its keys are older than the window and every slot is
settled. Then the next epoch declares that nothing moves. The next owner takes only messages that
come from there (FLAG_SENT_ON), so a proxy that has missed a whole move, or two, stores nothing
behind the back of the former owner. The youngest key counts, not the begin of the move: a message
that must wait here for its message group brings a new key.

     epoch 1  groups a      | epoch 2  groups a, b  before a         | epoch 3  groups a, b
     a decides everything   | of b's slots: a replays, stores what   | b decides its slots
                            | must wait, or answers MOVED            |
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.delivery.slots import Slots
from tern_broker.core.topics import Topic
from tern_wire.errors import PlacementMoving
from tern_wire.limits import IDEMPOTENCY_WINDOW_MS
from tern_wire.link.rows import FLAG_KEYED, FLAG_PINNED, FLAG_SENT_ON
from tern_wire.routing.placement_slots import owned_by, slots_of_keys, slots_of_message_groups
from tern_wire.settings.topic_settings import ALTER, TopicChange

Rows = npt.NDArray[Any]


class Placing:
    """Owner: the state machine, whose topics and slots it changes."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def check(self, topic: Topic | None, change: TopicChange, now_ms: int) -> bool:
        """Return whether the placement in *change* is new for *topic* (None: a new topic).
        PlacementMoving: not yet.

        A change that ends a move releases settled slots even when it is refused, so that a repeat
        gets further.
        """
        wanted = change.placement
        if not wanted.epoch or topic is None:
            return bool(wanted.epoch)
        if change.mode != ALTER:
            # A client that declares a topic does not know that it exists.
            return False
        known = topic.placement
        if change.is_ending:
            if known == wanted and known.is_moving and topic.own in known.before:
                self._let_go(topic, now_ms)
            elif known.epoch <= wanted.epoch and known != wanted:
                raise PlacementMoving(topic=topic.name, epoch=wanted.epoch, left=f"'{change.own}' has heard of it")
            return False
        if wanted.epoch <= known.epoch:
            return False
        if known.is_moving:
            is_end = wanted.groups == known.groups and not wanted.is_moving
            if not is_end or (topic.own in known.before and not topic.has_let_go):
                raise PlacementMoving(topic=topic.name, epoch=known.epoch, left="all of it was let go of")
        return True

    def take(self, topic: Topic, change: TopicChange, now_ms: int) -> None:
        """Apply the placement that `check` has allowed."""
        topic.placement_text, topic.own, topic.placed_ms = str(change.placement), change.own, now_ms
        topic.keyed_ms, topic.has_let_go = 0, False
        self._slots.stay(topic)
        topic.is_shared = change.placement.groups != (change.own,) or change.placement.is_moving

    def away(self, topic: Topic, rows: Rows, own: Rows) -> tuple[Rows, Rows]:
        """Return which of the rows *own*, all of *topic*, belong to another broker group, and which
        keyed ones will.

        The latter must still be stored here, and are passed to `stored`. Settled slots leave as a
        side effect. Rows without key and message group, and those sent to a named queue, belong to
        the broker group that receives them.
        """
        flags, message_groups = rows["flags"][own], rows["message_group"][own]
        grouped = message_groups != 0
        bound = grouped | ((flags & (FLAG_KEYED | FLAG_PINNED)) == FLAG_KEYED)
        slots = np.where(grouped, slots_of_message_groups(message_groups), slots_of_keys(rows["key"][own]))
        is_mine = owned_by(topic.placement.groups, topic.own)[slots]
        if topic.placement.is_moving:
            was_mine = owned_by(topic.placement.before, topic.own)[slots]
            is_mine &= was_mine | ((flags & FLAG_SENT_ON) != 0)
        away = bound & ~is_mine
        # Only a former owner of a slot has messages of it, and only until the move is over.
        leaving = np.flatnonzero(away & grouped & owned_by(topic.placement.before, topic.own)[slots])
        held = leaving
        if len(leaving):
            away[leaving] = self._slots.leave(topic, message_groups[leaving])
            held = leaving[~away[leaving] & ((flags[leaving] & FLAG_KEYED) != 0)]
        return own[away], own[held]

    def stored(self, topic: Topic, now_ms: int) -> None:
        """Record that a keyed message of the second result of `away` was stored.

        Its key must be known here for a whole window from now on.
        """
        topic.keyed_ms = now_ms

    def _let_go(self, topic: Topic, now_ms: int) -> None:
        # Released slots are not enough: their messages may have been settled long before their keys
        # expire.
        if topic.has_let_go:
            return
        held = self._slots.leave_settled(topic)
        wait_ms = max(topic.placed_ms, topic.keyed_ms) + IDEMPOTENCY_WINDOW_MS - now_ms
        left = []
        if held:
            # Without a bound: consumers that never catch up with a message group hold it here, and
            # every keyed message of it starts the window anew.
            left.append(f"messages of {held} of 1,024 slots of message groups are settled in '{topic.own}'")
        if wait_ms > 0:
            since = " after the last one that was stored there" if topic.keyed_ms else ""
            left.append(f"idempotency keys of before are forgotten, in {-(-wait_ms // 1_000)} s{since}")
        if left:
            raise PlacementMoving(topic=topic.name, epoch=topic.placement.epoch, left=", and ".join(left))
        topic.has_let_go = True
