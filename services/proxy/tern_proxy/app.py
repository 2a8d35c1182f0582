"""ASGI application of the proxy: FastAPI for admin, health and metrics, with the hot routes in
front of it.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from tern_proxy.exchange import owner_of
from tern_proxy.hot import EntryPoint, HotRoutes
from tern_proxy.openapi.document import install_openapi
from tern_proxy.proxy import Proxy
from tern_proxy.routes.table import ROUTES, RouteTable, register
from tern_service import add_health, add_metrics, install_problems
from tern_service.plain_app import alive
from tern_service.process_security import UNPROTECTED, ProcessSecurity
from tern_wire.version import VERSION

if TYPE_CHECKING:
    from tern_proxy.guard import Guard


def build_app(
    proxy: Proxy, *, now: Callable[[], float] | None = None, security: ProcessSecurity = UNPROTECTED
) -> EntryPoint:
    """Build the ASGI application of *proxy*, which starts and stops with its lifespan.

    *now*: seconds, monotonic.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await proxy.start()
        try:
            yield
        finally:
            await proxy.stop()

    app = FastAPI(
        title="TernMQ",
        version=VERSION,
        summary="A message queue with RocketMQ's semantics over HTTP.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    install_problems(app, room=proxy.budget.bytes, owner_of=owner_of)
    register(app, proxy)
    info = security.info(service="proxy", proxy=proxy.name)
    add_health(app, ready=proxy.readiness, info=info)
    registry = CollectorRegistry()
    registry.register(proxy.counters)
    security.register(registry)
    add_metrics(app, registry, service="proxy")
    install_openapi(app, ROUTES)
    table = RouteTable()
    hot = HotRoutes(proxy, app, table, now or time.monotonic, alive(info, is_verbose=False))
    # Namespaces come first: rights are granted on full names.
    return EntryPoint(_guarded(hot, proxy, table) if proxy.authenticates else hot, proxy.counters)


def _guarded(hot: HotRoutes, proxy: Proxy, table: RouteTable) -> "Guard":
    from tern_proxy.guard import Guard  # noqa: PLC0415 - 60 ms and 10 MB of cryptography that an open proxy does not need

    return Guard(hot, proxy, table)
