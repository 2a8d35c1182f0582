"""Handler for the state of the cluster as this proxy sees it."""

import asyncio

from tern_proxy.core.cluster import broker_group_state, raft_facts
from tern_proxy.core.documents.cluster import ClusterState
from tern_proxy.routes.call import Call
from tern_wire.errors import NoNameServer
from tern_wire.names import is_of


async def get_cluster(call: Call) -> ClusterState:
    """Return the broker groups with their leaders and terms as this proxy sees them, this proxy,
    and the number of topics.

    `raft` of each node is requested from the node itself: heartbeats at the name servers would be
    up to a second old, which is an election or ten thousand entries. A node without a link, or
    without an answer within 0.3 s, has none.
    """
    proxy = call.proxy
    routes = proxy.cache.routes
    if routes is None:
        await proxy.cache.refresh()
        routes = proxy.cache.routes
    if routes is None:
        raise NoNameServer(endpoints=proxy.cache.endpoints)
    asked = list(proxy.groups.values())
    answers = await asyncio.gather(*(group.link.statuses() for group in asked))
    facts = {group.link.broker_group: raft_facts(answer) for group, answer in zip(asked, answers, strict=True)}
    namespace = call.namespace
    return ClusterState(
        cluster=routes.cluster,
        warm=routes.warm,
        name_server_reachable=proxy.cache.is_reachable,
        proxy=proxy.name,
        topics=sum(is_of(namespace, name) for name in proxy.cache.topics),
        broker_groups={
            name: broker_group_state(
                group.link.leader,
                group.link.term,
                routes.broker_groups.get(name),
                group.link.nodes(),
                facts.get(name, {}),
            )
            for name, group in proxy.groups.items()
        },
    )
