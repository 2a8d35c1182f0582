"""Messages that a topic accepts, by its type in the routes.

RocketMQ's proxy has the same rules.

    NORMAL       neither a message group nor a delivery time
    FIFO         every message has a message group
    DELAY        every message has a delivery time
    TRANSACTION  only messages of transactions
    MIXED        all of them
"""

from collections.abc import Mapping

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_wire.errors import PropertyConflictsWithType, TernError
from tern_wire.routing.route import TopicRoute
from tern_wire.settings.topic_settings import DELAY, FIFO, MIXED, NORMAL, TRANSACTION

Route = Mapping[str, TopicRoute]


def kind_of(route: Route) -> str:
    """Return the topic's type.

    A change reaches one broker group after the other; until all agree, every message is accepted.
    """
    kinds = {part.type for part in route.values()}
    return kinds.pop() if len(kinds) == 1 else MIXED


def refuse_message(
    topic: str, kind: str, message: PackedMessage | JsonMessage, *, is_transactional: bool = False
) -> None:
    """Raise the error of `refuse_kind` for the fields of *message*."""
    is_delayed = any(time is not None for time in (message.delay, message.deliver_at, message.delay_level))
    has_group = bool(message.message_group)
    refuse_kind(topic, kind, has_message_group=has_group, is_delayed=is_delayed, is_transactional=is_transactional)


def refuse_kind(
    topic: str, kind: str, *, has_message_group: bool, is_delayed: bool, is_transactional: bool = False
) -> None:
    """Raise PropertyConflictsWithType when such a message may not go to a topic of type *kind*."""
    if kind == MIXED:
        return
    error: TernError | None = None
    if is_transactional and kind != TRANSACTION:
        error = _conflict(topic, kind, "a message of a transaction needs type TRANSACTION or MIXED", "")
    elif kind == TRANSACTION and not is_transactional:
        error = _conflict(topic, kind, "it takes messages of transactions only", "")
    elif kind == FIFO and not has_message_group:
        error = _conflict(topic, kind, "every message needs a message group", "/message_group")
    elif kind == DELAY and not is_delayed:
        error = _conflict(
            topic, kind, "every message needs a delivery time: delay, deliver_at or delay_level", "/delay"
        )
    elif has_message_group and kind in {NORMAL, DELAY, TRANSACTION}:
        error = _conflict(topic, kind, "a message group needs type FIFO or MIXED", "/message_group")
    elif is_delayed and kind in {NORMAL, FIFO, TRANSACTION}:
        error = _conflict(topic, kind, "a delivery time needs type DELAY or MIXED", "/delay")
    if error is not None:
        raise error


def _conflict(topic: str, kind: str, reason: str, pointer: str) -> TernError:
    fix = (
        f"Topic '{topic}' is of type {kind}: {reason}. Change the message, or `ternmq topic alter {topic} --type MIXED`"
    )
    return PropertyConflictsWithType(reason=fix, pointer=pointer, topic=topic, topic_type=kind)
