"""Planned reads: the plan of a read of many topics, and the lease that keeps its ranges from
retention. Pure.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tern_client.transport.exchange import Request
from tern_wire import paths

_JSON = (("Content-Type", paths.JSON),)


def plan_request(topics: Sequence[Mapping[str, Any]], *, sizes: bool, step_bytes: int) -> Request:
    """Request the plan of a read."""
    document = {"topics": [dict(topic) for topic in topics], "sizes": sizes, "step_bytes": step_bytes}
    return Request("POST", paths.READ_PLAN_PATH, _JSON, json.dumps(document).encode())


def take_lease_request(topics: Sequence[Mapping[str, Any]], duration: str | int) -> Request:
    """Request a read lease. A repeat after an unknown outcome may leave a second one, which ends at
    its time.
    """
    document = {"topics": [dict(topic) for topic in topics], "for": duration}
    return Request("POST", paths.READ_LEASES_PATH, _JSON, json.dumps(document).encode())


def renew_lease_request(lease: str, duration: str | int) -> Request:
    """Request that a read lease lasts for *duration* from now."""
    return Request("PUT", _path(lease), _JSON, json.dumps({"for": duration}).encode())


def end_lease_request(lease: str) -> Request:
    """Request the end of a read lease. After an unknown outcome a repeat could be refused."""
    return Request("DELETE", _path(lease), repeatable=False)


def _path(lease: str) -> str:
    return paths.read_lease_path(quote(lease, safe=""))
