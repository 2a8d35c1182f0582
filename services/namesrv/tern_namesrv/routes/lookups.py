"""The read routes of proxies, clients and people.

Whole routes (polled, with ETag), the route of one topic, and the table of the cluster.
"""

from dataclasses import replace

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_namesrv.core import Registry
from tern_namesrv.operator_store import OperatorStore
from tern_service import Clock
from tern_wire.paths import CLUSTER_PATH, JSON, ROUTES_PATH, topic_route_path
from tern_wire.routing.route_document import route_document


def lookup_routes(registry: Registry, store: OperatorStore, clock: Clock, *, instance: str) -> APIRouter:
    """GET /v1/routes, /v1/topics/{topic}/route and /v1/cluster. *instance* keeps ETags unique."""
    router = APIRouter(tags=["routes"])
    pages = _RoutesPage(registry, store, instance)

    async def routes(request: Request, topics_tag: str = "") -> Response:
        """Every broker group and topic (tern_wire.routing.route.Routes).

        304 when If-None-Match has the current version. If `?topics_tag=` has the current topics'
        tag, the topics are left out and `topics_known` is set: leaders change more often than
        topics.
        """
        tag, body = pages.at(clock.mono_ms(), topics_tag)
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in _tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=JSON)

    async def topic_route(topic: str) -> Response:
        """The route of one topic, with its ordered configuration.

        The form is that of tern_wire.routing.route_document. 404 `topic-not-found` when no broker
        has the topic, 503 while that is not certain.
        """
        routes = registry.topic_route(topic, clock.mono_ms())
        routes = replace(routes, orders=dict(store.state.configuration.orders))
        return Response(orjson.dumps(route_document(topic, routes.topics[topic], routes)), media_type=JSON)

    async def cluster() -> Response:
        """Live nodes by broker group, each with the time since its last heartbeat (ms).

        A group without nodes is only remembered.
        """
        now_ms = clock.mono_ms()
        table, live = registry.routes(now_ms), registry.live()
        document = {
            "cluster": table.cluster,
            "warm": table.warm,
            "version": registry.version,
            "topics": len(table.topics),
            "clusters": {table.cluster: list(table.broker_groups)},
            "wiped": sorted(registry.wiped),
            "configurations": store.state.configuration.entries,
            "broker_groups": {
                name: {
                    "leader": group.leader,
                    "term": group.term,
                    "group_size": group.group_size,
                    "writable": group.writable,
                    "nodes": {
                        node: {"link": row.route.link, "http": row.route.http, "silent_ms": now_ms - row.heard_ms}
                        for node, row in live.get(name, {}).items()
                    },
                }
                for name, group in table.broker_groups.items()
            },
        }
        return Response(orjson.dumps(document), media_type=JSON)

    router.add_api_route(ROUTES_PATH, routes, methods=["GET"], response_class=Response)
    router.add_api_route(topic_route_path("{topic}"), topic_route, methods=["GET"], response_class=Response)
    router.add_api_route(CLUSTER_PATH, cluster, methods=["GET"], response_class=Response)
    return router


def _tags(header: str) -> list[str]:
    """The entity tags of If-None-Match; weak ones compare as strong ones (RFC 9110 13.1.2)."""
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]


class _RoutesPage:
    """The routes document as bytes, made once per version: hundreds of proxies poll the same one.

    Owner: its router.
    """

    def __init__(self, registry: Registry, store: OperatorStore, instance: str) -> None:
        self._registry, self._store = registry, store
        self._instance = instance
        self._orders = store.state.configuration.orders
        self._orders_version = 0
        self._tag = self._topics_tag = ""
        self._whole = self._short = b""

    def at(self, now_ms: int, topics_tag: str) -> tuple[str, bytes]:
        """Return ETag and body as of now, without topics if *topics_tag* names the current ones.

        The end of the warm-up changes the document too.
        """
        warm = "w" if self._registry.is_warm(now_ms) else "c"
        orders = self._store.state.configuration.orders
        if orders is not self._orders:
            self._orders, self._orders_version = orders, self._orders_version + 1
        tag = f'"{self._instance}-{self._registry.version}-{self._orders_version}-{warm}"'
        if tag != self._tag:
            routes = self._registry.routes(now_ms)
            self._topics_tag = f"{self._instance}-{routes.topics_tag}-{self._orders_version}"
            routes = replace(routes, orders=dict(orders), topics_tag=self._topics_tag)
            self._tag, self._whole = tag, orjson.dumps(routes)
            self._short = orjson.dumps(replace(routes, topics={}, orders={}, topics_known=True))
        return self._tag, self._short if topics_tag == self._topics_tag else self._whole
