"""The async Admin: topics, groups, offsets, and what the cluster looks like."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from tern_client.calling import call
from tern_client.documents import (
    commit_request,
    declare_group_request,
    declare_topic_request,
    get_request,
    offsets_request,
    read_document,
    read_offsets,
)
from tern_client.exchange import Request, Response
from tern_client.models import QueueOffsets
from tern_client.retrying import RetryPolicy
from tern_client.transport import AsyncCaller, Transport, now_ms
from tern_wire.limits import INVISIBLE_DEFAULT_MS, QUEUES_PER_TOPIC_DEFAULT
from tern_wire.names import check_group, check_topic
from tern_wire.paths import CLUSTER_PATH, group_offsets_path


class Admin:
    """Declares and inspects. Owns its connections."""

    __slots__ = ("_caller",)

    def __init__(
        self, endpoints: str | Sequence[str], *, policy: RetryPolicy | None = None, transport: Transport | None = None
    ) -> None:
        self._caller = AsyncCaller(endpoints, policy=policy, transport=transport)

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
        request = get_request(group_offsets_path(check_group(group)), topic=check_topic(topic))
        return dict(read_document(await self._call(request))["offsets"])

    async def commit_offsets(
        self, group: str, topic: str, offsets: Mapping[str, int], expected: Mapping[str, int] | None = None
    ) -> None:
        """Commit *offsets*; with *expected* only if those are committed now, else OffsetMoved."""
        await self._call(commit_request(group, topic, offsets, expected or {}))

    async def cluster(self) -> dict[str, Any]:
        """What the cluster looks like from a proxy."""
        return read_document(await self._call(get_request(CLUSTER_PATH)))

    async def close(self) -> None:
        """Close all connections."""
        await self._caller.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, request: Request) -> Response:
        return await self._caller.drive(call(self._caller.course, request, now_ms()))
