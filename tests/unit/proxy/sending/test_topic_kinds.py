"""Which messages a topic of each type takes, as a table."""

import pytest

from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.core.sending.topic import Topic
from tern_proxy.core.sending.topic_kinds import refuse_kind, refuse_message
from tern_wire.errors import PropertyConflictsWithType, TopicNotWritable
from tern_wire.routing.route import TopicRoute
from tern_wire.settings.topic_settings import TOPIC_KINDS

# (has a message group, is delayed, is of a transaction) -> the types that take it.
TAKEN: dict[tuple[bool, bool, bool], set[str]] = {
    (False, False, False): {"NORMAL", "MIXED"},
    (True, False, False): {"FIFO", "MIXED"},
    (False, True, False): {"DELAY", "MIXED"},
    (True, True, False): {"MIXED"},
    (False, False, True): {"TRANSACTION", "MIXED"},
    (True, False, True): {"MIXED"},
    (False, True, True): {"MIXED"},
    (True, True, True): {"MIXED"},
}


@pytest.mark.parametrize("kind", TOPIC_KINDS)
@pytest.mark.parametrize("message", TAKEN)
def test_each_type_takes_its_messages_and_mixed_takes_all(kind: str, message: tuple[bool, bool, bool]) -> None:
    """The refusal names the topic, its type and the way out."""
    has_group, is_delayed, is_transactional = message
    facts = {"has_message_group": has_group, "is_delayed": is_delayed, "is_transactional": is_transactional}
    if kind in TAKEN[message]:
        refuse_kind("orders", kind, **facts)
        return
    with pytest.raises(PropertyConflictsWithType) as refused:
        refuse_kind("orders", kind, **facts)
    assert f"'orders' is of type {kind}" in refused.value.detail
    assert "ternmq topic alter orders --type MIXED" in refused.value.detail


@pytest.mark.parametrize("field", [{"delay": 0}, {"deliver_at": 1}, {"delay_level": 1}])
def test_a_delivery_time_is_one_however_it_is_written(field: dict[str, int]) -> None:
    """Also when it is now: the producer has named one."""
    refuse_message("t", "DELAY", PackedMessage(b"", **field))  # type: ignore[arg-type]
    with pytest.raises(PropertyConflictsWithType):
        refuse_message("t", "NORMAL", PackedMessage(b"", **field))  # type: ignore[arg-type]
    with pytest.raises(PropertyConflictsWithType):
        refuse_message("t", "FIFO", PackedMessage(b""))


def test_while_broker_groups_differ_a_topic_takes_everything_that_all_permit() -> None:
    """A change reaches one after the other."""
    fifo, mixed = TopicRoute(topic_id=1, queues=1, type="FIFO", perm=6), TopicRoute(topic_id=1, queues=1, perm=4)
    settled, changing = Topic("t", {"a": fifo}), Topic("t", {"a": fifo, "b": mixed})
    assert (settled.kind, settled.perm) == ("FIFO", 6)
    assert (changing.kind, changing.perm) == ("MIXED", 4)
    settled.require_writable()
    with pytest.raises(TopicNotWritable):
        changing.require_writable()
