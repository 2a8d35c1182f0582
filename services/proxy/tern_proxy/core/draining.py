"""Obstacles to removing a broker group, from its contents and from the readers of the same topics
elsewhere. Pure.

    placed      keyed and ordered messages of the topic still go there  -> place the topic elsewhere
    moving      the topic was placed elsewhere; the move has not ended  -> place it again when due
    unread      a group that reads the topic, anywhere, is behind there -> let it read
    scheduled   messages wait there for their delivery time             -> wait, or cancel them

Messages without a reading group (`unclaimed`) are no obstacle: they disappear with the broker
group. Dead letters are an obstacle, because their group may want to redrive them. A topic without
an explicit placement is placed wherever it exists.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tern_proxy.core.documents.broker_groups import (
    BrokerGroupLeft,
    DeadLettersLeft,
    GroupBehind,
    TopicLeft,
    TopicPlace,
)
from tern_proxy.core.sending.topic import Topic
from tern_wire.limits import LEFT_SHOWN_MAX
from tern_wire.link.hosted import DeadGroup, HostedPage
from tern_wire.names import namespace_of, own_name
from tern_wire.routing.placement import Placement

# Groups that are listed for each topic: those with the most unread messages.
_GROUPS_SHOWN_MAX = 10
_OBSTACLES = ("placed", "moving", "unread", "scheduled")
_COUNTS = ("placed", "moving", "unread", "in_flight", "scheduled", "unclaimed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTopic:
    """Topic in one broker group. *groups*: unread messages of each, and the leased part."""

    messages: int
    scheduled: int
    groups: Mapping[str, tuple[int, int]]


@dataclass(slots=True, kw_only=True)
class Hosted:
    """Contents of one broker group, collected page by page. Owner: the caller."""

    topics: dict[str, HostedTopic] = field(default_factory=dict)
    transactions: int = 0
    dead_letters: int = 0
    dead_groups: list[DeadGroup] = field(default_factory=list)

    def add(self, page: HostedPage) -> None:
        """Add one answer to HOSTED."""
        for found in page.topics:
            groups = {each.group: (each.unread, each.leased) for each in found.groups}
            self.topics[found.topic] = HostedTopic(messages=found.messages, scheduled=found.scheduled, groups=groups)
        self.transactions = page.open
        self.dead_letters += page.dead_letters
        self.dead_groups += page.dead_groups

    def with_messages(self) -> list[str]:
        """Return the topics with messages."""
        return [name for name, topic in self.topics.items() if topic.messages]


def topic_place(topic: Topic) -> TopicPlace:
    """Return one row of the list of topics by place: topics of every namespace, with the namespace
    as a separate field.
    """
    placed = topic.placement
    return TopicPlace(
        namespace=namespace_of(topic.name),
        topic=own_name(topic.name),
        broker_groups=list(placed.groups),
        before=list(placed.before),
        hosts=sorted(topic.route),
    )


def is_here(topic: Topic, broker_group: str) -> bool:
    """Return whether *topic* exists in *broker_group*, is placed there, or is moving away from
    there.
    """
    if broker_group in topic.route:
        return True
    placed = topic.placement
    return broker_group in placed.groups or broker_group in placed.before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Contents of one topic in the broker group.

    *placed*, *moving*: 0 or 1. *groups*: readers, largest backlog first.
    """

    placed: int
    moving: int
    unread: int = 0
    in_flight: int = 0
    scheduled: int = 0
    unclaimed: int = 0
    groups: tuple[GroupBehind, ...] = ()


class Left:
    """Remaining contents of the broker group *name*, summed up by topic. Owner: one request."""

    def __init__(self, name: str, hosted: Hosted) -> None:
        self._name, self._hosted = name, hosted
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._topics: list[TopicLeft] = []

    def add(self, name: str, topic: Topic | None, readers: Iterable[str]) -> None:
        """Add the topic *name* of the routes (None: unknown).

        *readers*: groups that have begun it in another broker group.
        """
        row = self._row(topic, self._hosted.topics.get(name), readers)
        for count in _COUNTS:
            self._counts[count] += getattr(row, count)
        why = [reason for reason in _OBSTACLES if getattr(row, reason)]
        if why and len(self._topics) < LEFT_SHOWN_MAX:
            self._topics.append(
                TopicLeft(
                    namespace=namespace_of(name),
                    topic=own_name(name),
                    why=why,
                    unread=row.unread,
                    in_flight=row.in_flight,
                    scheduled=row.scheduled,
                    groups=list(row.groups),
                )
            )

    def document(self, *, writable: bool, leader: str) -> BrokerGroupLeft:
        """Return the document of the route."""
        hosted = self._hosted
        is_empty = not (hosted.transactions or hosted.dead_letters or any(self._counts[each] for each in _OBSTACLES))
        return BrokerGroupLeft(
            broker_group=self._name,
            writable=writable,
            leader=leader,
            topics=len(hosted.topics),
            **self._counts,
            transactions=hosted.transactions,
            dead_letters=hosted.dead_letters,
            is_drained=is_empty and not writable,
            topics_left=self._topics,
            dead_letters_left=[
                DeadLettersLeft(namespace=namespace_of(each.group), group=own_name(each.group), dead_letters=each.count)
                for each in hosted.dead_groups
            ],
        )

    def _row(self, topic: Topic | None, hosted: HostedTopic | None, readers: Iterable[str]) -> _Row:
        placed = topic.placement if topic is not None else Placement()
        is_placed, is_leaving = self._name in placed.groups, self._name in placed.before
        is_moving = is_leaving and not is_placed
        if hosted is None:
            return _Row(placed=int(is_placed), moving=int(is_moving))
        # A group that has begun the topic only elsewhere has all of its messages here unread.
        elsewhere = {group: hosted.messages for group in readers if group not in hosted.groups}
        unread = {group: count for group, (count, _) in hosted.groups.items()} | elsewhere
        return _Row(
            placed=int(is_placed),
            moving=int(is_moving),
            unread=max(unread.values(), default=0),
            in_flight=sum(leased for _, leased in hosted.groups.values()),
            scheduled=hosted.scheduled,
            unclaimed=0 if unread else hosted.messages,
            groups=_most(unread),
        )


def _most(unread: Mapping[str, int]) -> tuple[GroupBehind, ...]:
    behind: Sequence[str] = sorted((group for group in unread if unread[group]), key=lambda each: (-unread[each], each))
    return tuple(GroupBehind(group=own_name(group), unread=unread[group]) for group in behind[:_GROUPS_SHOWN_MAX])
