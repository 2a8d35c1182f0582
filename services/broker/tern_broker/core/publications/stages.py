"""Stages and queries, as the state has them.

     query -> its last published batch
       └ stage (batch, partition, attempt) -> chunks -> messages

A staged message, little-endian, 48 bytes:

     0          8     16     20      24      28     32                 40
     | position | tag | size | topic | queue | rsvd | message group's  | deliver_ms |
     |    8     |  8  |  4   |   4   |   4   |  4   | hash 8           |     8      |
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.transactions.open_transactions import MESSAGES
from tern_wire.link.publications import NO_BATCH
from tern_wire.link.rows import MOVE_ROWS, MOVED_STAGED

STAGED = np.dtype(
    [*((name, MESSAGES[name]) for name in MESSAGES.names or ()), ("message_group", "<u8"), ("deliver_ms", "<i8")]
)
assert STAGED.itemsize == 48
Rows = npt.NDArray[Any]
# Batch, partition, attempt.
StageKey = tuple[int, int, int]


@dataclass(slots=True)
class Chunk:
    """Messages that arrived together: *messages* as STAGED. *number*: unique in the broker group.
    *digest*: of what their sender has said; a repeat has the same.
    """

    number: int
    digest: int
    messages: bytes

    @property
    def rows(self) -> int:
        """Number of messages."""
        return len(self.messages) // STAGED.itemsize


@dataclass(slots=True, kw_only=True)
class Stage:
    """What one attempt at one partition of a batch has sent. *chunks* by the sender's number."""

    batch: int
    partition: int
    attempt: int
    begun_ms: int
    staged_ms: int
    until_ms: int
    size_bytes: int = 0
    rows: int = 0
    chunks: dict[int, Chunk] = field(default_factory=dict)

    @property
    def key(self) -> StageKey:
        """Its key in its query."""
        return self.batch, self.partition, self.attempt

    def add(self, chunk: int, staged: Chunk, size_bytes: int) -> None:
        """Add a chunk that it does not have."""
        self.chunks[chunk] = staged
        self.rows += staged.rows
        self.size_bytes += size_bytes

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        chunks = [[at, each.number, each.digest, each.messages] for at, each in self.chunks.items()]
        return [*self.facts(), chunks]

    def facts(self) -> list[Any]:
        """Return everything but the chunks, of MessagePack's types."""
        return [*self.key, self.begun_ms, self.staged_ms, self.until_ms, self.size_bytes]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Stage":
        """Restore an instance from *packed*."""
        batch, partition, attempt, begun_ms, staged_ms, until_ms, size_bytes, chunks = packed
        stage = cls(
            batch=batch,
            partition=partition,
            attempt=attempt,
            begun_ms=begun_ms,
            staged_ms=staged_ms,
            until_ms=until_ms,
        )
        for at, number, digest, messages in chunks:
            stage.add(at, Chunk(number, digest, messages), 0)
        stage.size_bytes = size_bytes
        return stage


@dataclass(slots=True, kw_only=True)
class Query:
    """A writer of batches. *rows*: of its last *batch*; *published_ms* 0: none is published yet."""

    name: str
    owner: str
    begun_ms: int
    batch: int = NO_BATCH
    rows: int = 0
    published_ms: int = 0
    is_final: bool = False
    stages: dict[StageKey, Stage] = field(default_factory=dict)

    def pack(self) -> list[Any]:
        """Return a frozen copy of MessagePack's types."""
        return [*self.facts(), [stage.pack() for stage in self.stages.values()]]

    def facts(self) -> list[Any]:
        """Return everything but the stages, of MessagePack's types."""
        return [self.name, self.owner, self.begun_ms, self.batch, self.rows, self.published_ms, self.is_final]

    @classmethod
    def unpack(cls, packed: list[Any]) -> "Query":
        """Restore an instance from *packed*."""
        name, owner, begun_ms, batch, rows, published_ms, is_final, stages = packed
        query = cls(
            name=name,
            owner=owner,
            begun_ms=begun_ms,
            batch=batch,
            rows=rows,
            published_ms=published_ms,
            is_final=is_final,
        )
        query.stages = {stage.key: stage for stage in map(Stage.unpack, stages)}
        return query


def read_staged(data: bytes) -> Rows:
    """Return bytes as STAGED."""
    return np.frombuffer(data, STAGED)


def messages_of(stages: Iterable[Stage]) -> Rows:
    """Return the messages of *stages* in the order of partitions, chunks and rows, as STAGED."""
    ordered = sorted(stages, key=lambda stage: stage.partition)
    return read_staged(b"".join(stage.chunks[at].messages for stage in ordered for at in sorted(stage.chunks)))


def records_below(chunks: Iterator[Chunk], position: int) -> tuple[Rows, npt.NDArray[np.int64]]:
    """Return the records below *position* of the log, as a COPY describes them (MOVE_ROWS), and
    their positions, ascending.
    """
    parts = list(chunks)
    messages = read_staged(b"".join(chunk.messages for chunk in parts))
    counts = np.fromiter((chunk.rows for chunk in parts), np.int64, len(parts))
    old = np.flatnonzero(messages["position"] < position)
    old = old[np.argsort(messages["position"][old], kind="stable")]
    rows = np.zeros(len(old), MOVE_ROWS)
    rows["kind"] = MOVED_STAGED
    for name in ("topic", "queue", "size", "tag"):
        rows[name] = messages[name][old]
    numbers = np.fromiter((chunk.number for chunk in parts), np.int64, len(parts))
    rows["number"] = np.repeat(numbers, counts)[old]
    rows["deliver_ms"] = (np.arange(len(messages)) - np.repeat(np.cumsum(counts) - counts, counts))[old]
    return rows, messages["position"][old].astype(np.int64)
