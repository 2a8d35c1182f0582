"""What an operation of the API document is made of, and the admin and health operations themselves.

Data, not behaviour: the handlers decide, and tests hold these tables against what they accept and answer. Imported with the
first request of /openapi.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST

from tern_proxy.core.documents.topics import TopicOffsets
from tern_proxy.core.documents.values import TOPIC_PATTERN
from tern_proxy.openapi import schemas
from tern_proxy.routes.route import Schema, ref
from tern_wire import messages, paths
from tern_wire.paths import JSON, MSGPACK

# Errors by what an operation does. What the server itself refuses can meet every one of them.
SERVER = (
    "request-malformed",
    "request-timeout",
    "body-too-slow",
    "callback-refused",
    "internal",
    "overloaded",
    "share-exceeded",
    "shutting-down",
)
ASKED = ("invalid-field", "unknown-parameter", "not-acceptable")
READ = ("malformed-body", "unknown-field", "document-too-complex")
TOPIC = ("illegal-topic", "topic-not-found", "no-name-server", "warming-up")
BROKER = ("no-leader", "outcome-unknown", "storage-damaged", "node-lacks-resources")
DECLARED = (*ASKED, *READ, *BROKER, "message-too-large", "limit-reached", "no-name-server", "warming-up", "disk-full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `description` None: the handler's docstring. `query` (with its question mark) and `bodies` (content type
    and text) make the curl examples, one a body; path names come from the path."""

    method: str
    path: str
    id: str
    summary: str
    tag: str = ""
    description: str | None = None
    parameters: tuple[Schema, ...] = ()
    body: Mapping[str, Schema] = field(default_factory=dict)
    is_body_needed: bool = False
    answers: Mapping[int, Schema]
    errors: tuple[str, ...] = ()
    query: str = ""
    bodies: tuple[tuple[str, str], ...] = ()
    extensions: Mapping[str, Any] = field(default_factory=dict)


def in_query(name: str, schema: Schema, description: str, **more: Any) -> Schema:
    """A query parameter."""
    return {"name": name, "in": "query", "description": description, "schema": schema, **more}


def in_header(name: str, schema: Schema, description: str) -> Schema:
    """A header of the request."""
    return {"name": name, "in": "header", "description": description, "schema": schema}


def number(name: str, least: int, most: int, default: int | None, description: str) -> Schema:
    """A query parameter that is a whole number in *least*..*most*."""
    bounds: Schema = {"type": "integer", "minimum": least, "maximum": most}
    return in_query(name, bounds if default is None else {**bounds, "default": default}, description)


def takes(kind: type[Struct], **examples: Any) -> Mapping[str, Schema]:
    """A body that is a *kind* in JSON or MessagePack."""
    media = {"schema": ref(kind), "examples": {name: {"value": value} for name, value in examples.items()}}
    return {JSON: media, MSGPACK: media}


def headers(*names: str) -> Schema:
    """Headers of an answer, described once under components."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def gives(kind: type[Struct], description: str, example: Any, *sent: str) -> Schema:
    """An answer that is a *kind* in JSON or MessagePack, with the headers *sent*."""
    media = {"schema": ref(kind), "example": example}
    return {"description": description, "headers": headers(*sent), "content": {JSON: media, MSGPACK: media}}


# Documents --------------------------------------------------------------------------------------------------------
_TOPIC_OFFSETS = {"topic": "orders", "queues": [{"queue": "broker-a:3", "min_offset": 0, "max_offset": 43}]}
_GROUP_OFFSETS = {"group": "billing", "topic": "orders", "offsets": {"broker-a:3": 0}}
_RAFT = {
    "role": "leader",
    "serving": True,
    "term": 3,
    "commit_index": 42,
    "applied_index": 42,
    "last_index": 43,
    "synced_index": 43,
    "lag": 0,
    "fsync_ms": 1.2,
}
_CLUSTER = {
    "cluster": "demo",
    "warm": True,
    "name_server_reachable": True,
    "proxy": "proxy-1f2e3d4c",
    "topics": 1,
    "broker_groups": {
        "broker-a": {
            "leader": "broker-a-0",
            "term": 3,
            "group_size": 1,
            "writable": True,
            "nodes": {"broker-a-0": {"link": "127.0.0.1:10911", "connected": True, "raft": _RAFT}},
        }
    },
}
_HEALTH = {"status": "alive"}
_READY = {
    "ready": True,
    "routes": True,
    "name_server": True,
    "leaders": {"broker-a": "broker-a-0"},
    "stopping": False,
    "room": {"bytes of requests in flight": "free", "messages in flight": "free"},
}
_NOT_READY = {**_READY, "ready": False, "leaders": {"broker-a": ""}}


def _plain(kind: type[Struct], description: str, example: Any, *sent: str) -> Schema:
    return {
        "description": description,
        "headers": headers(*sent),
        "content": {JSON: {"schema": ref(kind), "example": example}},
    }


ADMIN: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path=paths.offsets_path("{topic}"),
        id="getTopicOffsets",
        summary="Offsets of a topic",
        parameters=(
            in_query(
                "time",
                {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "format": "date-time"}]},
                "Also say which offset of each queue was the first one visible then.",
            ),
        ),
        answers={200: gives(TopicOffsets, "Every queue.", _TOPIC_OFFSETS)},
        errors=(*ASKED, *TOPIC, *BROKER),
    ),
    Operation(
        method="GET",
        path=paths.group_offsets_path("{group}"),
        id="getGroupOffsets",
        summary="Committed offsets of a group",
        parameters=(in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Whose queues.", required=True),),
        answers={200: gives(schemas.GroupOffsets, "By queue; queues not begun are left out.", _GROUP_OFFSETS)},
        errors=(*ASKED, *TOPIC, *BROKER, "illegal-group", "group-not-found"),
        query="?topic=orders",
    ),
    Operation(
        method="PUT",
        path=paths.group_offsets_path("{group}"),
        id="putGroupOffsets",
        summary="Move a group",
        body=takes(
            messages.OffsetsCommit,
            seek={"topic": "orders", "offsets": {"broker-a:3": 0}},
            only_if={"topic": "orders", "offsets": {"broker-a:3": 42}, "expected": {"broker-a:3": 0}},
        ),
        is_body_needed=True,
        answers={200: gives(schemas.GroupOffsets, "What is committed now.", _GROUP_OFFSETS)},
        errors=(
            *(*ASKED, *READ, *TOPIC, *BROKER, "illegal-group", "group-not-found", "queue-not-found", "offset-moved"),
            "queue-lock-lost",
            *("message-too-large", "disk-full"),
        ),
        bodies=((JSON, '{"topic": "orders", "offsets": {"broker-a:3": 0}}'),),
    ),
    Operation(
        method="GET",
        path=paths.CLUSTER_PATH,
        id="getCluster",
        summary="The cluster",
        answers={200: gives(schemas.ClusterState, "As this proxy sees it.", _CLUSTER)},
        errors=(*ASKED, "no-name-server"),
    ),
    Operation(
        method="GET",
        path="/healthz",
        id="getHealth",
        summary="Is it alive?",
        parameters=(in_query("verbose", {"type": "string"}, "Tell what runs here.", allowEmptyValue=True),),
        answers={200: _plain(schemas.Health, "Alive.", _HEALTH)},
    ),
    Operation(
        method="GET",
        path="/readyz",
        id="getReadiness",
        summary="Is it ready?",
        answers={
            200: _plain(schemas.Readiness, "Work is accepted.", _READY),
            503: _plain(schemas.Readiness, "Not now; the fields say why.", _NOT_READY, "Retry-After"),
        },
    ),
    Operation(
        method="GET",
        path="/metrics",
        id="getMetrics",
        summary="Metrics",
        answers={
            200: {
                "description": "Prometheus' text format.",
                "content": {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}},
            }
        },
    ),
)
