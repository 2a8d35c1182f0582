"""Calls about broker groups, and the placement of topics in them."""

from collections.abc import Sequence
from urllib.parse import quote

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.broker_groups import join_request, place_request, topics_path
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import Document, all_rows
from tern_client.transport.clock import now_ms
from tern_wire import paths
from tern_wire.names import check_topic


class BrokerGroupCalls(AsyncClient):
    """Calls of Admin about broker groups."""

    __slots__ = ()

    async def placement(self, topic: str) -> Document:
        """Return the broker groups of the keyed and ordered messages of *topic*, and whether a move
        is under way; TopicNotFound.
        """
        return read_document(await self._call(get_request(paths.placement_path(check_topic(topic)))))

    async def place(self, topic: str, broker_groups: Sequence[str]) -> Document:
        """Place *topic* on these broker groups. A repeat completes an interrupted call, and ends a
        move that is due (`is_moving`).
        """
        return read_document(await self._call(place_request(topic, broker_groups)))

    async def join(self, broker_group: str) -> Document:
        """Declare in *broker_group* the groups that it lacks; return the number of new ones.
        BrokerGroupNotFound.
        """
        return read_document(await self._call(join_request(broker_group)))

    async def broker_group(self, name: str) -> Document:
        """Return what is still to be read in a broker group, and whether it may be removed
        (`is_drained`). BrokerGroupNotFound.
        """
        return read_document(await self._call(get_request(paths.broker_group_path(quote(name, safe="")))))

    async def broker_group_topics(self, name: str, *, which: str = "here") -> list[Document]:
        """Return the topics of every namespace in broker group *name*: placed there, or being moved
        from there. *which*: `here`, or `elsewhere` for the others.
        """
        return await self._drive(all_rows(self._course, topics_path(name), "topics", {"which": which}, now_ms()))
