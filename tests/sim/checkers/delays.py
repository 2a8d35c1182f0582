"""Delays: a message with a delivery time is seen before it, or never, or in spite of its recall.

Exactly: 1. No receive is granted a message before its time, and no pull shows it while, as a later grant shows, the group's time is
below it. 2. A message that was accepted lies in its queue at the end, on every node, unless a recall of it may have happened, or retention
has dropped messages of that queue. 3. After a recall that was answered well the message is in no queue and was shown to nobody. 4. A recall is
told "not scheduled" only if there was another recall, or the message was never accepted.
"""

from collections.abc import Iterator

from tern_wire.errors import NotScheduled
from tern_wire.link.rows import REPLAYED, SCHEDULED, SCHEDULED_BEFORE, SENT
from tests.sim.checkers.grants import Facts, facts_of
from tests.sim.history.history import EndState, History, Operation, Pull, Recall, Receive, Send, Sending, Violation

_ACCEPTED = frozenset({SENT, REPLAYED, SCHEDULED, SCHEDULED_BEFORE})


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(messages * nodes + messages read)."""
    messages: dict[str, tuple[str, Sending]] = {}
    accepted: dict[str, Operation] = {}
    recalls: dict[str, list[Operation]] = {}
    for operation in history.operations:
        asked = operation.asked
        if isinstance(asked, Recall):
            recalls.setdefault(asked.name, []).append(operation)
        elif isinstance(asked, Send):
            for row, message in enumerate(asked.messages):
                if message.deliver_ms:
                    messages[message.name] = (asked.topic, message)
                    if operation.is_ok and operation.sent[row].status in _ACCEPTED:
                        accepted.setdefault(message.name, operation)
    if not messages:
        return []
    recalled = {name: [other for other in others if other.is_ok] for name, others in recalls.items()}
    found = [*_seen(history, facts_of(history, end), messages, recalled)]
    for node in end.nodes:
        names = {
            stored.body_name
            for queue in node.queues.values()
            for stored in queue.messages
            if stored.body_name in messages
        }
        found += [
            f"{node.node} holds {name}, which was recalled: {recalled[name][0]}" for name in names if recalled.get(name)
        ]
        for name, operation in accepted.items():
            topic, message = messages[name]
            held = node.queues.get((topic, message.queue))
            is_excused = any(recall.may_have_happened for recall in recalls.get(name, ()))
            if name not in names and not is_excused and (held is None or not held.min_offset):
                found.append(f"{node.node} has not delivered {name}, due at {message.deliver_ms}: {operation}")
    for name, known in recalls.items():
        for recall in known:
            others = [other for other in known if other is not recall and other.may_have_happened]
            if recall.error == NotScheduled.code and not others:
                found.append(f"{name} is not scheduled: {recall}, after {accepted[name]}")
    return [Violation("delays", text) for text in found]


def _seen(
    history: History, facts: Facts, messages: dict[str, tuple[str, Sending]], recalled: dict[str, list[Operation]]
) -> Iterator[str]:
    for operation in history.operations:
        asked = operation.asked
        if not operation.is_ok:
            continue
        if isinstance(asked, Receive):
            names = {held.body_name: held.deadline_ms - asked.invisible_ms for held in operation.held}
        elif isinstance(asked, Pull) and operation.pulled.messages:
            # The group's time was not above this; without a later grant, nobody knows.
            shown = facts.shown_after(operation.ended)
            latest_ms = shown.granted_ms if shown is not None else 1 << 62
            names = dict.fromkeys([read.body_name for read in operation.pulled.messages], latest_ms)
        else:
            continue
        for name, now_ms in names.items():
            if name in messages and now_ms < messages[name][1].deliver_ms:
                yield f"{name} is shown at {now_ms}, due at {messages[name][1].deliver_ms}: {operation}"
            if recalled.get(name):
                yield f"{name} is shown though it was recalled: {operation}, {recalled[name][0]}"
