"""One namespace's share of a broker group's capacity, so that no tenant uses up all of it.

The leader checks it before it proposes, including its own undecided proposals; apply checks the
totals alone. So an operator may change the share at any time, for each node, and no entry of the
log changes its meaning. Existing items stay when the share gets smaller.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from tern_broker.config import BrokerConfig
from tern_broker.core.machine import StateMachine
from tern_broker.core.namespace_counts import NamespaceCounts
from tern_wire.errors import LimitReached
from tern_wire.limits import (
    GROUPS_MAX,
    MEMBERS_MAX,
    PRODUCER_GROUPS_MAX,
    QUEUE_LOCKS_MAX,
    QUEUES_MAX,
    QUEUES_PER_TOPIC_DEFAULT,
    TOPICS_MAX,
)
from tern_wire.names import namespace_of
from tern_wire.routing.membership import Heartbeat
from tern_wire.settings.group_settings import GroupChange
from tern_wire.settings.producer_settings import ProducerChange
from tern_wire.settings.topic_settings import ALTER, TopicChange

# Called when the command's verdict is known.
Release = Callable[[], None]


class NamespaceShares:
    """Of one node. Owner: the core loop."""

    def __init__(self, config: BrokerConfig, state: Callable[[], StateMachine]) -> None:
        self._config, self._state = config, state
        # Proposed and undecided items, by kind and namespace.
        self._asked: Counter[tuple[str, str]] = Counter()

    def take_topic(self, change: TopicChange) -> Release:
        """Reserve the topics and queues of *change*; return a function to call when it is decided.

        LimitReached if the namespace has used up its share of topics or queues.
        """
        names = self._state().names
        topic = names.topics.get(change.topic)
        if topic is None and change.mode == ALTER:
            return nothing_taken
        has = topic.queues if topic is not None else 0
        wanted = change.queues if change.queues is not None else has or QUEUES_PER_TOPIC_DEFAULT
        topics = self._take("topics", change.topic, names.topics_of, TOPICS_MAX, 0 if topic is not None else 1)
        try:
            queues = self._take("queues", change.topic, names.queues_of, QUEUES_MAX, max(0, wanted - has))
        except LimitReached:
            topics()
            raise

        def release() -> None:
            topics()
            queues()

        return release

    def take_group(self, change: GroupChange) -> Release:
        """Reserve a consumer group, as take_topic reserves topics."""
        names = self._state().names
        is_new = change.group not in names.groups and change.mode != ALTER
        return self._take("consumer groups", change.group, names.groups_of, GROUPS_MAX, int(is_new))

    def take_producer_group(self, change: ProducerChange) -> Release:
        """Reserve a producer group, as take_topic reserves topics."""
        producers = self._state().producers
        is_new = change.create and change.producer_group not in producers.by_name
        return self._take("producer groups", change.producer_group, producers.counts, PRODUCER_GROUPS_MAX, int(is_new))

    def take_member(self, says: Heartbeat) -> Release:
        """Reserve a member of a group of either kind, as take_topic reserves topics."""
        members = self._state().clients.members
        is_new = not members.has(says.role, says.group, says.member)
        return self._take("members", says.group, members.counts, MEMBERS_MAX, int(is_new))

    def take_locks(self, group: str, topic: str, queues: Iterable[int]) -> Release:
        """Reserve locks of queues, as take_topic reserves topics.

        Expired locks are dropped when the total limit is reached, and not for a share.
        """
        locks = self._state().clients.locks
        return self._take(
            "queue locks", group, locks.counts, QUEUE_LOCKS_MAX, locks.new_among(group, topic, set(queues))
        )

    def _take(self, what: str, name: str, counts: NamespaceCounts, total: int, count: int) -> Release:
        if not count:
            return nothing_taken
        key = (what, namespace_of(name))
        limit = total * self._config.namespace_share_percent // 100
        actual = counts.of(name) + self._asked[key]
        if actual + count > limit and limit < total:
            whose = f"namespace '{key[1]}'" if key[1] else "names without a namespace"
            raise LimitReached(
                what=f"{what.capitalize()} of {whose} in broker group '{self._config.broker_group}'",
                actual=actual,
                limit=limit,
                remedy=(
                    f"That is the share of one namespace: {self._config.namespace_share_percent} % of {total:,}. Delete what is not needed; an "
                    "operator raises the share with --namespace-share-percent of the brokers (TERN_BROKER_NAMESPACE_SHARE_PERCENT)."
                ),
            )
        self._asked[key] += count

        def release() -> None:
            self._asked[key] -= count
            if not self._asked[key]:
                del self._asked[key]

        return release


def nothing_taken() -> None:
    """Release nothing."""
