"""The brokers' routes: register (at start, on change, every 30 s), unregister (at a clean stop)."""

import logging
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry, Counter
from starlette.responses import Response

from tern_namesrv.core import Registry
from tern_service import Clock, read_body
from tern_service.process_security import require_broker
from tern_wire import TernError
from tern_wire.limits import KIB, TOPICS_MAX
from tern_wire.paths import JSON, REGISTER_PATH, UNREGISTER_PATH
from tern_wire.routing.route import Registration, RegistrationReply

logger = logging.getLogger(__name__)

# A registration with the maximum of topics, each with the longest name.
_TOPIC_SIZE_MAX_BYTES = 256
# ... each of which has some five members.
REGISTRATION_NODES_MAX = TOPICS_MAX * 20
REGISTRATION_SIZE_MAX_BYTES = TOPICS_MAX * _TOPIC_SIZE_MAX_BYTES + 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistration:
    """The node that is about to stop."""

    cluster: str
    broker_group: str
    node: str


def broker_routes(registry: Registry, clock: Clock, metrics: CollectorRegistry) -> APIRouter:
    """POST /v1/brokers/register and /v1/brokers/unregister.

    With TLS, the certificate's name must be the node's: a broker registers only itself.
    """
    router = APIRouter(tags=["brokers"])
    taken = Counter(
        "ternmq_namesrv_registrations", "Registrations by outcome (ok or a code)", ["outcome"], registry=metrics
    )

    async def register(request: Request) -> Response:
        """Process a broker node's heartbeat (tern_wire.routing.route.Registration).

        `wants_topics` requests the topics that a leader has left out. 409 for a deposed leader.
        """
        registration = await read_body(
            request, Registration, size_max_bytes=REGISTRATION_SIZE_MAX_BYTES, nodes_max=REGISTRATION_NODES_MAX
        )
        now_ms, before = clock.mono_ms(), registry.version
        try:
            require_broker(request, registration.node)
            wants_topics = registry.register(registration, now_ms)
        except TernError as error:
            taken.labels(error.code).inc()
            raise
        taken.labels("ok").inc()
        if registry.version != before:
            fields = {"broker_group": registration.broker_group, "node": registration.node, "term": registration.term}
            logger.info("routes changed", extra={**fields, "leads": registration.is_leader})
        warm = registry.is_warm(now_ms)
        return _json(RegistrationReply(wants_topics=wants_topics, version=registry.version, warm=warm))

    async def unregister(request: Request) -> Response:
        """Forget a node at once. Idempotent: an unknown node is already forgotten."""
        leaving = await read_body(request, Unregistration, size_max_bytes=REGISTRATION_SIZE_MAX_BYTES)
        require_broker(request, leaving.node)
        removed = registry.unregister(leaving.cluster, leaving.broker_group, leaving.node, clock.mono_ms())
        if removed:
            logger.info("node left", extra={"broker_group": leaving.broker_group, "node": leaving.node})
        return _json({"removed": removed})

    router.add_api_route(REGISTER_PATH, register, methods=["POST"], response_class=Response)
    router.add_api_route(UNREGISTER_PATH, unregister, methods=["POST"], response_class=Response)
    return router


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), media_type=JSON)
