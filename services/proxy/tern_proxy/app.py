"""The proxy's application: FastAPI for admin, health and metrics, with the hot routes in front of it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from tern_proxy.hot import HotRoutes
from tern_proxy.openapi import install_openapi
from tern_proxy.proxy import Proxy
from tern_proxy.routes.admin import admin_router
from tern_service import add_health, add_metrics, install_problems


def build_app(proxy: Proxy, *, now: Callable[[], float] | None = None) -> HotRoutes:
    """The ASGI application of *proxy*, which starts and stops with its lifespan. *now*: seconds, monotonic."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await proxy.start()
        try:
            yield
        finally:
            await proxy.stop()

    app = FastAPI(
        title="TernMQ",
        summary="A message queue with RocketMQ's semantics over HTTP.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    install_problems(app)
    app.include_router(admin_router(proxy))
    add_health(app, ready=proxy.readiness, info={"service": "proxy", "proxy": proxy.name})
    registry = CollectorRegistry()
    registry.register(proxy.counters)
    add_metrics(app, registry, service="proxy")
    install_openapi(app)
    return HotRoutes(proxy, app, now or time.monotonic)
