"""Broker groups and where topics are placed in them: requests as values, and the calls of both clients' Admin, which say the same.

All of it may be repeated: what is done is done, and what was broken off is completed. Broker groups are the cluster's; a topic's placement is asked for
in the client's namespace, as everything of a topic is.
"""

from collections.abc import Sequence
from urllib.parse import quote

from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.client import AsyncClient, BlockingClient
from tern_client.transport.exchange import Request
from tern_client.transport.transport import now_ms
from tern_wire import paths
from tern_wire.link.codec import encode_json
from tern_wire.names import check_topic

_JSON_HEADERS = (("Content-Type", paths.JSON),)


# Requests ---------------------------------------------------------------------------------------------------------
def place_request(topic: str, broker_groups: Sequence[str]) -> Request:
    """Place *topic*; safe to repeat, and a repeat completes it."""
    body = encode_json({"broker_groups": list(broker_groups)})
    return Request("PUT", paths.placement_path(check_topic(topic)), _JSON_HEADERS, body, repeatable=True)


def join_request(broker_group: str) -> Request:
    """Declare in *broker_group* what others have; safe to repeat."""
    return Request("POST", paths.join_path(quote(broker_group, safe="")), repeatable=True)


def _topics_path(broker_group: str) -> str:
    return paths.broker_group_topics_path(quote(broker_group, safe=""))


# Calls ------------------------------------------------------------------------------------------------------------
class BrokerGroupCalls(AsyncClient):
    """What the async Admin can do about broker groups."""

    __slots__ = ()

    async def placement(self, topic: str) -> Document:
        """In which broker groups the keyed and ordered messages of *topic* go, and whether it is on its way; TopicNotFound."""
        return read_document(await self._call(get_request(paths.placement_path(check_topic(topic)))))

    async def place(self, topic: str, broker_groups: Sequence[str]) -> Document:
        """Place *topic* on these broker groups. Repeated, it completes what was broken off, and ends a move whose time has come (`is_moving`)."""
        return read_document(await self._call(place_request(topic, broker_groups)))

    async def join(self, broker_group: str) -> Document:
        """Declare in *broker_group* the groups that others have and it lacks; how many were new. BrokerGroupNotFound."""
        return read_document(await self._call(join_request(broker_group)))

    async def broker_group(self, name: str) -> Document:
        """What is left to be read in a broker group, and whether it may be taken out (`is_drained`). BrokerGroupNotFound."""
        return read_document(await self._call(get_request(paths.broker_group_path(quote(name, safe="")))))

    async def broker_group_topics(self, name: str, *, which: str = "here") -> list[Document]:
        """Topics of every namespace that are in broker group *name*, placed there or on their way from there; or those *which* are `elsewhere`."""
        return await self._drive(all_rows(self._course, _topics_path(name), "topics", {"which": which}, now_ms()))


class BlockingBrokerGroupCalls(BlockingClient):
    """As BrokerGroupCalls, for threads."""

    def placement(self, topic: str) -> Document:
        """In which broker groups the keyed and ordered messages of *topic* go, and whether it is on its way; TopicNotFound."""
        return read_document(self._call(get_request(paths.placement_path(check_topic(topic)))))

    def place(self, topic: str, broker_groups: Sequence[str]) -> Document:
        """Place *topic* on these broker groups. Repeated, it completes what was broken off, and ends a move whose time has come (`is_moving`)."""
        return read_document(self._call(place_request(topic, broker_groups)))

    def join(self, broker_group: str) -> Document:
        """Declare in *broker_group* the groups that others have and it lacks; how many were new. BrokerGroupNotFound."""
        return read_document(self._call(join_request(broker_group)))

    def broker_group(self, name: str) -> Document:
        """What is left to be read in a broker group, and whether it may be taken out (`is_drained`). BrokerGroupNotFound."""
        return read_document(self._call(get_request(paths.broker_group_path(quote(name, safe="")))))

    def broker_group_topics(self, name: str, *, which: str = "here") -> list[Document]:
        """Topics of every namespace that are in broker group *name*, placed there or on their way from there; or those *which* are `elsewhere`."""
        return self._drive(all_rows(self._course, _topics_path(name), "topics", {"which": which}, now_ms()))
