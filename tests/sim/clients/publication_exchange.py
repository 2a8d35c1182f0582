"""What simulated writers of batches ask as bytes of the link protocol, and replies as values. As a proxy does it."""

from typing import Any

from tern_wire.link.requests import RequestCode, body_parts
from tests.sim.clients.send_encoding import Request, encode_messages
from tests.sim.history.publication_values import (
    BatchGivenUp,
    BatchPublished,
    ChunkStaged,
    GiveUp,
    PublicationAnswered,
    PublicationAsked,
    PublishBatch,
    StageChunk,
)

OWNER = "writer"


def encode_publication(asked: PublicationAsked, operation: int, born_ms: int) -> Request:
    """The request for *asked*. Each of them may be repeated."""
    match asked:
        case StageChunk(query, batch, partition, attempt, chunk, topic, messages):
            packed, _ = encode_messages(topic, messages, operation, born_ms)
            head = {"query": query, "owner": OWNER, "batch": batch, "partition": partition, "attempt": attempt}
            head |= {"chunk": chunk, "topics": [topic], "rows": len(messages)}
            return Request(RequestCode.STAGE, body_parts(head, [packed]), True)
        case PublishBatch(query, batch, stages):
            head = {"query": query, "owner": OWNER, "batch": batch, "stages": [list(stage) for stage in stages]}
            return Request(RequestCode.PUBLISH, body_parts(head), True)
        case GiveUp(query, batch):
            head = {"query": query, "owner": OWNER, "batch": batch}
            return Request(RequestCode.ABANDON_BATCH, body_parts(head), True)


def decode_publication(asked: PublicationAsked, head: dict[str, Any]) -> PublicationAnswered:
    """What the reply to *asked* says."""
    match asked:
        case StageChunk():
            return ChunkStaged(head["rows"], head["is_replay"])
        case PublishBatch():
            return BatchPublished(head["batch"], head["rows"], head["is_replay"])
        case GiveUp():
            return BatchGivenUp(head["stages"], head["rows"])
