"""A quarantined node: its log is damaged, so it neither votes nor leads nor serves; it stays up to say so."""

import asyncio
import logging
import socket

from tern_broker.config import BrokerConfig
from tern_broker.http_loop import HttpLoop
from tern_store import LogRot

log = logging.getLogger(__name__)


async def stand_by(config: BrokerConfig, sock: socket.socket, rot: LogRot, stop: asyncio.Event) -> None:
    """Answer health and status with what was found, until *stop*. No port of the link or of Raft is opened."""
    found = {"file": str(rot.file), "position": rot.position, "reason": rot.reason}
    log.critical("quarantined: the log of this node is damaged", extra=found)
    status = {
        "node": config.node,
        "broker_group": config.broker_group,
        "role": "quarantined",
        "serving": False,
        "leader": "",
        "quarantined": found,
    }
    http = HttpLoop(config, sock, status=lambda: status, trim=lambda: {"asked": False, "leader": ""}, registration=None)
    http.start()
    await stop.wait()
    await asyncio.to_thread(http.stop)
