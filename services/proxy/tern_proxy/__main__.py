"""`python -m tern_proxy`: run one proxy until SIGTERM or SIGINT."""

import asyncio
import contextlib
import os
import sys
import time

from tern_proxy.app import build_app
from tern_proxy.auto_create import AutoCreate
from tern_proxy.brokers.routes_cache import read_routes
from tern_proxy.config import ProxySettings
from tern_proxy.hot import is_read
from tern_proxy.proxy import Proxy
from tern_routing.name_servers import NameServers
from tern_security.peer_identity import BROKER, NAME_SERVER, PROXY
from tern_service import (
    SystemClock,
    load_settings,
    need_descriptors,
    open_socket,
    refuse,
    release_free_memory,
    run_service,
    serve,
    setup_logs,
)
from tern_service.cluster_key import read_cluster_key
from tern_service.connections.bounds import Bounds
from tern_service.connections.table import ConnectionTable
from tern_wire.limits import CONNECTIONS_MAX, PARKED_POLLS_MAX, PROXY_CONNECTIONS_MAX, PROXY_STRANGERS_MAX

# Links to the leaders and followers of all broker groups, and connections to name servers.
DIALLED = 256
# The connections that remain for other requests are as many as another kind of listener accepts.
POLLS_MAX = min(PARKED_POLLS_MAX, PROXY_CONNECTIONS_MAX - CONNECTIONS_MAX)


def main() -> None:
    """Read the settings, listen and serve."""
    settings = load_settings(ProxySettings, prefix="TERN_PROXY_", environ=os.environ, arguments=sys.argv[1:])
    setup_logs("proxy", level=settings.log_level)
    need_descriptors("The proxy", connections=PROXY_CONNECTIONS_MAX + PROXY_STRANGERS_MAX + DIALLED, files=0)
    try:
        cluster_key = read_cluster_key(settings.cluster_key_file)
    except ValueError as error:
        refuse(str(error))
    security = settings.open_security(PROXY, settings.listen)
    sock = open_socket(settings.listen, settings.port, "--port", is_protected=True)

    async def run(stop: asyncio.Event) -> None:
        name_servers = NameServers(settings.namesrv, read_routes, security.client(NAME_SERVER))
        proxy = Proxy(
            cluster=settings.cluster,
            cluster_key=cluster_key,
            name_servers=name_servers,
            clock=SystemClock(),
            route_interval_ms=settings.route_interval_ms,
            polls_max=POLLS_MAX,
            auto_create=AutoCreate(topics=settings.auto_create_topics, groups=settings.auto_create_groups),
            creations_per_s=settings.creations_per_s,
            creations_burst=settings.creations_burst,
            check_hosts=settings.parse_check_hosts(),
            broker_tls=security.client(BROKER),
            authenticates=security.protection.requires_keys,
        )
        table = ConnectionTable(parked=lambda: proxy.waiting, is_read=is_read)
        proxy.show_connections(table)
        security.announce()
        watcher = asyncio.create_task(_answer_parked(proxy, stop))
        app = build_app(proxy, now=time.monotonic, security=security)
        release_free_memory()
        await serve(
            app,
            sock,
            stop=stop,
            bounds=Bounds(connections_max=PROXY_CONNECTIONS_MAX, strangers_max=PROXY_STRANGERS_MAX),
            table=table,
            whole=app,
            # Clients have keys, not certificates.
            tls=security.server(None),
            on_refusal=security.refused,
        )
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
        name_servers.close()

    run_service(run)


async def _answer_parked(proxy: Proxy, stop: asyncio.Event) -> None:
    """End the parked requests at a stop, before the server waits for open requests."""
    await stop.wait()
    proxy.stop_waiting()


if __name__ == "__main__":
    main()
