"""Topics that several broker groups share: which of their messages belong here, and how some go over to another broker group.

Law: what a broker group has once said does not belong here any more (MOVED) never comes here again under that placement, so the next one may
take it. Of a key it says so when it does not know it; of a message group, when all that it has of its slot here is settled by everyone who
reads the topic in order, as when a slot moves between two queues (slots.py). A move ends in two steps: every owner of before lets go of all
that is left, which it may when its keys are older than the window and every slot is settled; then the next epoch says that nothing moves.
The next one takes only what comes from there (FLAG_SENT_ON), so that a proxy that has missed a whole move, or two, stores nothing
behind the back of the owner of before.
Its youngest key counts, not the begin of the move: a message that must wait here for its message group brings a new key.

     epoch 1  groups a      | epoch 2  groups a, b  before a                            | epoch 3  groups a, b
     a decides everything   | of b's slots: a replays, stores what must wait, or MOVED  | b decides about its slots
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
        """Whether the placement in *change* is news for *topic* (None: a new one). PlacementMoving: not yet.

        One that ends what moves lets go of what is settled even when it is refused, so that a repeat comes further.
        """
        wanted = change.placement
        if not wanted.epoch or topic is None:
            return bool(wanted.epoch)
        if change.mode != ALTER:
            # Who declares a topic does not know that it is there.
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
        """Become what `check` has allowed."""
        topic.placement_text, topic.own, topic.placed_ms = str(change.placement), change.own, now_ms
        topic.keyed_ms, topic.has_let_go = 0, False
        self._slots.stay(topic)
        topic.is_shared = change.placement.groups != (change.own,) or change.placement.is_moving

    def away(self, topic: Topic, rows: Rows, own: Rows) -> tuple[Rows, Rows]:
        """Which of the rows with the numbers *own*, all of *topic*, belong to another broker group, and which keyed ones will, but must be
        stored here still: `stored` wants to hear of them. Slots that are settled leave with this.

        Rows without key and message group, and those that were sent to a queue by its name, belong wherever they are sent.
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
        # Only who had a slot before holds anything of it, and only until the move is over.
        leaving = np.flatnonzero(away & grouped & owned_by(topic.placement.before, topic.own)[slots])
        held = leaving
        if len(leaving):
            away[leaving] = self._slots.leave(topic, message_groups[leaving])
            held = leaving[~away[leaving] & ((flags[leaving] & FLAG_KEYED) != 0)]
        return own[away], own[held]

    def stored(self, topic: Topic, now_ms: int) -> None:
        """A keyed message of *topic* that `away` has named second was stored: its key is to be known here for a whole window from now on."""
        topic.keyed_ms = now_ms

    def _let_go(self, topic: Topic, now_ms: int) -> None:
        # That every slot has left is not enough: they may have been settled long before their keys are forgotten.
        if topic.has_let_go:
            return
        held = self._slots.leave_settled(topic)
        wait_ms = max(topic.placed_ms, topic.keyed_ms) + IDEMPOTENCY_WINDOW_MS - now_ms
        left = []
        if held:
            # Without a bound: consumers that never catch up with a message group hold it here, and every keyed message of it begins the window anew.
            left.append(f"messages of {held} of 1,024 slots of message groups are settled in '{topic.own}'")
        if wait_ms > 0:
            since = " after the last one that was stored there" if topic.keyed_ms else ""
            left.append(f"idempotency keys of before are forgotten, in {-(-wait_ms // 1_000)} s{since}")
        if left:
            raise PlacementMoving(topic=topic.name, epoch=topic.placement.epoch, left=", and ".join(left))
        topic.has_let_go = True
