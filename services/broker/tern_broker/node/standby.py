"""A node without a log that it may use: it neither votes nor leads nor serves; it stays up to say so, and copies the leader's log.

A group of one has nobody to copy from: such a node only says what was found.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.node.http_loop import HttpLoop
from tern_broker.node.node_tls import NO_TLS, NodeTls
from tern_store import REAL_FILES, Files, LogRot
from tern_wire.limits import REBUILD_RATE_MAX_BYTES_PER_S

log = logging.getLogger(__name__)


async def stand_by(
    config: BrokerConfig,
    sock: socket.socket,
    reason: LogRot | str,
    stop: asyncio.Event,
    *,
    key: bytes,
    told_http_port: Callable[[str], int],
    files: Files = REAL_FILES,
    rate_max_bytes_per_s: int = REBUILD_RATE_MAX_BYTES_PER_S,
    tls: NodeTls = NO_TLS,
) -> bool:
    """Whether a copy of the leader's log is in place now, so that the store can be opened; False if *stop* was set before.

    Health and status are answered meanwhile, on a duplicate of *sock*, which stays the caller's. No port of the link or of Raft is
    opened. *told_http_port*: where a peer has said that it answers HTTP, 0 if it has not. The caller holds the directory's lock. Raises what `rebuild` raises.
    """
    # Only here: a node that is well starts without it.
    from tern_broker.node.rebuilder import RebuildProgress, peers_http, rebuild  # noqa: PLC0415

    has_peers, progress = len(config.members()) > 1, RebuildProgress()
    found: dict[str, Any] = {}
    if isinstance(reason, LogRot):
        found = {"file": str(reason.file), "position": reason.position, "reason": reason.reason}
        log.critical("quarantined: the log of this node is damaged", extra=found)
    else:
        log.warning("this node has no log that it may use", extra={"reason": reason})
    facts: dict[str, Any] = {
        "node": config.node,
        "broker_group": config.broker_group,
        "role": "rebuilding" if has_peers else "quarantined",
        "serving": False,
        # Nobody leads this node: it is not ready. Whom it copies from, says "copy".
        "leader": "",
    }
    if found:
        facts["quarantined"] = found

    def status() -> dict[str, Any]:
        if not has_peers:
            return facts
        return facts | {"rebuilding": str(reason), "copy": progress.document()}

    http = HttpLoop(
        config,
        sock.dup(),
        status=status,
        trim=lambda: {"asked": False, "leader": ""},
        registration=None,
        tls=tls,
    )
    http.start()
    try:
        if has_peers:
            return await rebuild(
                config,
                key=key,
                peers_http=lambda: peers_http(config, told_http_port),
                directory=config.data_dir,
                files=files,
                stop=stop,
                progress=progress,
                rate_max_bytes_per_s=rate_max_bytes_per_s,
                tls=tls.peers_http,
            )
        await stop.wait()
        return False
    finally:
        await asyncio.to_thread(http.stop)
