"""Where a topic lives, from this proxy's routes: they hold while all name servers are away, and leaders are as its links know them."""

from dataclasses import replace

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import refuse_query, respond
from tern_wire.errors import NoNameServer
from tern_wire.paths import topic_route_path
from tern_wire.routing.route_document import route_document


def cluster_router(proxy: Proxy) -> APIRouter:
    """GET /v1/topics/{topic}/route."""
    router = APIRouter(default_response_class=Response)

    async def get_topic_route(request: Request, topic: str) -> Response:
        """In which broker groups the topic lives: queues, nodes, leader, permission, and its ordered configuration.

        It is what RocketMQ's route query tells. A group without nodes is only remembered: all its brokers are away.
        """
        refuse_query(request)
        found = await proxy.topic(topic)
        routes = proxy.cache.routes
        if routes is None:
            raise NoNameServer(endpoints=proxy.cache.endpoints)
        told = dict(routes.broker_groups)
        for name, group in proxy.groups.items():
            if name in told and group.link.has_leader:
                # A link hears of a new leader sooner than a name server.
                told[name] = replace(told[name], leader=group.link.leader, term=group.link.term)
        document = route_document(topic, found.route, replace(routes, broker_groups=told))
        return respond(request, msgspec.to_builtins(document))

    path = topic_route_path("{topic}")
    router.add_api_route(path, get_topic_route, methods=["GET"], tags=["topics"])
    return router
