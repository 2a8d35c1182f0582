"""Handler for the route of a topic, from this proxy's routes.

They remain valid while all name servers are away; leaders come from its links.
"""

from dataclasses import replace

from tern_proxy.core.cluster import topic_route
from tern_proxy.core.documents.cluster import TopicRoute
from tern_proxy.routes.call import Call
from tern_wire.errors import NoNameServer
from tern_wire.routing.route_document import route_document


async def get_topic_route(call: Call, topic: str) -> TopicRoute:
    """Return the broker groups of the topic: queues, nodes, leader, permission, and its ordered
    configuration.

    The answer has the content of RocketMQ's route query. A group without nodes is only remembered:
    all its brokers are away.
    """
    proxy = call.proxy
    found = await proxy.topic(topic)
    routes = proxy.cache.routes
    if routes is None:
        raise NoNameServer(endpoints=proxy.cache.endpoints)
    told = dict(routes.broker_groups)
    for name, group in proxy.groups.items():
        if name in told and group.link.has_leader:
            # A link learns of a new leader earlier than a name server.
            told[name] = replace(told[name], leader=group.link.leader, term=group.link.term)
    return topic_route(route_document(topic, found.route, replace(routes, broker_groups=told)))
