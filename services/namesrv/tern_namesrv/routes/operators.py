"""The operators' routes: configuration by namespace and key, and write permission of broker groups.

A change is in effect when its request is answered.
"""

import logging
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from tern_namesrv.core import OperatorState, Registry
from tern_namesrv.operator_store import OperatorStore
from tern_service import Clock, read_body
from tern_service.process_security import require_operator
from tern_wire.limits import KIB
from tern_wire.paths import JSON, KV_PATH, kv_path, write_permission_path

logger = logging.getLogger(__name__)

# The longest value with each character escaped.
BODY_SIZE_MAX_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationValue:
    """Body of a PUT."""

    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePermission:
    """Body of a POST."""

    writable: bool


def operator_routes(registry: Registry, store: OperatorStore, clock: Clock) -> APIRouter:
    """The routes of configuration and of write permission.

    /v1/kv, /v1/kv/{namespace}, /v1/kv/{namespace}/{key} and
    /v1/broker-groups/{broker_group}/write-permission.
    """
    router = APIRouter(tags=["operators"])

    async def namespaces() -> Response:
        """Every namespace with its number of keys."""
        found = sorted(store.state.configuration.namespaces.items())
        return _json({"namespaces": {name: len(held) for name, held in found}})

    async def listed(namespace: str) -> Response:
        """The keys and values of one namespace; empty if there is no such namespace."""
        return _json({"namespace": namespace, "entries": store.state.configuration.listed(namespace)})

    async def get(namespace: str, key: str) -> Response:
        """One value. 404 `configuration-not-found`."""
        value = store.state.configuration.get(namespace, key)
        return _json({"namespace": namespace, "key": key, "value": value})

    async def put(request: Request, namespace: str, key: str) -> Response:
        """Set one value: `{"value": "..."}`. With --data-dir it is on disk before the answer."""
        wanted = await read_body(request, ConfigurationValue, size_max_bytes=BODY_SIZE_MAX_BYTES)
        await store.change(lambda state: state.put(namespace, key, wanted.value))
        logger.info("configuration set", extra={"namespace": namespace, "key": key})
        return _json({"namespace": namespace, "key": key, "value": wanted.value})

    async def remove(namespace: str, key: str) -> Response:
        """Remove one value. Idempotent: `removed` is false if it was absent."""
        removed = False

        def without(state: OperatorState) -> OperatorState:
            nonlocal removed
            changed = state.without(namespace, key)
            removed = changed.configuration.entries < state.configuration.entries
            return changed

        await store.change(without)
        if removed:
            logger.info("configuration removed", extra={"namespace": namespace, "key": key})
        return _json({"namespace": namespace, "key": key, "removed": removed})

    async def permit(request: Request, broker_group: str) -> Response:
        """Withdraw or restore a broker group's write permission: `{"writable": false}`.

        It outlives restarts of the group's brokers, and with --data-dir those of this name server.
        `topics`: the number of topics that the group hosts.
        """
        wanted = await read_body(request, WritePermission, size_max_bytes=BODY_SIZE_MAX_BYTES)
        registry.check_known(broker_group, clock.mono_ms())
        await store.change(lambda state: state.permit(broker_group, writable=wanted.writable))
        topics = registry.hosted_count(broker_group)
        fields = {"broker_group": broker_group, "writable": wanted.writable, "topics": topics}
        logger.info("write permission", extra=fields)
        return _json(fields)

    router.add_api_route(KV_PATH, namespaces, methods=["GET"], response_class=Response)
    router.add_api_route(kv_path("{namespace}"), listed, methods=["GET"], response_class=Response)
    router.add_api_route(kv_path("{namespace}", "{key}"), get, methods=["GET"], response_class=Response)
    # Every member of the cluster may read; with TLS a change requires the operator's certificate.
    operator = [Depends(require_operator)]
    for method, path, handler in (
        ("PUT", kv_path("{namespace}", "{key}"), put),
        ("DELETE", kv_path("{namespace}", "{key}"), remove),
        ("POST", write_permission_path("{broker_group}"), permit),
    ):
        router.add_api_route(path, handler, methods=[method], response_class=Response, dependencies=operator)
    return router


def _json(document: dict[str, Any]) -> Response:
    return Response(orjson.dumps(document), media_type=JSON)
