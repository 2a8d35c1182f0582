"""What keeps a broker group from being taken out: put together from what it hosts and from who reads the same topics elsewhere. Pure.

    placed      keyed and ordered messages of the topic still go there       -> place it on other broker groups
    moving      it was taken off there, and what was sent before is not over -> place it again when its time has come
    unread      a group that reads the topic, anywhere, has not settled all  -> let it read
    scheduled   messages wait there for their delivery time                  -> wait, or cancel them

What no group reads (`unclaimed`) keeps nobody: it goes with the broker group. Dead letters do: their group may want them again, and they lie there.
A topic of which nobody has said where it is placed is placed wherever it is.
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

# Groups that are named for each topic: those that have the most to read.
_GROUPS_SHOWN_MAX = 10
_OBSTACLES = ("placed", "moving", "unread", "scheduled")
_COUNTS = ("placed", "moving", "unread", "in_flight", "scheduled", "unclaimed")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTopic:
    """A topic in one broker group. *groups*: what each has to read, and what of that is leased."""

    messages: int
    scheduled: int
    groups: Mapping[str, tuple[int, int]]


@dataclass(slots=True, kw_only=True)
class Hosted:
    """All that one broker group has said of itself, page by page. Owner: whoever asks it."""

    topics: dict[str, HostedTopic] = field(default_factory=dict)
    transactions: int = 0
    dead_letters: int = 0
    dead_groups: list[DeadGroup] = field(default_factory=list)

    def add(self, page: HostedPage) -> None:
        """One more answer to HOSTED."""
        for found in page.topics:
            groups = {each.group: (each.unread, each.leased) for each in found.groups}
            self.topics[found.topic] = HostedTopic(messages=found.messages, scheduled=found.scheduled, groups=groups)
        self.transactions = page.open
        self.dead_letters += page.dead_letters
        self.dead_groups += page.dead_groups

    def with_messages(self) -> list[str]:
        """The topics of which it has any."""
        return [name for name, topic in self.topics.items() if topic.messages]


def topic_place(topic: Topic) -> TopicPlace:
    """One row of the list of topics by where they are: every namespace's, its name apart."""
    placed = topic.placement
    return TopicPlace(
        namespace=namespace_of(topic.name),
        topic=own_name(topic.name),
        broker_groups=list(placed.groups),
        before=list(placed.before),
        hosts=sorted(topic.route),
    )


def is_here(topic: Topic, broker_group: str) -> bool:
    """Whether *topic* is hosted in *broker_group*, placed there, or on its way from there."""
    if broker_group in topic.route:
        return True
    placed = topic.placement
    return broker_group in placed.groups or broker_group in placed.before


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What one topic has in the broker group. *placed*, *moving*: 0 or 1. *groups*: who has to read there, the furthest behind first."""

    placed: int
    moving: int
    unread: int = 0
    in_flight: int = 0
    scheduled: int = 0
    unclaimed: int = 0
    groups: tuple[GroupBehind, ...] = ()


class Left:
    """What is left in broker group *name*, added up topic by topic. Owner: one request."""

    def __init__(self, name: str, hosted: Hosted) -> None:
        self._name, self._hosted = name, hosted
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._topics: list[TopicLeft] = []

    def add(self, name: str, topic: Topic | None, readers: Iterable[str]) -> None:
        """The topic *name*, as the routes have it (None: they do not). *readers*: groups that have begun it in any other broker group."""
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
        """As the route answers."""
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
        # Whoever has begun the topic elsewhere alone has everything of it to read here.
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
