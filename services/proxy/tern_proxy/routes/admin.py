"""The cluster as this proxy sees it, as an ordinary FastAPI route. Topics, groups and offsets have files of their own."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.core.access.namespaces import namespace_in
from tern_proxy.core.raft_facts import raft_facts
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import refuse_query, respond
from tern_wire.errors import NoNameServer
from tern_wire.names import is_of
from tern_wire.paths import CLUSTER_PATH


def admin_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    admin = _Admin(proxy)
    router = APIRouter(default_response_class=Response)
    router.add_api_route(CLUSTER_PATH, admin.get_cluster, methods=["GET"], tags=["cluster"])
    return router


class _Admin:
    """The handlers. Stateless but for the proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def get_cluster(self, request: Request) -> Response:
        """Broker groups with their leaders and terms as this proxy sees them, this proxy, and how many topics there are.

        `raft` of each node is asked of the node itself, now: heartbeats at the name servers would be up to a second old, which is
        an election or ten thousand entries. A node that is not linked, or does not answer within 0.3 s, has none.
        """
        refuse_query(request)
        proxy = self._proxy
        routes = proxy.cache.routes
        if routes is None:
            await proxy.cache.refresh()
            routes = proxy.cache.routes
        if routes is None:
            raise NoNameServer(endpoints=proxy.cache.endpoints)
        asked = list(proxy.groups.values())
        answers = await asyncio.gather(*(group.link.statuses() for group in asked))
        facts = {group.link.broker_group: raft_facts(answer) for group, answer in zip(asked, answers, strict=True)}
        groups = {
            name: {
                "leader": group.link.leader,
                "term": group.link.term,
                "group_size": routes.broker_groups[name].group_size if name in routes.broker_groups else 0,
                "writable": name not in routes.broker_groups or routes.broker_groups[name].writable,
                "nodes": {
                    node: {**place, "raft": facts.get(name, {}).get(node)} for node, place in group.link.nodes().items()
                },
            }
            for name, group in proxy.groups.items()
        }
        document = {
            "cluster": routes.cluster,
            "warm": routes.warm,
            "name_server_reachable": proxy.cache.is_reachable,
            "proxy": proxy.name,
            "topics": sum(is_of(namespace_in(request), name) for name in proxy.cache.topics),
            "broker_groups": groups,
        }
        return respond(request, document)
