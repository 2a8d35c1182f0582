"""Topics, consumer groups and queue lengths of one broker group."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Topic:
    """A topic in this broker group. Owner: the state machine. `ends[q]` is the offset that queue q's next message gets."""

    topic_id: int
    name: str
    ends: list[int] = field(default_factory=list)
    # Oldest offset kept, one a queue.
    mins: list[int] = field(default_factory=list)

    @property
    def queues(self) -> int:
        """How many queues the topic has here."""
        return len(self.ends)

    def grow(self, queues: int) -> None:
        """Add empty queues up to *queues*; counts never shrink."""
        missing = queues - len(self.ends)
        self.ends.extend([0] * missing)
        self.mins.extend([0] * missing)


@dataclass(slots=True)
class Group:
    """A consumer group. `start_latest`: in a queue it has never read, begin behind what is there."""

    group_id: int
    name: str
    invisible_ms: int
    start_latest: bool = False


@dataclass(slots=True)
class Names:
    """Topics and groups by name and id. Owner: the state machine."""

    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[int, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    groups_by_id: dict[int, Group] = field(default_factory=dict)
    next_id: int = 1

    def add_topic(self, name: str, queues: int) -> Topic:
        """A new topic; ids are never used again, since they name directories."""
        topic = Topic(self.next_id, name)
        topic.grow(queues)
        self.next_id += 1
        self.topics[name] = self.topics_by_id[topic.topic_id] = topic
        return topic

    def add_group(self, name: str, invisible_ms: int, start_latest: bool) -> Group:
        """A new consumer group."""
        group = Group(self.next_id, name, invisible_ms, start_latest)
        self.next_id += 1
        self.groups[name] = self.groups_by_id[group.group_id] = group
        return group

    def put(self, item: Topic | Group) -> None:
        """Put back a topic or group of a saved state."""
        if isinstance(item, Topic):
            self.topics[item.name] = self.topics_by_id[item.topic_id] = item
        else:
            self.groups[item.name] = self.groups_by_id[item.group_id] = item
