"""Batches that become visible at once, as values of the history: what writers ask, and what they are answered."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.sim.history.questions import Sending

PUBLISHED_BEFORE, STAGE_UNKNOWN = "batch-published", "stage-unknown"


class StageChunk(NamedTuple):
    """A chunk of one attempt at one partition of a batch."""

    query: str
    batch: int
    partition: int
    attempt: int
    chunk: int
    topic: str
    messages: "tuple[Sending, ...]"


class PublishBatch(NamedTuple):
    """Publish these stages: (partition, attempt, rows)."""

    query: str
    batch: int
    stages: tuple[tuple[int, int, int], ...]


class GiveUp(NamedTuple):
    """Drop what is staged for a batch."""

    query: str
    batch: int


class ChunkStaged(NamedTuple):
    """So many rows are staged; *is_replay*: they were before."""

    rows: int
    is_replay: bool


class BatchPublished(NamedTuple):
    """The last batch that is published, with so many rows."""

    batch: int
    rows: int
    is_replay: bool


class BatchGivenUp(NamedTuple):
    """What was dropped."""

    stages: int
    rows: int


PublicationAsked = StageChunk | PublishBatch | GiveUp
PublicationAnswered = ChunkStaged | BatchPublished | BatchGivenUp
