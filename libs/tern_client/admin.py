"""The async Admin: topics, groups, offsets, and what the cluster looks like."""

from collections.abc import Mapping
from typing import Any

from tern_client.client import AsyncClient
from tern_client.documents import (
    commit_request,
    declare_group_request,
    declare_topic_request,
    get_request,
    group_offsets_request,
    offsets_request,
    read_document,
    read_group_offsets,
    read_offsets,
)
from tern_client.models import QueueOffsets
from tern_wire.limits import INVISIBLE_DEFAULT_MS, QUEUES_PER_TOPIC_DEFAULT
from tern_wire.paths import CLUSTER_PATH


class Admin(AsyncClient):
    """Declares and inspects. Owns its connections."""

    __slots__ = ()

    async def create_topic(self, topic: str, queues: int = QUEUES_PER_TOPIC_DEFAULT) -> dict[str, Any]:
        """Create *topic* with *queues* queues, or see that it is there; TopicConflict when it has more."""
        return read_document(await self._call(declare_topic_request(topic, queues)))

    async def create_group(
        self, group: str, *, invisible_ms: int = INVISIBLE_DEFAULT_MS, start: str = "earliest"
    ) -> dict[str, Any]:
        """Create *group*; *start* (`earliest`, `latest`) is where it begins in a queue that it has never read."""
        return read_document(await self._call(declare_group_request(group, invisible_ms, start)))

    async def offsets(self, topic: str) -> list[QueueOffsets]:
        """Min and max offset of every queue of *topic*."""
        return read_offsets(await self._call(offsets_request(topic)))

    async def group_offsets(self, group: str, topic: str) -> dict[str, int]:
        """The committed offset of every queue, written `broker-a:3`."""
        return read_group_offsets(await self._call(group_offsets_request(group, topic)))

    async def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[str, int], expected: Mapping[str, int] | None = None
    ) -> None:
        """Commit *offsets*; with *expected* only if those are committed now, else OffsetMoved."""
        await self._call(commit_request(group, topic, offsets, expected or {}))

    async def cluster(self) -> dict[str, Any]:
        """What the cluster looks like from a proxy."""
        return read_document(await self._call(get_request(CLUSTER_PATH)))
