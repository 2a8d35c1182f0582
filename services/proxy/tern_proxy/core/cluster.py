"""Documents of the cluster and of a topic's route, from the statuses of broker nodes and from
routes. Pure.
"""

from collections.abc import Mapping
from typing import Any

from tern_proxy.core.documents.cluster import (
    BrokerGroupState,
    BrokerNode,
    GroupQueues,
    HostedTopic,
    RaftFacts,
    RoutedGroup,
    RoutedNode,
    TopicRoute,
)
from tern_wire.routing.route import BrokerGroupRoute
from tern_wire.routing.route_document import TopicRouteDocument


def raft_facts(statuses: dict[str, dict[str, Any]]) -> dict[str, RaftFacts | None]:
    """Return the role, term, indexes and lag of each node; None for a node without a status.

    `lag` is the number of missing entries of the leader's log. It comes from the leader, since a
    follower cannot know its missing entries: None while no leader answers, 0 for the leader.
    """
    leading = [status for status in statuses.values() if status.get("role") == "leader"]
    leader = max(leading, key=lambda status: int(status.get("term", 0)), default=None)
    lags: dict[str, int] = {}
    if leader is not None:
        last = int(leader.get("last_index", 0))
        lags = {str(peer["node"]): max(0, last - int(peer["match_index"])) for peer in leader.get("peers", ())}
        lags[str(leader.get("node", ""))] = 0
    return {name: _facts(status, lags.get(name)) if status else None for name, status in statuses.items()}


def _facts(status: dict[str, Any], lag: int | None) -> RaftFacts:
    return RaftFacts(
        role=str(status.get("role", "")),
        serving=bool(status.get("serving", False)),
        term=int(status.get("term", 0)),
        commit_index=int(status.get("commit_index", 0)),
        applied_index=int(status.get("applied_index", 0)),
        last_index=int(status.get("last_index", 0)),
        synced_index=int(status.get("synced_index", 0)),
        lag=lag,
        fsync_ms=float(status.get("fsync_ms", 0.0)),
    )


def broker_group_state(
    leader: str,
    term: int,
    route: BrokerGroupRoute | None,
    places: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, RaftFacts | None],
) -> BrokerGroupState:
    """Return the state of a broker group whose link has *leader* and *term*.

    *route* is None while the routes do not name it. *places*: the link address of each node, and
    whether it is connected. *facts*: the result of `raft_facts`.
    """
    return BrokerGroupState(
        leader=leader,
        term=term,
        group_size=route.group_size if route is not None else 0,
        writable=route is None or route.writable,
        nodes={
            node: BrokerNode(link=place["link"], connected=place["connected"], raft=facts.get(node))
            for node, place in places.items()
        },
    )


def topic_route(document: TopicRouteDocument) -> TopicRoute:
    """Return the document of a topic's route."""
    return TopicRoute(
        topic=document.topic,
        cluster=document.cluster,
        warm=document.warm,
        order=document.order,
        broker_groups={name: _routed_group(group) for name, group in document.broker_groups.items()},
        topics={
            topic: {
                name: HostedTopic(
                    topic_id=part.topic_id,
                    queues=part.queues,
                    type=part.type,
                    perm=part.perm,
                    placement=part.placement,
                )
                for name, part in route.items()
            }
            for topic, route in document.topics.items()
        },
        queue_data=[
            GroupQueues(
                broker_group=part.broker_group,
                read_queues=part.read_queues,
                write_queues=part.write_queues,
                perm=part.perm,
            )
            for part in document.queue_data
        ],
    )


def _routed_group(group: BrokerGroupRoute) -> RoutedGroup:
    return RoutedGroup(
        nodes={name: RoutedNode(link=node.link, http=node.http) for name, node in group.nodes.items()},
        leader=group.leader,
        term=group.term,
        group_size=group.group_size,
        writable=group.writable,
    )
