"""Broker groups and the placement of topics in them: requests as values. Pure.

All requests may be repeated: what is done stays done, and what was interrupted is completed. Broker
groups belong to the cluster. The placement of a topic is in the client's namespace, like everything
about a topic.
"""

from collections.abc import Sequence
from urllib.parse import quote

from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.link.codec import encode_json
from tern_wire.names import check_topic

_JSON_HEADERS = (("Content-Type", paths.JSON),)


def place_request(topic: str, broker_groups: Sequence[str]) -> Request:
    """Request to place *topic*. A repeat is safe, and completes an interrupted request."""
    body = encode_json({"broker_groups": list(broker_groups)})
    return Request("PUT", paths.placement_path(check_topic(topic)), _JSON_HEADERS, body, repeatable=True)


def join_request(broker_group: str) -> Request:
    """Request to declare in *broker_group* the groups of the others. A repeat is safe."""
    return Request("POST", paths.join_path(quote(broker_group, safe="")), repeatable=True)


def topics_path(broker_group: str) -> str:
    """Return the path of the topics in *broker_group*."""
    return paths.broker_group_topics_path(quote(broker_group, safe=""))
