"""The law of a full disk: no TRIM drops, to make room, a message that is younger than the retention and that a group of its topic has not read.

Looked at on every node when it applies a TRIM, from the state of just before: which offsets leave each queue, who has not read them, how old they
are. Topics that drop their oldest, and logs that are longer than the operator wants them, are excused. What a group has in its hands is copied: that
is the law of others (`reads`, `lost`). The definition is the simulator's own; of the product it asks only what the state and the files hold.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tern_broker.core.applied import read_map
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.topics import Topic
from tern_store import EntryKind, StoredEntry, StoreError
from tern_store.visibility_times import visible_at
from tern_wire.link.commands import ENTRY_HEAD, CommandKind, read_entry
from tern_wire.settings.group_settings import LATEST

if TYPE_CHECKING:
    from tests.sim.machines.broker_node import BrokerNode


def lost_unread(node: "BrokerNode", entry: StoredEntry) -> Iterator[str]:
    """What the law says against *entry*, which *node* is about to apply."""
    if entry.kind != EntryKind.COMMANDS or entry.body[ENTRY_HEAD.size : ENTRY_HEAD.size + 1] != bytes(
        [CommandKind.TRIM]
    ):
        return
    request = read_map(read_entry(entry.body)[1][0].payload)
    engine, size = node.engine, node.engine.store.log.segment_size_bytes
    begin = -(-request["position"] // size) * size
    limit = node.config.retention_bytes
    if limit and entry.position - begin >= limit:
        return
    topics = engine.state.names.topics_by_id
    for topic_id, mins in request["mins"]:
        topic = topics.get(topic_id)
        if topic is None or topic.attributes.get("when_full") == "drop-oldest" or topic.name.endswith("_REPLY_TOPIC"):
            continue
        for queue, least in enumerate(mins):
            for offset in range(topic.mins[queue], min(least, topic.ends[queue])):
                reader = _who_has_not_read(node, topic, queue, offset)
                if reader and _is_young(node, topic_id, queue, offset):
                    yield f"{node.name}: entry {entry.index} drops {topic.name}:{queue}:{offset}, unread by {reader}"
                    return


def _who_has_not_read(node: "BrokerNode", topic: Topic, queue: int, offset: int) -> str:
    state = node.engine.state
    rows = [(group, row) for (group, topic_id), row in state.leasing.deliveries.items() if topic_id == topic.topic_id]
    if not rows:
        return "anybody"
    for group_id, row in rows:
        group, delivery = state.names.groups_by_id[group_id], row[queue] if queue < len(row) else None
        if delivery is None:
            if group.start != LATEST:
                return group.name
        elif offset >= delivery.cursor or (isinstance(delivery, FifoDelivery) and offset in delivery.parked):
            return group.name
    return ""


def _is_young(node: "BrokerNode", topic_id: int, queue: int, offset: int) -> bool:
    engine = node.engine
    try:
        age_ms = engine.state.now_ms - visible_at(engine.store, topic_id, queue, offset)
    except StoreError:
        return False  # a start that applies the TRIM again: the files are behind it already, and the first time was looked at
    return age_ms <= node.config.retention_ms
