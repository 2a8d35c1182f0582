"""What a topic does when the disk is full: refuse sends until its consumer groups have read on, or drop its oldest messages.

It is kept as the attribute `when_full` of the topic, as RocketMQ keeps its topics' own settings, so every release stores it and passes it on.
A release that does not know it drops the oldest, as it always did. Whatever the attribute says that is not `drop-oldest` refuses.
"""

from collections.abc import Mapping

from tern_wire.errors import InvalidField
from tern_wire.kept_topics import AUDIT_TOPIC_END
from tern_wire.replies import REPLY_TOPIC_END

WHEN_FULL = "when_full"
REFUSE, DROP_OLDEST = "refuse", "drop-oldest"
CHOICES = (REFUSE, DROP_OLDEST)
MEANING = (
    "When the disk is full: `refuse` sends to the broker group until a consumer group has read on, so that nothing goes that is younger than the "
    "retention and unread; or `drop-oldest`: what is oldest goes first, read or not."
)
# The mesh's own topics: a reply is waited for 30 s, and an event of the audit is in the log of its proxy, too.
_GIVES_WAY = (REPLY_TOPIC_END, AUDIT_TOPIC_END)


def when_full_of(topic: str, attributes: Mapping[str, str]) -> str:
    """`refuse` or `drop-oldest`: what *topic* does, by its whole name and its attributes."""
    said = attributes.get(WHEN_FULL)
    if said is None:
        return DROP_OLDEST if topic.endswith(_GIVES_WAY) else REFUSE
    return DROP_OLDEST if said == DROP_OLDEST else REFUSE


def check_when_full(choice: str, pointer: str = "/when_full") -> str:
    """Return *choice*; InvalidField at *pointer* unless it is `refuse` or `drop-oldest`."""
    if choice not in CHOICES:
        raise InvalidField(reason=f"'{WHEN_FULL}' is one of {', '.join(CHOICES)}", pointer=pointer)
    return choice
