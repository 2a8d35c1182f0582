"""Group order: messages of one message group are not delivered one after the other.

Exactly, for a consumer group of an ordered topic and the leases of one message group's messages, in their order: of two that follow
each other, the later one is of the same message, or of one that was accepted later; and then the first one's message, and every message
between, was acked (by its last lease, in a settle that had begun by then), or lay among the dead letters by then, or was dropped by
retention. Before the first lease there is nothing else that was accepted. Messages of one message group in one queue were accepted in the
order of their offsets; when the topic has grown, those in the queue that was used first were. A commit or seek between begins anew; and groups
that were ever moved may read two queues side by side. What may have died and been redriven comes before what waits, one at a time as well.
"""

from collections.abc import Iterator

from tern_wire.link.rows import ACK, REPLAYED, SENT
from tests.sim.checkers.grants import Facts, Grant, Message, facts_of
from tests.sim.history.history import EndState, History, Letter, Receive, Send, Violation

# Where a message lies: the rank of its queue among those of its message group, and its offset.
_Place = tuple[int, int]


class _Order:
    """Message groups of one topic, and where their messages lie."""

    def __init__(self, topic: str, history: History, end: EndState) -> None:
        # Message group -> queue -> when the first message there was stored (0: retention has dropped it, so it is the older one), and the
        # event at which the first send of one began.
        used: dict[str, dict[int, tuple[int, int]]] = {}
        stored_ms: dict[str, int] = {
            stored.body_name: stored.stored_ms
            for (name, _), kept in end.nodes[0].queues.items()
            for stored in (kept.messages if name == topic else ())
        }
        self.group_of: dict[str, str] = {}
        began: dict[str, int] = {}
        places: dict[tuple[str, int], set[int]] = {}
        for operation in history.operations:
            if isinstance(operation.asked, Send) and operation.asked.topic == topic:
                for message in operation.asked.messages:
                    if message.message_group:
                        self.group_of[message.name] = message.message_group
                        began.setdefault(message.name, operation.began)
        for name, queue, offset in _known_places(topic, history, end):
            message_group = self.group_of.get(name)
            if message_group is None:
                continue
            queues = used.setdefault(message_group, {})
            first = (stored_ms.get(name, 0), began[name])
            queues[queue] = min(queues.get(queue, first), first)
            places.setdefault((message_group, queue), set()).add(offset)
        self.ranks = {
            (message_group, queue): rank
            for message_group, queues in used.items()
            for rank, queue in enumerate(sorted(queues, key=lambda queue: queues[queue]))
        }
        self.queues = {(message_group, rank): queue for (message_group, queue), rank in self.ranks.items()}
        self.places: dict[str, list[_Place]] = {}
        for (message_group, queue), offsets in places.items():
            rank = self.ranks[message_group, queue]
            self.places.setdefault(message_group, []).extend((rank, offset) for offset in offsets)
        for known in self.places.values():
            known.sort()


def _known_places(topic: str, history: History, end: EndState) -> Iterator[tuple[str, int, int]]:
    for (name, queue), kept in end.nodes[0].queues.items():
        if name == topic:
            for stored in kept.messages:
                yield stored.body_name, queue, stored.offset
    for operation in history.operations:
        asked = operation.asked
        if not operation.is_ok:
            continue
        if isinstance(asked, Send) and asked.topic == topic:
            for message, verdict in zip(asked.messages, operation.sent, strict=True):
                if verdict.status in {SENT, REPLAYED}:
                    yield message.name, verdict.queue, verdict.offset
        elif isinstance(asked, Receive) and asked.topic == topic:
            for held in operation.held:
                yield held.body_name, held.queue, held.offset


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(leased messages)."""
    ordered = {
        operation.asked.topic
        for operation in history.operations
        if isinstance(operation.asked, Send) and any(message.message_group for message in operation.asked.messages)
    }
    if not ordered:
        return []
    facts = facts_of(history, end)
    found: list[Violation] = []
    for topic in sorted(ordered):
        order = _Order(topic, history, end)
        for group in sorted({queue[0] for (queue, _) in facts.grants if queue[1] == topic}):
            found += [
                Violation("group_order", f"{group}: {text}") for text in _Walk(facts, end, order, group, topic).all()
            ]
    return found


class _Walk:
    """One consumer group through all message groups of one topic."""

    def __init__(self, facts: Facts, end: EndState, order: _Order, group: str, topic: str) -> None:
        self._facts, self._order, self._group, self._topic = facts, order, group, topic
        self._is_moved = any(key[:2] == (group, topic) for key in facts.movements)
        self._dead: dict[tuple[int, int], Letter] = {}
        grave = end.nodes[0].graves.get(group)
        self._has_lost_letters = grave is not None and grave.min_offset > 0
        for letter in grave.letters if grave is not None else ():
            if letter.topic == topic:
                self._dead[letter.queue, letter.origin] = letter

    def all(self) -> Iterator[str]:
        """Every violation."""
        rows: dict[tuple[str, int], list[tuple[_Place, Grant]]] = {}
        for (queue, offset), grants in self._facts.grants.items():
            if queue[:2] != (self._group, self._topic):
                continue
            for grant in grants:
                message_group = self._order.group_of.get(grant.held.body_name)
                if message_group is not None:
                    rank = self._order.ranks[message_group, queue[2]]
                    # Who reads two queues side by side has an order in each of them alone.
                    key = (message_group, rank if self._is_moved else -1)
                    rows.setdefault(key, []).append(((rank, offset), grant))
        for (message_group, rank), row in rows.items():
            row.sort(key=lambda item: item[1].lease)
            places = [place for place in self._order.places[message_group] if rank in {-1, place[0]}]
            yield from self._walk(message_group, places, row)

    def _walk(self, message_group: str, places: list[_Place], row: list[tuple[_Place, Grant]]) -> Iterator[str]:
        before: tuple[_Place, Grant] | None = None
        # The last lease of each message so far: what was redriven comes after others that were settled long ago.
        last: dict[_Place, Grant] = {}
        for place, grant in row:
            first = before[1].operation if before is not None else None
            queue = (self._group, self._topic, self._order.queues[message_group, place[0]])
            begins_anew = self._is_moved and self._facts.is_moved(queue, first, grant.operation)
            is_back = before is not None and place < before[0]
            if begins_anew:
                last.clear()
            elif before is not None and is_back and self._is_redriven((queue, place[1]), grant):
                if not self._is_done(message_group, before[0], before[1], grant):
                    yield f"{grant.held} of {message_group} is redriven beside {before[1].held}: {before[1].operation}, {grant.operation}"
            elif before is not None and is_back:
                # Of what is dropped nobody knows which queue was the older one.
                if not self._is_dropped(message_group, place) and not self._is_dropped(message_group, before[0]):
                    yield f"{grant.held} of {message_group} comes after {before[1].held}: {before[1].operation}, {grant.operation}"
            else:
                for other in places:
                    if (before is None or before[0] <= other) and other < place:
                        lease = last.get(other)
                        if not self._is_done(message_group, other, lease, grant):
                            at = f"{self._order.queues[message_group, other[0]]}:{other[1]}"
                            how = f"held by {lease.operation}" if lease is not None else "passed over"
                            yield f"{grant.held} of {message_group} while {at} is not settled ({how}): {grant.operation}"
                            break
            before = (place, grant)
            last[place] = grant

    def _is_done(self, message_group: str, place: _Place, lease: Grant | None, now: Grant) -> bool:
        """Whether the message there can have been settled when *now* was granted; *lease*: its last one that anybody heard of."""
        queue, offset = self._order.queues[message_group, place[0]], place[1]
        letter = self._dead.get((queue, offset))
        if letter is not None and letter.died_ms <= now.granted_ms:
            return True
        if self._has_lost_letters or self._is_dropped(message_group, place):
            return True
        message = ((self._group, self._topic, queue), offset)
        if self._facts.redrives.get(self._group) and self._facts.died_before(message, now):
            return True  # and is no dead letter any more
        return lease is not None and self._facts.is_over(message, lease, now.operation, ACK)

    def _is_dropped(self, message_group: str, place: _Place) -> bool:
        """Whether retention has dropped the message by the end."""
        queue = self._order.queues[message_group, place[0]]
        return place[1] < self._facts.oldest.get((self._topic, queue), 0)

    def _is_redriven(self, message: Message, now: Grant) -> bool:
        """Whether *now* may have been granted the message since it was redriven."""
        redrives = self._facts.redrives.get(self._group, ())
        is_asked = any(redrive.began < now.operation.ended for redrive in redrives)
        return is_asked and self._facts.died_before(message, now)
