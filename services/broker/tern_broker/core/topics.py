"""Topics, consumer groups and queue lengths of one broker group."""

from dataclasses import dataclass, field

from tern_broker.core.namespace_counts import NamespaceCounts
from tern_wire.errors import ConsumptionDisabled, TopicNotReadable
from tern_wire.limits import ATTEMPTS_DEFAULT, INVISIBLE_DEFAULT_MS, RETRY_DELAYS_MS
from tern_wire.routing.placement import Placement, read_placement
from tern_wire.routing.route import PERM_READ, PERM_WRITE
from tern_wire.settings.group_settings import EARLIEST, LATEST
from tern_wire.settings.retry_policy import RetryPolicy
from tern_wire.settings.topic_settings import MIXED


@dataclass(slots=True)
class Topic:
    """A topic in this broker group. Owner: the state machine. `ends[q]` is the offset of queue q's
    next message.
    """

    topic_id: int
    name: str
    ends: list[int] = field(default_factory=list)
    # The oldest offset kept, one for each queue.
    mins: list[int] = field(default_factory=list)
    # The accepted messages: NORMAL, FIFO, DELAY, TRANSACTION or MIXED.
    kind: str = MIXED
    # RocketMQ's bits: READ 4, WRITE 2.
    perm: int = PERM_READ | PERM_WRITE
    attributes: dict[str, str] = field(default_factory=dict)
    # The group's time at creation. Anything stored under the name earlier belongs to another topic.
    created_ms: int = 0
    # The placement as text, in the form in which it is saved; the name of this broker group in that
    # placement; and the time since which it holds (the group's time).
    placement_text: str = ""
    own: str = ""
    placed_ms: int = 0
    # Whether some of its keyed and ordered messages belong to other broker groups: follows from the
    # two above.
    is_shared: bool = False
    # Time of the last keyed message that was stored here, under this placement, in a slot that
    # moves away (the group's time); 0: never.
    keyed_ms: int = 0
    # Whether, under this placement, everything that moves away from here was released: its move may
    # end.
    has_let_go: bool = False

    @property
    def placement(self) -> Placement:
        """The broker groups that take its keyed and ordered messages."""
        return read_placement(self.placement_text)

    @property
    def queues(self) -> int:
        """Number of queues of the topic in this broker group."""
        return len(self.ends)

    def grow(self, queues: int) -> None:
        """Add empty queues up to *queues*; counts never shrink."""
        missing = queues - len(self.ends)
        self.ends.extend([0] * missing)
        self.mins.extend([0] * missing)

    def require_readable(self) -> None:
        """Raise TopicNotReadable if the topic's permission denies reads."""
        if not self.perm & PERM_READ:
            raise TopicNotReadable(topic=self.name)


@dataclass(slots=True)
class Group:
    """A consumer group. `start`: where it begins in a queue that it has never read: earliest,
    latest, or time (`start_ms`).

    `retry_delays_ms[n - 1]`: how long a message rests after its failed attempt n (the last value
    holds for all further attempts).
    """

    group_id: int
    name: str
    invisible_ms: int = INVISIBLE_DEFAULT_MS
    start: str = EARLIEST
    start_ms: int = 0
    is_fifo: bool = False
    consume_enabled: bool = True
    is_broadcast: bool = False
    max_attempts: int = ATTEMPTS_DEFAULT
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    # Derived from `retry`.
    retry_delays_ms: tuple[int, ...] = RETRY_DELAYS_MS
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def starts_at_min(self) -> bool:
        """Whether the group begins with the oldest message kept, so that a queue need not be opened
        for it.
        """
        return self.start == EARLIEST

    def start_in(self, topic: Topic, queue: int, looked_up: int) -> int:
        """Return where the group begins in *queue*. For a start by time the leader has *looked_up*
        the offset.
        """
        if self.start == EARLIEST:
            return topic.mins[queue]
        if self.start == LATEST:
            return topic.ends[queue]
        return min(max(looked_up, topic.mins[queue]), topic.ends[queue])

    def require_enabled(self) -> None:
        """Raise ConsumptionDisabled if consumption is switched off."""
        if not self.consume_enabled:
            raise ConsumptionDisabled(group=self.name)


@dataclass(slots=True)
class Names:
    """Topics and groups by name and id. Owner: the state machine."""

    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[int, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    groups_by_id: dict[int, Group] = field(default_factory=dict)
    next_id: int = 1
    # Of all topics together.
    queues: int = 0
    # Of each namespace.
    topics_of: NamespaceCounts = field(default_factory=NamespaceCounts)
    queues_of: NamespaceCounts = field(default_factory=NamespaceCounts)
    groups_of: NamespaceCounts = field(default_factory=NamespaceCounts)

    def add_topic(self, name: str, queues: int) -> Topic:
        """Create a topic. Ids are never reused, since they name directories."""
        topic = Topic(self.next_id, name)
        self.next_id += 1
        self.topics[name] = self.topics_by_id[topic.topic_id] = topic
        self.topics_of.add(name)
        self.grow(topic, queues)
        return topic

    def grow(self, topic: Topic, queues: int) -> None:
        """Add empty queues to *topic* up to *queues*, and count them for all topics and for the
        namespace.
        """
        more = max(0, queues - topic.queues)
        self.queues += more
        self.queues_of.add(topic.name, more)
        topic.grow(queues)

    def add_group(self, name: str, invisible_ms: int = INVISIBLE_DEFAULT_MS) -> Group:
        """Create a consumer group."""
        group = Group(self.next_id, name, invisible_ms)
        self.next_id += 1
        self.groups[name] = self.groups_by_id[group.group_id] = group
        self.groups_of.add(name)
        return group

    def drop_topic(self, topic: Topic) -> None:
        """Remove *topic*. Its name is free again; its id is not."""
        self.queues -= topic.queues
        self.topics_of.add(topic.name, -1)
        self.queues_of.add(topic.name, -topic.queues)
        del self.topics[topic.name], self.topics_by_id[topic.topic_id]

    def drop_group(self, group: Group) -> None:
        """Remove *group*. Its name is free again; its id is not."""
        self.groups_of.add(group.name, -1)
        del self.groups[group.name], self.groups_by_id[group.group_id]

    def put(self, item: Topic | Group) -> None:
        """Put back a topic or group of a saved state."""
        if isinstance(item, Topic):
            self.topics[item.name] = self.topics_by_id[item.topic_id] = item
            self.queues += item.queues
            self.topics_of.add(item.name)
            self.queues_of.add(item.name, item.queues)
        else:
            self.groups[item.name] = self.groups_by_id[item.group_id] = item
            self.groups_of.add(item.name)
