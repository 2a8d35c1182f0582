"""For whom proxies ask: each admin request that tells its principal is one line of this broker's audit log. Owner: the core loop."""

import logging
from typing import Any

from tern_remoting import Link
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.requests import RequestCode
from tern_wire.principals.caller import CallerSeal

logger = logging.getLogger("ternmq.audit")
# What of a head names the object of a request.
_OBJECTS = ("topic", "group", "producer_group", "number", "task")


class Callers:
    """Reads principals from heads."""

    def __init__(self, cluster_key: bytes) -> None:
        self._seal = CallerSeal(cluster_key)

    def hear(self, link: Link, code: int, head: dict[str, Any]) -> None:
        """Take the principal out of *head* and tell it; LinkBodyMalformed unless a proxy speaks, and has sealed it for this request."""
        if link.peer.role != "proxy":
            raise LinkBodyMalformed(reason="a principal, told by somebody who is no proxy")
        principal = self._seal.take(head, code)
        about = next((str(head[name])[:160] for name in _OBJECTS if name in head), "")
        fields = {"principal": principal, "request": RequestCode(code).name, "object": about, "proxy": link.peer.name}
        logger.info("audit", extra=fields)
