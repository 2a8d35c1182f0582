"""What proxies, clients and people call: whole routes (polled, with ETag), one topic's route, the cluster's table."""

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_namesrv.core import Registry
from tern_service import Clock
from tern_wire.paths import CLUSTER_PATH, JSON, ROUTES_PATH


def lookup_routes(registry: Registry, clock: Clock, *, instance: str) -> APIRouter:
    """GET /v1/routes, /v1/topics/{topic}/route and /v1/cluster. *instance* makes ETags of this process its own."""
    router = APIRouter(tags=["routes"])
    pages = _RoutesPage(registry, instance)

    async def routes(request: Request) -> Response:
        """Every broker group and topic (tern_wire.route.Routes). 304 when If-None-Match names this very version."""
        tag, body = pages.at(clock.mono_ms())
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in _tags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=JSON)

    async def topic_route(topic: str) -> Response:
        """Where one topic lives. 404 `topic-not-found` when no broker has it, 503 while that is not certain."""
        return Response(orjson.dumps(registry.topic_route(topic, clock.mono_ms())), media_type=JSON)

    async def cluster() -> Response:
        """Who lives: nodes by broker group, with how long each has been silent (ms); a group without nodes is only remembered."""
        now_ms = clock.mono_ms()
        table, live = registry.routes(now_ms), registry.live()
        document = {
            "cluster": table.cluster,
            "warm": table.warm,
            "version": registry.version,
            "topics": len(table.topics),
            "broker_groups": {
                name: {
                    "leader": group.leader,
                    "term": group.term,
                    "group_size": group.group_size,
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
    router.add_api_route("/v1/topics/{topic}/route", topic_route, methods=["GET"], response_class=Response)
    router.add_api_route(CLUSTER_PATH, cluster, methods=["GET"], response_class=Response)
    return router


def _tags(header: str) -> list[str]:
    """The entity tags of If-None-Match; weak ones compare as strong ones (Reference: RFC 9110 13.1.2)."""
    return [tag.strip().removeprefix("W/") for tag in header.split(",")]


class _RoutesPage:
    """The routes document as bytes, made once per version: hundreds of proxies poll the same one. Owner: its router."""

    def __init__(self, registry: Registry, instance: str) -> None:
        self._registry = registry
        self._instance = instance
        self._tag = ""
        self._body = b""

    def at(self, now_ms: int) -> tuple[str, bytes]:
        """ETag and body as of now; getting warm is a change of the document too."""
        warm = "w" if self._registry.is_warm(now_ms) else "c"
        tag = f'"{self._instance}-{self._registry.version}-{warm}"'
        if tag != self._tag:
            self._tag, self._body = tag, orjson.dumps(self._registry.routes(now_ms))
        return self._tag, self._body
