"""Reserved topics: the mesh's internal topics and RocketMQ's system topics, classified in one
place.

    dev_REPLY_TOPIC, shop%dev_REPLY_TOPIC   REPLIES to requests, one topic for each namespace
    dev_AUDIT_TOPIC                         AUDIT
    %DLQ%billing                            DEAD_LETTERS of a group; no client can write it
    TBW102, SCHEDULE_TOPIC_XXXX, rmq_sys_*  SYSTEM: RocketMQ's brokers use these themselves, so they
                                            could not read an exported store that holds such a topic

Internal topics (the first three kinds) are reachable only through their own endpoints: no pattern
and no name in a grant reaches them. Clients cannot create, change, delete or send to them, with or
without authentication. A SYSTEM topic cannot be created; an existing one is an ordinary topic.
Reference: RocketMQ's TopicValidator (isSystemTopic) and MixAll; Kafka's internal topics.
"""

from tern_wire.dead_letters import PREFIX
from tern_wire.errors import TopicReserved
from tern_wire.names import SEPARATOR, TOPIC_LENGTH_MAX, own_name
from tern_wire.replies import REPLY_TOPIC_END, reply_topic_of

REPLIES, AUDIT, DEAD_LETTERS, SYSTEM = "replies", "audit", "dead letters", "system"
AUDIT_TOPIC_END = "_AUDIT_TOPIC"
_SYSTEM_TOPICS = frozenset(
    {
        *("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        *("CHECKPOINT_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "DefaultHeartBeatSyncerTopic"),
    }
)
# RMQ_SYS_TRANS_HALF_TOPIC, rmq_sys_wheel_timer and others, in either case; future ones follow the
# same scheme.
_SYSTEM_PREFIX = "rmq_sys_"


def audit_topic_of(cluster: str) -> str:
    """Return the name of the topic that holds the audit events of *cluster*."""
    stem = reply_topic_of(cluster).removesuffix(REPLY_TOPIC_END)
    return stem[: TOPIC_LENGTH_MAX - len(AUDIT_TOPIC_END)] + AUDIT_TOPIC_END


def is_system(name: str) -> bool:
    """Return whether the full *name* is a system topic of RocketMQ's brokers or clients, in any
    namespace.
    """
    own = own_name(name)
    return own in _SYSTEM_TOPICS or own.lower().startswith(_SYSTEM_PREFIX)


class KeptTopics:
    """Reserved topics of one cluster. Immutable."""

    __slots__ = ("_cluster", "audit")

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.audit = audit_topic_of(cluster)

    def replies(self, namespace: str = "") -> str:
        """Return the name of the reply topic of *namespace*."""
        return reply_topic_of(self._cluster, namespace)

    def what(self, name: str) -> str:
        """Return the kind of the internal topic with the full *name* (REPLIES, AUDIT,
        DEAD_LETTERS), or "" for a client's topic.
        """
        # Fast path: few names begin or end like this.
        if name.endswith(REPLY_TOPIC_END):
            namespace, separator, _ = name.rpartition(SEPARATOR)
            return REPLIES if name == self.replies(namespace if separator else "") else ""
        if name.startswith(PREFIX):
            return DEAD_LETTERS
        return AUDIT if name == self.audit else ""

    def require_clients(self, name: str) -> None:
        """Raise TopicReserved if *name* is an internal topic of the mesh."""
        if what := self.what(name):
            raise TopicReserved(topic=name, keeper=f"this mesh, for its {what}")

    def require_new(self, name: str) -> None:
        """Raise TopicReserved unless a client may create a topic called *name*."""
        self.require_clients(name)
        if is_system(name):
            raise TopicReserved(topic=name, keeper="RocketMQ, whose brokers and clients could not read a store with it")
