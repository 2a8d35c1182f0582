"""Handlers for statistics of topics and groups: sizes, rates and lag, merged from all broker
groups.
"""

from functools import partial

from tern_proxy.core import statistics
from tern_proxy.core.documents.statistics import GroupLag, TopicStats
from tern_proxy.routes.call import Call
from tern_proxy.routes.fan_out import ask_all, ask_each
from tern_wire.errors import GroupNotFound
from tern_wire.link.statistics import GetGroupStatistics, GetTopicStatistics
from tern_wire.names import check_group
from tern_wire.principals.principals import DESCRIBE, GROUP, TOPIC


async def get_topic_stats(call: Call, topic: str) -> TopicStats:
    """Return the number of messages in every queue of the topic, the time of the last one, and
    incoming and outgoing traffic.
    """
    found = await call.proxy.topic(topic)
    answers = await ask_each(call.proxy, found, GetTopicStatistics(topic=topic))
    stats = statistics.topic_stats(topic, [(name, told) for name, told, _ in answers])
    stats.groups = [name for name in stats.groups if call.admission.sees(GROUP, name)]
    return stats


async def get_group_lag(call: Call, group: str) -> GroupLag:
    """Return the lag of the group in each queue of `?topic=`, or of every topic that it reads: in
    messages and in time.

    `lag` counts messages that the group has not settled: never received, leased, resting, dying.
    `lag_ms`: how long the first of these has been visible. `committed` is null where the group has
    not begun.
    """
    check_group(group)
    if "topic" in call.query:
        name = call.topic(call.query["topic"])
        call.admission.require(DESCRIBE, TOPIC, name)
        topic = await call.proxy.topic(name)
        asked = GetGroupStatistics(group=group, topic=topic.name)
        answers = [(name, told) for name, told, _ in await ask_each(call.proxy, topic, asked)]
    else:
        answers = await ask_all(call.proxy, GetGroupStatistics(group=group), absent=GroupNotFound)
    return statistics.group_lag(group, answers, partial(call.admission.sees, TOPIC))
