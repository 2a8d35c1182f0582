"""Broker groups and where topics are placed in them: requests as values. Pure.

All of it may be repeated: what is done is done, and what was broken off is completed. Broker groups are the cluster's; a topic's placement is asked for
in the client's namespace, as everything of a topic is.
"""

from collections.abc import Sequence
from urllib.parse import quote

from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.link.codec import encode_json
from tern_wire.names import check_topic

_JSON_HEADERS = (("Content-Type", paths.JSON),)


def place_request(topic: str, broker_groups: Sequence[str]) -> Request:
    """Place *topic*; safe to repeat, and a repeat completes it."""
    body = encode_json({"broker_groups": list(broker_groups)})
    return Request("PUT", paths.placement_path(check_topic(topic)), _JSON_HEADERS, body, repeatable=True)


def join_request(broker_group: str) -> Request:
    """Declare in *broker_group* what others have; safe to repeat."""
    return Request("POST", paths.join_path(quote(broker_group, safe="")), repeatable=True)


def topics_path(broker_group: str) -> str:
    """The path of the topics in *broker_group*."""
    return paths.broker_group_topics_path(quote(broker_group, safe=""))
