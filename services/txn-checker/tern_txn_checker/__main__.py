"""`python -m tern_txn_checker`: one checker until SIGTERM or SIGINT."""

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

from tern_routing.name_servers import NameServers, read_group_routes
from tern_security.peer_identity import BROKER, CHECKER, NAME_SERVER
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
from tern_service.process_security import ProcessSecurity
from tern_txn_checker.app import build_app
from tern_txn_checker.callback import IDLE_MAX, Callbacks
from tern_txn_checker.checker import Checker
from tern_txn_checker.config import PREFIX, CheckerSettings
from tern_txn_checker.host_resolver import Resolver
from tern_wire.limits import CONNECTIONS_MAX, STRANGERS_MAX

logger = logging.getLogger("tern_txn_checker")

# Links to the leaders of all broker groups, and connections to name servers.
DIALLED = 256


def main() -> None:
    """Read the settings, listen, check. Exit code 78 when the settings are unusable."""
    settings = load_settings(CheckerSettings, prefix=PREFIX, environ=os.environ, arguments=sys.argv[1:])
    setup_logs("txn-checker", level=settings.log_level)
    callbacks_max = settings.calls_max + IDLE_MAX
    accepted_max = CONNECTIONS_MAX + STRANGERS_MAX
    need_descriptors("The transaction checker", connections=accepted_max + DIALLED + callbacks_max, files=0)
    try:
        cluster_key = read_cluster_key(settings.cluster_key_file)
    except ValueError as error:
        refuse(str(error))
    security = settings.open_security(CHECKER, settings.listen)
    sock = open_socket(settings.listen, settings.port, "--port", is_protected=True)
    run_service(lambda stop: _run(settings, cluster_key, security, sock, stop))


async def _run(
    settings: CheckerSettings, cluster_key: bytes, security: ProcessSecurity, sock: socket.socket, stop: asyncio.Event
) -> None:
    clock, hosts = SystemClock(), settings.hosts()
    ca_file = Path(settings.ca_file) if settings.ca_file else None
    callbacks = Callbacks(hosts=hosts, resolver=Resolver(), clock=clock, ca_file=ca_file)
    name_servers = NameServers(settings.namesrv, read_group_routes, security.client(NAME_SERVER))
    checker = Checker(
        routing=name_servers,
        ask=callbacks.ask,
        cluster=settings.cluster,
        cluster_key=cluster_key,
        hosts=hosts,
        clock=clock,
        name=settings.name,
        claim_ms=settings.claim_ms,
        wait_ms=settings.wait_ms,
        route_interval_ms=settings.route_interval_ms,
        calls_max=settings.calls_max,
        calls_per_host_max=settings.calls_per_host_max,
        held_max=settings.held_max,
        broker_tls=security.client(BROKER),
    )
    host, port = sock.getsockname()[:2]
    logger.info("transaction checker listens", extra={"host": host, "port": port, "checker": checker.name})
    security.announce()
    if not hosts.entries:
        logger.warning("no host may be called: --check-hosts is empty, so checks are received by pull only")
    release_free_memory()
    app = build_app(checker, security)
    await serve(app, sock, stop=stop, tls=security.server(), on_refusal=security.refused)
    callbacks.close()
    name_servers.close()


if __name__ == "__main__":
    main()
