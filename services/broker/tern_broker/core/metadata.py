"""Apply requests that create, alter or delete topics and groups. Each is done whole, or refused
with nothing changed.

A deleted topic or group is gone from every part at once: parts that keep data about it register in
`on_drop`. Its name is free again. Its id is not, so that a remaining reference to the old one (a
handle, a proposal, a directory) never meets a new one.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tern_broker.core.applied import Applied, Handler, read_map
from tern_broker.core.delivery.fifo import change_order
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.descriptions import group_settings, topic_settings
from tern_broker.core.sending.placing import Placing
from tern_broker.core.topics import Group, Names, Topic
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import AlreadyExists, GroupNotFound, LimitReached, TopicConflict, TopicNotFound
from tern_wire.limits import GROUPS_MAX, QUEUES_MAX, QUEUES_PER_TOPIC_DEFAULT, TOPICS_MAX
from tern_wire.link.commands import CommandKind
from tern_wire.names import check_group, check_topic
from tern_wire.settings.attributes import merged
from tern_wire.settings.group_settings import GroupChange, read_group_change
from tern_wire.settings.retry_policy import read_retry_policy
from tern_wire.settings.topic_settings import ALTER, CREATE, FIFO, TopicChange, is_whole, read_topic_change, text_of

# Takes the entry's result, and the id of the deleted topic or group (the other id is 0), while its
# name is still known.
OnDrop = Callable[[Applied, int, int], None]


class Metadata:
    """Topics and groups by name. Owner: the state machine."""

    def __init__(self, names: Names, leasing: Leasing, placing: Placing) -> None:
        self._names, self._leasing, self._placing = names, leasing, placing
        # Counts changes of topics; name servers compare it.
        self.data_version = 0
        self.on_drop: list[OnDrop] = [leasing.drop]

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {
            CommandKind.CREATE_TOPIC: self._change_topic,
            CommandKind.ALTER_TOPIC: self._change_topic,
            CommandKind.DELETE_TOPIC: self._delete_topic,
            CommandKind.CREATE_GROUP: self._change_group,
            CommandKind.ALTER_GROUP: self._change_group,
            CommandKind.DELETE_GROUP: self._delete_group,
        }

    def is_due(self, _now_ms: int) -> bool:
        """Return False: nothing here ends by itself."""
        return False

    def expire(self, applied: Applied) -> None:
        """Do nothing: nothing here ends by itself."""

    # Topics ---------------------------------------------------------------------------------------
    def _change_topic(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        change = read_topic_change(read_map(payload))
        topic = self._names.topics.get(change.topic)
        _refuse_mode(change.mode, "topic", change.topic, topic)
        queues = self._queues_of(change, topic)
        attributes = merged(topic.attributes if topic is not None else {}, change.attributes)
        if topic is None and len(self._names.topics) >= TOPICS_MAX:
            raise LimitReached(what="topics", actual=len(self._names.topics), limit=TOPICS_MAX)
        is_placed = self._placing.check(topic, change, applied.now_ms)
        if topic is not None and change.kind not in {None, topic.kind}:
            self._change_order(
                applied, lambda group, each: group.is_fifo or (change.kind if each is topic else each.kind) == FIFO
            )
        # From here on nothing is refused.
        created = topic is None
        if topic is None:
            topic = self._names.add_topic(change.topic, queues)
            topic.created_ms = applied.now_ms
        before = (topic.queues, topic.kind, topic.perm)
        self._names.grow(topic, queues)
        if queues > before[0]:
            self._leasing.grown(topic, before[0])
        topic.kind = topic.kind if change.kind is None else change.kind
        topic.perm = topic.perm if change.perm is None else change.perm
        topic.attributes = attributes
        if is_placed:
            self._placing.take(topic, change, applied.now_ms)
        if created or is_placed or before != (topic.queues, topic.kind, topic.perm):
            self._topics_changed(applied)
        return {"created": created, **topic_settings(topic)}

    def _queues_of(self, change: TopicChange, topic: Topic | None) -> int:
        has = topic.queues if topic is not None else 0
        wanted = change.queues if change.queues is not None else has or QUEUES_PER_TOPIC_DEFAULT
        if wanted < has:
            raise TopicConflict(topic=change.topic, actual=has, wanted=wanted)
        if self._names.queues + wanted - has > QUEUES_MAX:
            raise LimitReached(what="queues of all topics", actual=self._names.queues, limit=QUEUES_MAX)
        return wanted

    def _delete_topic(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        request = read_map(payload)
        topic = self._names.topics.get(check_topic(text_of(request, "topic")))
        wanted_id = _id_of(request, "topic_id")
        if topic is None or wanted_id not in {0, topic.topic_id}:
            return _not_deleted("topic_id", wanted_id, topic.topic_id if topic is not None else 0)
        for drop in self.on_drop:
            drop(applied, topic.topic_id, 0)
        self._names.drop_topic(topic)
        applied.dropped_topics[topic.topic_id] = topic.queues
        self._topics_changed(applied)
        return {"deleted": True, "topic_id": 0}

    def _topics_changed(self, applied: Applied) -> None:
        self.data_version += 1
        applied.metadata_changed = True

    def _change_order(self, applied: Applied, wanted: Callable[[Group, Topic], bool]) -> None:
        """This is the last step that may refuse."""
        leasing = self._leasing
        applied.woken_topics |= change_order(self._names, leasing.deliveries, wanted, leasing.next_id)

    # Groups ---------------------------------------------------------------------------------------
    def _change_group(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        change = read_group_change(read_map(payload))
        group = self._names.groups.get(change.group)
        _refuse_mode(change.mode, "group", change.group, group)
        attributes = merged(group.attributes if group is not None else {}, change.attributes)
        if group is None and len(self._names.groups) >= GROUPS_MAX:
            raise LimitReached(what="groups", actual=len(self._names.groups), limit=GROUPS_MAX)
        if group is not None and change.is_fifo not in {None, group.is_fifo}:
            self._change_order(
                applied,
                lambda each, topic: topic.kind == FIFO or bool(change.is_fifo if each is group else each.is_fifo),
            )
        # From here on nothing is refused.
        created = group is None
        if group is None:
            group = self._names.add_group(change.group)
        is_enabled_anew = bool(change.consume_enabled) and not group.consume_enabled
        _take_settings(group, change)
        group.attributes = attributes
        if is_enabled_anew:
            # Parked polls of the group may receive now.
            applied.woken_topics.update(self._leasing.topics_of(group.group_id))
        return {"created": created, **group_settings(group)}

    def _delete_group(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        request = read_map(payload)
        group = self._names.groups.get(check_group(text_of(request, "group")))
        wanted_id = _id_of(request, "group_id")
        if group is None or wanted_id not in {0, group.group_id}:
            return _not_deleted("group_id", wanted_id, group.group_id if group is not None else 0)
        for drop in self.on_drop:
            drop(applied, 0, group.group_id)
        self._names.drop_group(group)
        applied.dropped_groups.append(group.group_id)
        return {"deleted": True, "group_id": 0}

    # Saving ---------------------------------------------------------------------------------------
    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {
            "next_id": self._names.next_id,
            "data_version": self.data_version,
            "topics": [_pack_topic(topic) for topic in self._names.topics.values()],
            "groups": [_pack_group(group) for group in self._names.groups.values()],
        }

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        return windows_of(self._names.topics, self._names.groups)

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types."""
        topics = rows_of(self._names.topics.values(), number)
        groups = rows_of(self._names.groups.values(), number)
        counts = [self._names.next_id, self.data_version]
        return [counts, [_pack_topic(topic) for topic in topics], [_pack_group(group) for group in groups]]

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self._names.next_id, self.data_version = packed["next_id"], packed["data_version"]
        for topic in packed["topics"]:
            self._names.put(Topic(*topic))
        for name_and_id, numbers, flags, retry, attributes in packed["groups"]:
            group = Group(*name_and_id)
            group.invisible_ms, group.start, group.start_ms, group.max_attempts = numbers
            group.is_fifo, group.consume_enabled, group.is_broadcast = flags
            group.retry, group.attributes = read_retry_policy(retry), attributes
            group.retry_delays_ms = group.retry.table(group.max_attempts)
            self._names.put(group)


def _pack_topic(topic: Topic) -> list[Any]:
    return [
        *(topic.topic_id, topic.name, list(topic.ends), list(topic.mins)),
        *(topic.kind, topic.perm, topic.attributes, topic.created_ms),
        *(topic.placement_text, topic.own, topic.placed_ms, topic.is_shared),
        *(topic.keyed_ms, topic.has_let_go),
    ]


def _pack_group(group: Group) -> list[Any]:
    return [
        [group.group_id, group.name],
        [group.invisible_ms, group.start, group.start_ms, group.max_attempts],
        [group.is_fifo, group.consume_enabled, group.is_broadcast],
        group.retry.packed(),
        group.attributes,
    ]


def _take_settings(group: Group, change: GroupChange) -> None:
    if change.invisible_ms is not None:
        group.invisible_ms = change.invisible_ms
    if change.start is not None:
        group.start, group.start_ms = change.start, change.start_ms
    if change.max_attempts is not None:
        group.max_attempts = change.max_attempts
    if change.retry is not None:
        group.retry = change.retry
    if change.is_fifo is not None:
        group.is_fifo = change.is_fifo
    if change.consume_enabled is not None:
        group.consume_enabled = change.consume_enabled
    if change.is_broadcast is not None:
        group.is_broadcast = change.is_broadcast
    group.retry_delays_ms = group.retry.table(group.max_attempts)


def _refuse_mode(mode: str, what: str, name: str, found: Topic | Group | None) -> None:
    if mode == CREATE and found is not None:
        raise AlreadyExists(what=what, name=name)
    if mode == ALTER and found is None:
        raise TopicNotFound(topic=name) if what == "topic" else GroupNotFound(group=name)


def _id_of(request: Mapping[str, Any], name: str) -> int:
    value = request.get(name, 0)
    return int(value) if is_whole(value, 0, 1 << 62) else -1


def _not_deleted(name: str, wanted_id: int, actual_id: int) -> dict[str, Any]:
    """Return the answer for a name that is already gone, or has a new owner.

    The repeat of a deletion whose answer was lost reports success, unless the name has a new owner
    since.
    """
    return {"deleted": wanted_id > 0 and not actual_id, name: actual_id}
