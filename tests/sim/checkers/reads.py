"""Reads: a client was served something else than what the queue holds.

Exactly: every message of a PULL or RECEIVE is, body and all, what every node has at that queue and offset at the end (if it is
still kept): nobody reads what is not committed, or other bytes. A pull answers the offsets from the one it asked for on, without
a gap, at least one if there is one, and says rightly where to go on.
"""

from collections.abc import Iterator

from tests.sim.history.history import EndState, History, Operation, Pull, Receive, Violation

_Place = tuple[str, int]


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(messages read * nodes)."""
    kept = [
        (
            node.node,
            {
                place: (queue.min_offset, {message.offset: message.body_name for message in queue.messages})
                for place, queue in node.queues.items()
            },
        )
        for node in end.nodes
    ]
    found = []
    for operation in history.operations:
        if not operation.is_ok:
            continue
        if isinstance(operation.asked, Pull):
            found += [Violation("reads", text) for text in _gaps(operation, operation.asked)]
        for place, offset, name in _messages(operation):
            for node, queues in kept:
                oldest, names = queues.get(place, (0, {}))
                if offset >= oldest and names.get(offset) != name:
                    there = names.get(offset, "nothing")
                    found.append(
                        Violation("reads", f"{name} at {place} {offset}, where {node} has {there}: {operation}")
                    )
    return found


def _messages(operation: Operation) -> Iterator[tuple[_Place, int, str]]:
    match operation.asked:
        case Pull(topic, queue, _):
            for message in operation.pulled.messages:
                yield (topic, queue), message.offset, message.body_name
        case Receive(_, topic, _, _):
            for held in operation.held:
                yield (topic, held.queue), held.offset, held.body_name


def _gaps(operation: Operation, asked: Pull) -> Iterator[str]:
    pulled = operation.pulled
    offsets = [message.offset for message in pulled.messages]
    if offsets != list(range(asked.offset, asked.offset + len(offsets))):
        yield f"offsets {offsets} from {asked.offset} on: {operation}"
    if pulled.next_offset != asked.offset + len(offsets):
        yield f"says to go on at {pulled.next_offset}: {operation}"
    if not offsets and pulled.min_offset <= asked.offset < pulled.max_offset:
        yield f"nothing, though the queue goes on: {operation}"
