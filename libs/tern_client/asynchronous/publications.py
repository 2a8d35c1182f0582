"""Calls about batches that become visible at once, each exactly once."""

from collections.abc import Iterable, Sequence
from typing import Any

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.models import OutgoingMessage
from tern_client.calls.publications import (
    AnnouncedStage,
    abandon_request,
    publication_path,
    publish_request,
    stage_request,
)
from tern_wire.paths import PUBLICATIONS_PATH


class PublicationCalls(AsyncClient):
    """Calls of Admin about staged and published batches.

    A *query* names itself, and numbers its batches from 0.
    """

    __slots__ = ()

    async def stage(
        self,
        topic: str,
        query: str,
        batch: int,
        messages: Sequence[OutgoingMessage],
        *,
        partition: int = 0,
        attempt: int = 0,
        chunk: int = 0,
    ) -> dict[str, Any]:
        """Stage *messages* as one chunk of an attempt at a partition: durable and invisible. A
        repeat stages nothing.

        BatchPublished when the batch is published already; StageChunkDiffers for other messages
        under the same numbers.
        """
        place = (batch, partition, attempt, chunk)
        return read_document(await self._call(stage_request(topic, query, place, messages)))

    async def publish(
        self,
        query: str,
        batch: int,
        stages: Iterable[AnnouncedStage],
        *,
        topics: Sequence[str] = (),
        is_final: bool = False,
    ) -> dict[str, Any]:
        """Make all messages of *stages* visible at once, and drop every other stage up to *batch*.
        A repeat returns the first answer.

        *stages*: partition, attempt and number of messages. *topics*: of the query, needed where
        its first batches are empty. *is_final*: no batch follows. StageUnknown: nothing is done.
        """
        return read_document(await self._call(publish_request(query, batch, stages, topics, is_final=is_final)))

    async def abandon_batch(self, query: str, batch: int) -> dict[str, Any]:
        """Drop what is staged for *batch*, if it is not published; return how much that was.
        PublicationNotFound when the query is not known.
        """
        return read_document(await self._call(abandon_request(query, batch)))

    async def publication(self, query: str) -> dict[str, Any]:
        """Return the last published batch of *query*, and its stages. PublicationNotFound."""
        return read_document(await self._call(get_request(publication_path(query))))

    async def publications(self) -> list[dict[str, Any]]:
        """Return all queries that the caller may see, by name."""
        document = read_document(await self._call(get_request(PUBLICATIONS_PATH)))
        return list(document["publications"])
