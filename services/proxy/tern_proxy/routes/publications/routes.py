"""Rows of publications: batches that become visible at once."""

from tern_proxy.core.documents.publications import (
    AbandonedBatch,
    ListedPublication,
    ListedStage,
    PublicationDescription,
    Publications,
    PublishedBatch,
    PublishRequest,
    StagedChunk,
)
from tern_proxy.core.documents.sends import JsonBatch, JsonMessage, PackedBatch
from tern_proxy.core.documents.values import DURATION_PATTERN, extended
from tern_proxy.routes.failures import ASKED, BROKER, READ, ROUTED, TOPIC
from tern_proxy.routes.messages.examples import BATCH, JSON_BATCH, LINES, PACKED, lines
from tern_proxy.routes.messages.parameters import SENT
from tern_proxy.routes.publications.publications import (
    delete_batch,
    get_publication,
    list_publications,
    post_publication,
)
from tern_proxy.routes.publications.stages import put_chunk
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES
from tern_proxy.routes.route import Route, Takes, gives, in_query, ref, takes
from tern_wire import limits
from tern_wire.errors import (
    BatchEmpty,
    BatchPublished,
    BatchTooLarge,
    BatchTooManyRows,
    DiskFull,
    LimitReached,
    MessageTooLarge,
    PublicationHistoryLost,
    PublicationNotFound,
    QueryElsewhere,
    StageChunkDiffers,
    StageMoved,
    StagesFull,
    StageUnknown,
    TopicNotWritable,
    UnsupportedBatchFormat,
    UpgradeUnfinished,
)
from tern_wire.paths import JSON, JSONL, MSGPACK, NDJSON, PUBLICATIONS_PATH, publication_path, staged_path

_QUERY = EXAMPLE_NAMES["query"]
_CHUNK = StagedChunk(
    query=_QUERY, batch=0, partition=3, attempt=17, chunk=0, rows=2, replayed=False, broker_group="broker-a"
)
_PUBLISHED = PublishedBatch(
    query=_QUERY, batch=0, rows=2, published_at=1_767_225_600_000, replayed=False, broker_group="broker-a"
)
_STAGE = ListedStage(
    batch=1,
    partition=0,
    attempt=20,
    rows=1_024,
    size_bytes=204_800,
    begun_at=1_767_225_600_000,
    staged_at=1_767_225_601_000,
    kept_until=1_767_229_201_000,
)
_LISTED = ListedPublication(
    query=_QUERY,
    owner="shop",
    broker_group="broker-a",
    batch=0,
    rows=2,
    published_at=1_767_225_600_000,
    final=False,
    stages=1,
    staged_rows=1_024,
    topics=["orders"],
)
_ONE, _BATCH_OF = publication_path("{query}"), publication_path("{query}", "{batch}")
_ABOUT_CHUNKS = (
    f"1 to {limits.BATCH_MESSAGES_MAX:,} messages of one attempt at one partition of a batch: durable, invisible, and dropped when "
    "their time is over or their batch is published with another attempt. Chunks are numbered by the writer, which repeats one whose answer "
    "is lost. A batch is published by one broker group, the home of its query."
)
_NOTHING_DONE = (*(PublicationHistoryLost, LimitReached, DiskFull, UpgradeUnfinished, QueryElsewhere, StageMoved),)

ROUTES = (
    Route(
        "PUT",
        staged_path("{topic}", "{query}", "{batch}", "{partition}", "{attempt}", "{chunk}"),
        put_chunk,
        id="stageChunk",
        tag="publications",
        summary="Stage a chunk of a batch",
        about=_ABOUT_CHUNKS,
        hot="stage",
        asks=("PUB topic {topic}", "CREATE topic {topic} if it is created by its first use"),
        parameters=(
            in_query(
                "life",
                {"type": "string", "pattern": DURATION_PATTERN},
                "Time for which the stage is kept, 1 h by default.",
            ),
            in_query(
                "accept_lost_history",
                {"type": "boolean", "default": False},
                "Begin with a later batch than the first, though those before are not known.",
            ),
        ),
        takes=Takes(
            content={
                JSON: {"schema": ref(JsonBatch), "examples": {"batch": {"value": BATCH}}},
                NDJSON: lines(JsonMessage, LINES),
                JSONL: lines(JsonMessage, LINES),
                MSGPACK: {"schema": ref(PackedBatch), "examples": {"batch": {"value": PACKED}}},
            },
            kinds=(JsonBatch, JsonMessage, PackedBatch),
            is_needed=True,
        ),
        gives={200: gives(_CHUNK, "It is staged.")},
        errors=(
            *(*SENT, BatchEmpty, BatchTooLarge, UnsupportedBatchFormat, BatchPublished, BatchTooManyRows),
            *(*_NOTHING_DONE, StageChunkDiffers, StagesFull, PublicationNotFound),
        ),
        query="?life=10m",
        bodies=((JSON, JSON_BATCH),),
    ),
    Route(
        "POST",
        _BATCH_OF,
        post_publication,
        id="publishBatch",
        tag="publications",
        summary="Publish a batch",
        hot="publish",
        asks=("PUB topic of the publication",),
        takes=takes(
            PublishRequest,
            stages={"stages": [{"partition": 3, "attempt": 17, "rows": 2}]},
            empty={"topics": ["orders"]},
            last={"stages": [{"partition": 0, "attempt": 0, "rows": 2}], "final": True},
        ),
        gives={200: gives(_PUBLISHED, "It is published, by this request or an earlier one.")},
        errors=(
            *(*ASKED, *READ, *TOPIC, *BROKER, MessageTooLarge, PublicationNotFound, TopicNotWritable),
            *(*_NOTHING_DONE, StageUnknown, BatchTooManyRows),
        ),
        bodies=((JSON, '{"stages": [{"partition": 3, "attempt": 17, "rows": 2}]}'),),
    ),
    Route(
        "DELETE",
        _BATCH_OF,
        delete_batch,
        id="abandonBatch",
        tag="publications",
        summary="Give a batch up",
        asks=("PUB topic of the publication if it is of the caller",),
        gives={200: gives(AbandonedBatch(query=_QUERY, batch=0, stages=1, rows=1_024), "What was dropped.")},
        errors=(*ASKED, *BROKER, *ROUTED, PublicationNotFound, DiskFull, UpgradeUnfinished),
    ),
    Route(
        "GET",
        _ONE,
        get_publication,
        id="getPublication",
        tag="publications",
        summary="Describe a query that publishes batches",
        gives={200: gives(extended(_LISTED, PublicationDescription, staged=[_STAGE]), "With its stages.")},
        errors=(*ASKED, *BROKER, *ROUTED, PublicationNotFound),
    ),
    Route(
        "GET",
        PUBLICATIONS_PATH,
        list_publications,
        id="listPublications",
        tag="publications",
        summary="List queries that publish batches",
        gives={200: gives(Publications(publications=[_LISTED]), "Of the topics that the caller may see.")},
        errors=(*ASKED, *BROKER, *ROUTED),
    ),
)
