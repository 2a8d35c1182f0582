"""Handlers for the placement of a topic's keyed and ordered messages: shown, and changed."""

from tern_proxy.core.documents.topics import PlacementSettings, TopicPlaced, TopicPlacement
from tern_proxy.core.documents.values import extended
from tern_proxy.core.topics import topic_placement
from tern_proxy.routes.call import Call
from tern_proxy.routes.topics.topic_places import describe_placement, place_topic
from tern_wire.errors import InvalidField
from tern_wire.limits import PLACEMENT_GROUPS_MAX
from tern_wire.names import check_topic


async def get_placement(call: Call, topic: str) -> TopicPlacement:
    """Return the owners of the topic's keyed and ordered messages, the previous owners, and whether
    a move is in progress.
    """
    return topic_placement(topic, *await describe_placement(call.proxy, check_topic(topic)))


async def put_placement(call: Call, topic: str) -> TopicPlaced:
    """Place the topic on `broker_groups`: those that lack it get it.

    Keyed and ordered messages move during sends and receives. No message is stored twice or
    overtaken. A repeat completes an interrupted change, and ends the move as soon as possible:
    after 10 minutes, and when every message group's earlier messages are settled. `left` is the
    obstacle. 409 while another move is in progress.
    """
    check_topic(topic)
    settings = await call.read(PlacementSettings)
    wanted = tuple(sorted(set(settings.broker_groups)))
    if not 0 < len(wanted) <= PLACEMENT_GROUPS_MAX:
        reason = f"A topic is placed on 1 to {PLACEMENT_GROUPS_MAX} broker groups"
        raise InvalidField(reason=reason, pointer="/broker_groups")
    changed, left = await place_topic(call.proxy, topic, wanted)
    placement = topic_placement(topic, *await describe_placement(call.proxy, topic))
    return extended(placement, TopicPlaced, changed=changed, left=left)
