"""Behaviour of a topic when the disk is full: refuse sends until its consumer groups catch up, or
drop its oldest messages.

Stored as the attribute `when_full` of the topic, as RocketMQ stores settings of topics, so every
release stores it and passes it on. A release without this setting drops the oldest messages, as
earlier releases always did. Every value other than `drop-oldest` means refuse.
"""

from collections.abc import Mapping

from tern_wire.errors import InvalidField
from tern_wire.kept_topics import AUDIT_TOPIC_END
from tern_wire.replies import REPLY_TOPIC_END

WHEN_FULL = "when_full"
REFUSE, DROP_OLDEST = "refuse", "drop-oldest"
CHOICES = (REFUSE, DROP_OLDEST)
MEANING = (
    "When the disk is full: `refuse` sends to the broker group until a consumer group has caught up, so that no unread message younger than the "
    "retention is dropped; or `drop-oldest`: the oldest messages are dropped first, read or not."
)
# The mesh's own topics: a reply is awaited for 30 s, and an audit event is also in the log of its
# proxy.
_GIVES_WAY = (REPLY_TOPIC_END, AUDIT_TOPIC_END)


def when_full_of(topic: str, attributes: Mapping[str, str]) -> str:
    """Return `refuse` or `drop-oldest`: the behaviour of *topic*, by its full name and its
    attributes.
    """
    said = attributes.get(WHEN_FULL)
    if said is None:
        return DROP_OLDEST if topic.endswith(_GIVES_WAY) else REFUSE
    return DROP_OLDEST if said == DROP_OLDEST else REFUSE


def check_when_full(choice: str, pointer: str = "/when_full") -> str:
    """Return *choice* if it is `refuse` or `drop-oldest`; raise InvalidField at *pointer*
    otherwise.
    """
    if choice not in CHOICES:
        raise InvalidField(reason=f"'{WHEN_FULL}' is one of {', '.join(CHOICES)}", pointer=pointer)
    return choice
