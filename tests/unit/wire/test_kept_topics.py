"""Names that are kept: the mesh's own topics, by cluster and namespace, and RocketMQ's."""

import pytest

from tern_wire.errors import TopicReserved
from tern_wire.kept_topics import AUDIT, DEAD_LETTERS, REPLIES, KeptTopics, audit_topic_of, is_system
from tern_wire.names import check_topic


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *(("dev_REPLY_TOPIC", REPLIES), ("shop%dev_REPLY_TOPIC", REPLIES), ("dev_AUDIT_TOPIC", AUDIT)),
        *(("%DLQ%billing", DEAD_LETTERS), ("%DLQ%shop%billing", DEAD_LETTERS)),
        *(("other_REPLY_TOPIC", ""), ("shop%other_REPLY_TOPIC", ""), ("other_AUDIT_TOPIC", ""), ("orders", "")),
        *(("dev_REPLY_TOPICS", ""), ("my_dev_REPLY_TOPIC", ""), ("shop%dev_AUDIT_TOPIC", ""), ("TBW102", "")),
    ],
)
def test_a_cluster_keeps_its_own_and_no_others(name: str, what: str) -> None:
    """Another cluster's, and whatever only looks like it, is a client's."""
    kept = KeptTopics("dev")
    assert kept.what(name) == what
    if what:
        with pytest.raises(TopicReserved) as refused:
            kept.require_clients(name)
        assert what in refused.value.detail
    else:
        kept.require_clients(name)


@pytest.mark.parametrize("cluster", ["", "x" * 200, "no spaces", "_-_"])
def test_names_of_odd_clusters_are_kept_as_well(cluster: str) -> None:
    """Whatever becomes of the cluster's name in a topic's, and with whichever namespace."""
    kept = KeptTopics(cluster)
    for namespace in ("", "shop", "n" * 63):
        assert kept.what(check_topic(kept.replies(namespace))) == REPLIES
    assert kept.what(check_topic(kept.audit)) == AUDIT
    assert kept.audit == audit_topic_of(cluster) != kept.replies()


@pytest.mark.parametrize(
    "name",
    [
        *(
            "TBW102",
            "SCHEDULE_TOPIC_XXXX",
            "BenchmarkTest",
            "SELF_TEST_TOPIC",
            "OFFSET_MOVED_EVENT",
            "CHECKPOINT_TOPIC",
        ),
        *(
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "DefaultHeartBeatSyncerTopic",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRACE_TOPIC",
        ),
        *("RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_dev", "shop%TBW102", "Rmq_Sys_New"),
    ],
)
def test_rocketmqs_own_names_cannot_be_made_but_used(name: str) -> None:
    """A topic that is there already is served: nothing but its creation is refused."""
    kept = KeptTopics("dev")
    assert is_system(name)
    kept.require_clients(name)
    with pytest.raises(TopicReserved) as refused:
        kept.require_new(name)
    assert (refused.value.status, refused.value.code) == (400, "topic-reserved")
    assert not is_system(name + "x") or name.lower().rpartition("%")[2].startswith("rmq_sys_")
