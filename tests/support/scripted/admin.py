"""What a scripted broker says of topics and groups: settings as a broker keeps them, in dictionaries."""

from collections.abc import Callable
from typing import Any

from tern_wire.errors import AlreadyExists, GroupNotFound, OffsetMoved, TopicNotFound
from tern_wire.limits import QUEUES_PER_TOPIC_DEFAULT
from tern_wire.link.requests import RequestCode
from tern_wire.names import is_of
from tern_wire.routing.placement import read_placement
from tern_wire.settings.group_settings import read_group_change
from tern_wire.settings.retry_policy import RetryPolicy
from tern_wire.settings.topic_settings import ALTER, CREATE, read_topic_change

Answer = tuple[dict[str, Any], bytes]


def is_listed(head: dict[str, Any], name: str) -> bool:
    """Whether a list that is asked for with *head* has *name*: of one namespace, or of all."""
    return bool(head.get("everywhere")) or is_of(head.get("namespace", ""), name)


class ScriptedAdmin:
    """Topics (name to id and one list of records a queue) and groups (name to id) of a scripted broker, with their settings."""

    def __init__(
        self,
        topics: dict[str, tuple[int, list[list[bytes]]]],
        groups: dict[str, int],
        committed: dict[tuple[str, str], dict[str, int]],
    ) -> None:
        self.topics, self.groups, self.committed = topics, groups, committed
        self.topic_settings: dict[str, dict[str, Any]] = {}
        self.group_settings: dict[str, dict[str, Any]] = {}
        # What HOSTED tells: by topic each group's unread and leased messages, and messages that wait for their time; and what belongs to no topic.
        # What groups have begun, by group and topic, if a test says so: committed offsets by queue.
        self.begun: dict[tuple[str, str], dict[str, int]] | None = None
        self.reading: dict[str, dict[str, tuple[int, int]]] = {}
        self.scheduled: dict[str, int] = {}
        self.open_transactions = 0
        self.dead: dict[str, int] = {}
        # Ids are never used again.
        self._next_id = 1_000

    def handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], Answer]]:
        """What it answers."""
        return {
            RequestCode.CREATE_TOPIC: self.create_topic,
            RequestCode.DELETE_TOPIC: self.delete_topic,
            RequestCode.DESCRIBE_TOPIC: self.describe_topic,
            RequestCode.CREATE_GROUP: self.create_group,
            RequestCode.DELETE_GROUP: self.delete_group,
            RequestCode.DESCRIBE_GROUP: self.describe_group,
            RequestCode.LIST_GROUPS: self.list_groups,
            RequestCode.HOSTED: self.hosted,
            RequestCode.GROUP_OFFSETS: self.group_offsets,
            RequestCode.COMMIT_OFFSETS: self.commit_offsets,
        }

    def create_topic(self, head: dict[str, Any], _: memoryview) -> Answer:
        """CREATE_TOPIC."""
        change = read_topic_change(head)
        created = change.topic not in self.topics
        if created and change.mode == ALTER:
            raise TopicNotFound(topic=change.topic)
        if not created and change.mode == CREATE:
            raise AlreadyExists(what="topic", name=change.topic)
        if created:
            self._next_id += 1
            self.topics[change.topic] = (self._next_id, [])
        logs = self.topics[change.topic][1]
        logs.extend([] for _ in range((change.queues or len(logs) or QUEUES_PER_TOPIC_DEFAULT) - len(logs)))
        settings = self.topic_settings.setdefault(change.topic, {"type": "MIXED", "perm": 6, "attributes": {}})
        settings["type"] = change.kind or settings["type"]
        settings["perm"] = settings["perm"] if change.perm is None else change.perm
        is_news = change.placement.epoch > read_placement(settings.get("placement", "")).epoch and not change.is_ending
        # Who declares a topic does not know that it is there.
        if is_news and (created or change.mode == ALTER):
            settings["placement"] = str(change.placement)
        return {"created": created, **self._topic(change.topic)}, b""

    def _topic(self, name: str) -> dict[str, Any]:
        if name not in self.topics:
            raise TopicNotFound(topic=name)
        topic_id, logs = self.topics[name]
        defaults = {"type": "MIXED", "perm": 6, "attributes": {}, "created_ms": 1, "placement": "", "placed_ms": 1}
        return {"topic_id": topic_id, "queues": len(logs), **defaults, **self.topic_settings.get(name, {})}

    def describe_topic(self, head: dict[str, Any], _: memoryview) -> Answer:
        """DESCRIBE_TOPIC."""
        found = self._topic(head["topic"])
        bounds = [[queue, 0, len(log)] for queue, log in enumerate(self.topics[head["topic"]][1])]
        begun = {group for group, topic in self.begun or () if topic == head["topic"]}
        return {**found, "bounds": bounds, "groups": sorted(self.groups if self.begun is None else begun)}, b""

    def delete_topic(self, head: dict[str, Any], _: memoryview) -> Answer:
        """DELETE_TOPIC."""
        deleted = self.topics.pop(head["topic"], None) is not None
        return {"deleted": deleted, "topic_id": 0}, b""

    def create_group(self, head: dict[str, Any], _: memoryview) -> Answer:
        """CREATE_GROUP."""
        change = read_group_change(head)
        created = change.group not in self.groups
        if created and change.mode == ALTER:
            raise GroupNotFound(group=change.group)
        if not created and change.mode == CREATE:
            raise AlreadyExists(what="group", name=change.group)
        self.groups.setdefault(change.group, len(self.groups) + 1)
        self.group_settings.setdefault(change.group, {}).update(change.packed())
        return {"created": created, **self._group(change.group)}, b""

    def _group(self, name: str) -> dict[str, Any]:
        if name not in self.groups:
            raise GroupNotFound(group=name)
        defaults = {
            "group_id": self.groups[name],
            "group": name,
            "invisible_ms": 60_000,
            "start": "earliest",
            "start_ms": 0,
            "max_attempts": 16,
            "retry": {"policy": "table"},
            "retry_delays_ms": list(RetryPolicy().table(16)),
            "fifo": False,
            "consume": True,
            "broadcast": False,
            "attributes": {},
        }
        return {**defaults, **self.group_settings.get(name, {})}

    def describe_group(self, head: dict[str, Any], _: memoryview) -> Answer:
        """DESCRIBE_GROUP."""
        found = self._group(head["group"])
        blank = {"lag": 0, "leased": 0, "available": 0}
        if self.begun is None:
            begun = {topic: {"0": 0} for topic in sorted(self.topics)}
        else:
            begun = {topic: committed for (group, topic), committed in self.begun.items() if group == head["group"]}
        rows = [
            {"topic": topic, **blank, "committed": committed}
            for topic, committed in begun.items()
            if head["topic"] in {"", topic}
        ]
        return {**found, "topics": rows, "more": False}, b""

    def delete_group(self, head: dict[str, Any], _: memoryview) -> Answer:
        """DELETE_GROUP."""
        deleted = self.groups.pop(head["group"], None) is not None
        return {"deleted": deleted, "group_id": 0}, b""

    def list_groups(self, head: dict[str, Any], _: memoryview) -> Answer:
        """LIST_GROUPS."""
        found = (name for name in self.groups if head["q"] in name.lower() and is_listed(head, name))
        names = sorted(found, reverse=head["descending"])
        if head["after"]:
            names = [name for name in names if (name < head["after"]) == head["descending"] and name != head["after"]]
        shown = names[: head["limit"]]
        return {"groups": [self._group(name) for name in shown], "more": len(names) > len(shown)}, b""

    def hosted(self, head: dict[str, Any], _: memoryview) -> Answer:
        """HOSTED."""
        names = sorted(name for name in self.topics if name > head["after"])
        rows = [
            [
                *(name, sum(len(log) for log in self.topics[name][1]), self.scheduled.get(name, 0)),
                [[group, *counts] for group, counts in sorted(self.reading.get(name, {}).items())],
            ]
            for name in names[: head["limit"]]
        ]
        dead = {} if head["after"] else self.dead
        told = {"dead_letters": sum(dead.values()), "dead_groups": [list(row) for row in dead.items()]}
        return {"topics": rows, "more": len(names) > len(rows), "open": self.open_transactions, **told}, b""

    def group_offsets(self, head: dict[str, Any], _: memoryview) -> Answer:
        """GROUP_OFFSETS."""
        self._topic(head["topic"])
        self._group(head["group"])
        return {"offsets": self.committed.get((head["group"], head["topic"]), {})}, b""

    def commit_offsets(self, head: dict[str, Any], _: memoryview) -> Answer:
        """COMMIT_OFFSETS."""
        self._topic(head["topic"])
        self._group(head["group"])
        committed = self.committed.setdefault((head["group"], head["topic"]), {})
        for queue, expected in head.get("expected", {}).items():
            actual = committed.get(queue, 0)
            if actual != expected:
                raise OffsetMoved(queue=queue, actual=actual, expected=expected)
        committed.update(head["offsets"])
        return {"offsets": head["offsets"]}, b""
