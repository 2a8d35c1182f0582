"""Batches that become visible at once: chunks that are staged, and their publication. Pure."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import quote

from tern_client.calls.documents import batch_request
from tern_client.calls.models import OutgoingMessage
from tern_client.transport.exchange import Request
from tern_wire import paths

_JSON = (("Content-Type", paths.JSON),)
# Partition, attempt, number of messages.
AnnouncedStage = tuple[int, int, int]


def stage_request(
    topic: str, query: str, place: tuple[int, int, int, int], messages: Sequence[OutgoingMessage]
) -> Request:
    """Request that a chunk is staged; *place*: batch, partition, attempt, chunk. It may be
    repeated.
    """
    request = batch_request(topic, messages)
    path = paths.staged_path(topic, quote(query, safe=""), *map(str, place))
    return replace(request, method="PUT", path=path, repeatable=True)


def publish_request(
    query: str, batch: int, stages: Iterable[AnnouncedStage], topics: Sequence[str], *, is_final: bool
) -> Request:
    """Request that a batch is published. It may be repeated."""
    document = {
        "stages": [{"partition": part, "attempt": attempt, "rows": rows} for part, attempt, rows in stages],
        "topics": list(topics),
        "final": is_final,
    }
    return Request("POST", _path(query, batch), _JSON, json.dumps(document).encode(), stores=True)


def abandon_request(query: str, batch: int) -> Request:
    """Request that the stages of a batch are dropped. It may be repeated."""
    return Request("DELETE", _path(query, batch))


def publication_path(query: str) -> str:
    """Return the path of a query."""
    return paths.publication_path(quote(query, safe=""))


def _path(query: str, batch: int) -> str:
    return paths.publication_path(quote(query, safe=""), str(batch))
