"""The name server as a process: the application, its background tasks, and `run`.

The FastAPI application stands around one Registry and one OperatorStore.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Gauge

from tern_namesrv.config import NamesrvSettings
from tern_namesrv.core import Configuration, OperatorState, Registry
from tern_namesrv.operator_files import FilesUnusable
from tern_namesrv.operator_store import OperatorStore, open_store
from tern_namesrv.routes import broker_routes, lookup_routes, operator_routes
from tern_security.peer_identity import NAME_SERVER
from tern_service import (
    Clock,
    SystemClock,
    add_health,
    add_metrics,
    install_problems,
    need_descriptors,
    open_socket,
    refuse,
    release_free_memory,
    run_service,
    serve,
)
from tern_service.process_security import UNPROTECTED, ProcessSecurity
from tern_tasks import keep_running
from tern_wire.limits import CONNECTIONS_MAX, STRANGERS_MAX
from tern_wire.version import VERSION

logger = logging.getLogger(__name__)

# Maximum lines of one printed configuration: logs are read by people and may be kept for weeks.
PRINTED_MAX = 1_000
# The files of operators' settings, and their lock.
FILES = 8


def create_app(
    settings: NamesrvSettings,
    *,
    clock: Clock,
    store: OperatorStore | None = None,
    security: ProcessSecurity = UNPROTECTED,
) -> FastAPI:
    """Return a new application; its lifespan runs the scan for silent brokers.

    The application closes *store*; by default the store is opened on the settings' data_dir. Raises
    FilesUnusable.
    """
    store = store or open_store(settings.data_dir)
    registry = Registry(
        cluster=settings.cluster,
        started_ms=clock.mono_ms(),
        warm_up_ms=settings.warm_up_ms,
        expiry_ms=settings.expiry_ms,
        expected=frozenset(settings.expected_broker_groups),
        wiped=store.state.wiped,
    )

    def follow(state: OperatorState) -> None:
        registry.wipe(state.wiped)

    store.on_change = follow
    metrics = CollectorRegistry()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        tasks = [
            keep_running("scan", lambda: _scan(registry, clock, settings.scan_interval_ms)),
            keep_running("print", lambda: _print(store, settings.print_interval_ms)),
        ]
        yield
        for task in tasks:
            task.cancel()
        store.close()

    app = FastAPI(
        title="TernMQ name server",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    install_problems(app)

    def ready() -> tuple[bool, dict[str, Any]]:
        # Ready at once: the answers of a cold name server carry `warm: false`, and readers handle
        # that.
        return True, {"warm": registry.is_warm(clock.mono_ms()), "nodes": registry.nodes_count}

    add_health(app, ready=ready, info=security.info(service="namesrv", cluster=settings.cluster))
    add_metrics(app, metrics, service="namesrv")
    security.register(metrics)
    nodes = Gauge("ternmq_namesrv_live_nodes", "Broker nodes that are alive", registry=metrics)
    nodes.set_function(lambda: registry.nodes_count)
    topics = Gauge("ternmq_namesrv_known_topics", "Topics that brokers host, gone ones too", registry=metrics)
    topics.set_function(lambda: registry.topics_count)
    gone = Gauge("ternmq_namesrv_gone_broker_groups", "Broker groups without a living node", registry=metrics)
    gone.set_function(lambda: registry.gone_count)
    wiped = Gauge("ternmq_namesrv_wiped_broker_groups", "Broker groups without write permission", registry=metrics)
    wiped.set_function(lambda: len(registry.wiped))
    entries = Gauge("ternmq_namesrv_configurations", "Keys of the configuration", registry=metrics)
    entries.set_function(lambda: store.state.configuration.entries)
    app.include_router(broker_routes(registry, clock, metrics))
    # Wall time: two instances, or the instances before and after a restart, never share an ETag.
    app.include_router(lookup_routes(registry, store, clock, instance=f"{clock.now_ms():x}{id(registry):x}"))
    app.include_router(operator_routes(registry, store, clock))
    return app


async def _scan(registry: Registry, clock: Clock, interval_ms: int) -> None:
    """Remove silent brokers every *interval_ms*, until cancelled."""
    while True:
        await asyncio.sleep(interval_ms / 1_000)
        for broker_group, node in registry.expire(clock.mono_ms()):
            logger.warning("node expired", extra={"broker_group": broker_group, "node": node})


async def _print(store: OperatorStore, interval_ms: int) -> None:
    """Log the configuration every *interval_ms* at level DEBUG, until cancelled.

    RocketMQ's name server does the same.
    """
    while True:
        await asyncio.sleep(interval_ms / 1_000)
        if logger.isEnabledFor(logging.DEBUG):
            print_configuration(store.state.configuration)


def print_configuration(configuration: Configuration) -> None:
    """Log one line for each key, at most PRINTED_MAX of them, and one line with their number."""
    printed = 0
    for namespace, held in sorted(configuration.namespaces.items()):
        for key, value in sorted(held.items()):
            if printed < PRINTED_MAX:
                logger.debug("configuration", extra={"namespace": namespace, "key": key, "value": value})
                printed += 1
    logger.debug("configurations", extra={"keys": configuration.entries, "printed": printed})


def run(settings: NamesrvSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    SettingsError (exit 78) when the port or the files are unusable.
    """
    need_descriptors("The name server", connections=CONNECTIONS_MAX + STRANGERS_MAX, files=FILES)
    security = settings.open_security(NAME_SERVER, settings.listen)
    sock = open_socket(settings.listen, settings.port, "--port", is_protected=True)
    try:
        store = open_store(settings.data_dir)
    except FilesUnusable as error:
        refuse(str(error))

    async def main(stop: asyncio.Event) -> None:
        app = create_app(settings, clock=SystemClock(), store=store, security=security)
        host, port = sock.getsockname()[:2]
        logger.info("name server listens", extra={"host": host, "port": port, "cluster": settings.cluster})
        security.announce()
        release_free_memory()
        await serve(app, sock, stop=stop, tls=security.server(), on_refusal=security.refused)

    run_service(main)
