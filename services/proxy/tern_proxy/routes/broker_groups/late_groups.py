"""Consumer groups with `start` latest whose topic is placed on another broker group.

Such a group begins a queue at its end, at the group's first receive. In a broker group that has
just got the topic, that position would be behind messages sent there since, which are newer than
the group's begin in the topic and would never be read. So a group that has begun the topic
elsewhere begins it here with the oldest kept message, before or soon after the first one is stored.

Law: a queue that the group has begun here is never moved. If it begins one between the check and
the seek, it gets the messages just received once more, as after an expired lease. A repeat changes
nothing.
"""

from collections.abc import Iterable

from tern_proxy.proxy import Proxy
from tern_wire.errors import GroupNotFound, TopicNotFound
from tern_wire.link.consumer_offsets import SeekGroup
from tern_wire.link.groups import DescribeGroup
from tern_wire.link.heads import LinkRequest, R
from tern_wire.link.topics import DescribeTopic
from tern_wire.settings.group_settings import LATEST


async def begin_topic(proxy: Proxy, topic: str, broker_group: str, queues: int) -> int:
    """Begin *topic* at *broker_group*, which has *queues* of it, for the groups that have begun it
    elsewhere.

    Return the number of begun queues. The groups are those in the descriptions of the topic, at
    most 1,000 for each other broker group.
    """
    names: set[str] = set()
    for other in _others(proxy, broker_group):
        found = await _ask(proxy, other, DescribeTopic(topic=topic))
        names.update(found.groups if found is not None else ())
    return sum([await _begin(proxy, name, {topic}, broker_group, {topic: queues}) for name in sorted(names)])


async def begin_group(proxy: Proxy, group: str, broker_group: str) -> int:
    """Begin every topic at *broker_group* that it has and that *group* has begun elsewhere; return
    the number of queues.
    """
    topics: set[str] = set()
    for other in _others(proxy, broker_group):
        found = await _ask(proxy, other, DescribeGroup(group=group, topic=""))
        topics.update(row.topic for row in (found.topics if found is not None else ()))
    cached = proxy.cache.topics
    here = {name: cached[name].route for name in topics if name in cached and broker_group in cached[name].route}
    return await _begin(proxy, group, here, broker_group, {name: here[name][broker_group].queues for name in here})


async def _begin(proxy: Proxy, group: str, topics: Iterable[str], broker_group: str, queues: dict[str, int]) -> int:
    begun = 0
    for topic in sorted(topics):
        found = await _ask(proxy, broker_group, DescribeGroup(group=group, topic=topic))
        if found is None or found.start != LATEST:
            continue
        known = {int(queue) for row in found.topics for queue in row.committed}
        if missing := [queue for queue in range(queues[topic]) if queue not in known]:
            seek = SeekGroup(group=group, topic=topic, queues=missing, to="earliest", dry_run=False)
            if await _ask(proxy, broker_group, seek) is not None:
                begun += len(missing)
    return begun


def _others(proxy: Proxy, broker_group: str) -> list[str]:
    return sorted(name for name in proxy.groups if name != broker_group and not proxy.is_taken_out(name))


async def _ask(proxy: Proxy, broker_group: str, request: LinkRequest[R]) -> R | None:
    """Return the answer; None if the topic or group is missing, so that nothing has begun."""
    try:
        found, _ = await proxy.group(broker_group).link.ask(request, is_repeatable=True)
    except (TopicNotFound, GroupNotFound):
        return None
    return found
