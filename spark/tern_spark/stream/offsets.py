"""The offsets of a stream, as checkpoints keep them: a JSON document with a version.

    {"version": 1,
     "topics": {"orders": {"created_at": 1767225600000,
                           "queues": {"broker-a:0": 43, "broker-a:1": 7},
                           "began": {"broker-a:1": 2}}}}

An offset is the next one to read. `created_at` tells a topic from one that was made again under its
name. `began` has the first offset of queues that no earlier document has; a batch that ends here
reads them from there, and so does its replay.

Law: a checkpoint outlives this code. A field or a meaning changes only with a new version, and
every older version stays readable.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

VERSION = 1


class CheckpointMismatch(ValueError):
    """The offsets of a checkpoint do not fit the cluster or this release."""


class TopicOffsets(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The offsets of one topic, by queue."""

    created_at: int
    queues: dict[str, int]
    began: dict[str, int] = {}


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    topics: dict[str, TopicOffsets]


StreamOffsets = Mapping[str, TopicOffsets]


def write_offsets(offsets: StreamOffsets) -> dict[str, Any]:
    """Return the document of *offsets*."""
    document: dict[str, Any] = msgspec.to_builtins(_Document(version=VERSION, topics=dict(offsets)))
    return document


def read_offsets(document: Mapping[str, Any]) -> StreamOffsets:
    """Return the offsets of *document*; CheckpointMismatch when this release cannot read it."""
    version = document.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointMismatch(
            f"The checkpoint has offsets of version {version}, and this release reads up to {VERSION}: "
            "it was written by a newer release, use that one."
        )
    try:
        return msgspec.convert(document, _Document).topics
    except msgspec.ValidationError as error:
        raise CheckpointMismatch(f"The checkpoint has no offsets of a 'ternmq' stream: {error}.") from error
