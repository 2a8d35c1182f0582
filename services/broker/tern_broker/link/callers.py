"""Principals of admin requests: each request that names its principal is one line of this broker's
audit log. Owner: the core loop.
"""

import logging

from tern_remoting import Frame, Link
from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.requests import RequestCode, read_body
from tern_wire.principals.caller import FIELD, CallerSeal

logger = logging.getLogger("ternmq.audit")
# The fields of a head that name the object of a request.
_OBJECTS = ("topic", "group", "producer_group", "number", "task")


class Callers:
    """Reads principals from heads."""

    def __init__(self, cluster_key: bytes) -> None:
        self._seal = CallerSeal(cluster_key)

    def hear(self, link: Link, frame: Frame) -> None:
        """Log the principal of *frame*, if it names one.

        Raise LinkBodyMalformed unless the sender is a proxy that has sealed the principal for this
        request.
        """
        head, _ = read_body(frame.body)
        if FIELD not in head:
            return
        if link.peer.role != "proxy":
            raise LinkBodyMalformed(reason="a principal from a peer that is not a proxy")
        principal = self._seal.take(head, frame.code)
        about = next((str(head[name])[:160] for name in _OBJECTS if name in head), "")
        told = {"principal": principal, "request": RequestCode(frame.code).name, "object": about}
        logger.info("audit", extra={**told, "proxy": link.peer.name})
