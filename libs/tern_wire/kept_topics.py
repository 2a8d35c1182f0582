"""Topics that are nobody's: those in which the mesh keeps what is its own, and RocketMQ's names for the like. One place says which they are.

    dev_REPLY_TOPIC, shop%dev_REPLY_TOPIC   REPLIES: to the requests of all, those of each namespace apart
    dev_AUDIT_TOPIC                         AUDIT
    %DLQ%billing                            DEAD_LETTERS of a group; no client can write such a name
    TBW102, SCHEDULE_TOPIC_XXXX, rmq_sys_*  SYSTEM: brokers of RocketMQ keep their own there, so an exported store could not be read

No pattern of a grant reaches the first three and no name does: what the mesh keeps is had by the ways that are made for it. Clients cannot make,
change, delete or send to them, whether or not anybody is asked who it is. A SYSTEM topic cannot be made; one that is there is a topic as any other.
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
# RMQ_SYS_TRANS_HALF_TOPIC and its kin, rmq_sys_wheel_timer and its: in either case, since what comes is named so, too.
_SYSTEM_PREFIX = "rmq_sys_"


def audit_topic_of(cluster: str) -> str:
    """The topic that holds the audit of *cluster*."""
    stem = reply_topic_of(cluster).removesuffix(REPLY_TOPIC_END)
    return stem[: TOPIC_LENGTH_MAX - len(AUDIT_TOPIC_END)] + AUDIT_TOPIC_END


def is_system(name: str) -> bool:
    """Whether *name*, a whole one, is one that RocketMQ's brokers or clients take for their own, in whichever namespace."""
    own = own_name(name)
    return own in _SYSTEM_TOPICS or own.lower().startswith(_SYSTEM_PREFIX)


class KeptTopics:
    """Those of one cluster. Immutable."""

    __slots__ = ("_cluster", "audit")

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self.audit = audit_topic_of(cluster)

    def replies(self, namespace: str = "") -> str:
        """The topic of the replies of *namespace*."""
        return reply_topic_of(self._cluster, namespace)

    def what(self, name: str) -> str:
        """What the mesh keeps in the topic *name*, a whole one: REPLIES, AUDIT or DEAD_LETTERS; "" if it is a client's."""
        # Few names end or begin so; the rest need no look.
        if name.endswith(REPLY_TOPIC_END):
            namespace, separator, _ = name.rpartition(SEPARATOR)
            return REPLIES if name == self.replies(namespace if separator else "") else ""
        if name.startswith(PREFIX):
            return DEAD_LETTERS
        return AUDIT if name == self.audit else ""

    def require_clients(self, name: str) -> None:
        """TopicReserved if the mesh keeps its own in the topic *name*."""
        if what := self.what(name):
            raise TopicReserved(topic=name, keeper=f"this mesh, for its {what}")

    def require_new(self, name: str) -> None:
        """TopicReserved unless a client may make a topic called *name*."""
        self.require_clients(name)
        if is_system(name):
            raise TopicReserved(topic=name, keeper="RocketMQ, whose brokers and clients could not read a store with it")
