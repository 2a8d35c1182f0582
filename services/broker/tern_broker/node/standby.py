"""A node without a usable log: it neither votes nor leads nor serves. It stays up to report this,
and copies the leader's log.

A group of one has no leader to copy from: such a node only reports the problem.
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
    """Copy the leader's log; return True when the copy is in place, False if *stop* was set before.

    Health and status are served meanwhile, on a duplicate of *sock*, which remains the caller's. No
    port of the link or of Raft is opened. *told_http_port*: the HTTP port that a peer has reported,
    0 if none. The caller holds the directory's lock. Raises what `rebuild` raises.
    """
    # Imported here alone: a healthy node starts without it.
    from tern_broker.node.rebuilder import RebuildProgress, peers_http, rebuild  # noqa: PLC0415

    has_peers, progress = len(config.members()) > 1, RebuildProgress()
    found: dict[str, Any] = {}
    if isinstance(reason, LogRot):
        found = {"file": str(reason.file), "position": reason.position, "reason": reason.reason}
        log.critical("quarantined: the log of this node is damaged", extra=found)
    else:
        log.warning("this node has no usable log", extra={"reason": reason})
    facts: dict[str, Any] = {
        "node": config.node,
        "broker_group": config.broker_group,
        "role": "rebuilding" if has_peers else "quarantined",
        "serving": False,
        # Empty, since the node is not ready without a leader. The source of the copy is in "copy".
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
