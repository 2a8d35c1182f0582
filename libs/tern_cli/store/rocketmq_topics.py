"""Topics of a RocketMQ store that hold RocketMQ's bookkeeping, not messages of users. Pure.

Reference: Apache RocketMQ 5, TopicValidator (the set of system topics and the prefix), MixAll (the
prefixes of groups).
"""

_OWN = frozenset(
    {
        *("TBW102", "SCHEDULE_TOPIC_XX" + "XX", "BenchmarkTest", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"),
        *("TRANS_CHECK_MAX_TIME_TOPIC", "DefaultHeartBeatSyncerTopic", "DefaultCluster"),
    }
)
_OWN_PREFIXES = ("RMQ_SYS_", "rmq_sys_", "CID_", "%SYS%")
RETRY_PREFIX, DEAD_LETTER_PREFIX = "%RETRY%", "%DLQ%"


def own_topic(name: str) -> str:
    """Return the role of *name* in RocketMQ, such as `a system topic`; "" for a user's topic."""
    if name.startswith(RETRY_PREFIX):
        return "retries of a group"
    if name.startswith(DEAD_LETTER_PREFIX):
        return "dead letters of a group"
    return "a system topic" if name in _OWN or name.startswith(_OWN_PREFIXES) else ""
