# Made from libs/tern_client/asynchronous/broker_groups.py by `make blocking`: change that file, not this one.
"""Calls about broker groups, and where topics are placed in them."""

from collections.abc import Sequence
from urllib.parse import quote

from tern_client.blocking.client import BlockingClient
from tern_client.calls.broker_groups import join_request, place_request, topics_path
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.transport.clock import now_ms
from tern_wire import paths
from tern_wire.names import check_topic


class BlockingBrokerGroupCalls(BlockingClient):
    """What BlockingAdmin can do about broker groups."""

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
        return self._drive(all_rows(self._course, topics_path(name), "topics", {"which": which}, now_ms()))
