"""Arguments that the clients of a TestMesh take: those of the SDK's classes, without what the mesh
sets itself (endpoints, transport, clock) and without credentials, which it does not ask for.
"""

from typing import TypedDict

from tern_client.bodies.serializers import Serializer
from tern_client.calls.batching import BatchLimits
from tern_client.calls.compressed_bodies import CompressionName
from tern_client.calls.pulling import GroupOffsets, OffsetStore
from tern_client.transport.retrying import RetryPolicy


class ClientOptions(TypedDict, total=False):
    """Of all clients."""

    namespace: str
    policy: RetryPolicy | None


class ProducerOptions(ClientOptions, total=False):
    """Of a Producer."""

    idempotent: bool
    serializer: Serializer
    compression: CompressionName | None
    compress_min_bytes: int
    limits: BatchLimits | None
    buffer_size_max_bytes: int


class ConsumerOptions(ClientOptions, total=False):
    """Of a Consumer, but for its wait."""

    max_messages: int
    max_bytes: int
    invisible_ms: int | None
    tags: str
    sql: str
    in_flight_max: int


class PullOptions(ClientOptions, total=False):
    """Of a PullConsumer."""

    offsets: OffsetStore | GroupOffsets | None
    start: str
    tags: str
    sql: str
    max_messages: int
    wait_ms: int


class TransactionOptions(ClientOptions, total=False):
    """Of a TransactionProducer, but for its checker."""

    checks_in_hand_max: int
    idempotent: bool
