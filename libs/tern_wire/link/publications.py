"""Link requests for batches that become visible at once: staged in chunks, published, given up.

A *query* writes batches numbered from 0. A *stage* is what one attempt at one partition of a batch
has sent, in chunks. A publication names the stages that count, and the rows of each.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits_publications import (
    PUBLISHED_MESSAGES_MAX,
    PUBLISHED_STAGES_MAX,
    QUERY_NAME_SIZE_MAX_BYTES,
    STAGE_LIFE_DEFAULT_MS,
    STAGE_LIFE_MAX_MS,
    STAGE_LIFE_MIN_MS,
)
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

# Numbers of batches, partitions, attempts and chunks.
NUMBER_MAX = (1 << 53) - 1
Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
# With its namespace in front.
QueryName = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * QUERY_NAME_SIZE_MAX_BYTES + 2)]
# A batch before the first one: nothing is published yet.
NO_BATCH = -1


class Staged(LinkReply, frozen=True, kw_only=True):
    """Reply: the *rows* of the chunk are staged; *is_replay*: since an earlier request."""

    rows: int
    is_replay: bool


class Stage(LinkRequest[Staged], frozen=True, kw_only=True):
    """Stage one chunk. Raw bytes: *rows* SEND_ROWS without idempotency keys, then as many records.

    *topics*: names that the rows refer to by index. *owner*: the principal, "" without one.
    *life_ms*: of the stage, after this chunk. BatchPublished, StageChunkDiffers,
    PublicationHistoryLost (unless *accepts_lost_history*), StagesFull.
    """

    code: ClassVar = RequestCode.STAGE
    reply: ClassVar = Staged

    query: QueryName
    owner: str = ""
    batch: Number
    partition: Number
    attempt: Number
    chunk: Number
    life_ms: Annotated[int, msgspec.Meta(ge=STAGE_LIFE_MIN_MS, le=STAGE_LIFE_MAX_MS)] = STAGE_LIFE_DEFAULT_MS
    accepts_lost_history: bool = False
    topics: list[str]
    rows: int


class StageRows(msgspec.Struct, frozen=True, array_like=True):
    """A stage as it is announced: the attempt at a partition that counts, and its rows."""

    partition: Number
    attempt: Number
    rows: Annotated[int, msgspec.Meta(ge=0, le=PUBLISHED_MESSAGES_MAX)]


class Published(LinkReply, frozen=True, kw_only=True):
    """Reply: *batch* is the last published one, with *rows*, since *published_ms* (the group's
    time). *is_replay*: since an earlier request.
    """

    batch: int
    rows: int
    published_ms: int
    is_replay: bool


class Publish(LinkRequest[Published], frozen=True, kw_only=True):
    """Make all rows of *stages* visible at once, and drop every other stage of the query up to
    *batch*.

    *is_final*: no other batch will follow. StageUnknown, StageMoved, PublicationHistoryLost:
    nothing was done.
    """

    code: ClassVar = RequestCode.PUBLISH
    reply: ClassVar = Published

    query: QueryName
    owner: str = ""
    batch: Number
    stages: Annotated[list[StageRows], msgspec.Meta(max_length=PUBLISHED_STAGES_MAX)]
    is_final: bool = False
    accepts_lost_history: bool = False


class BatchAbandoned(LinkReply, frozen=True, kw_only=True):
    """Reply: so many *stages* and *rows* of the batch were dropped."""

    stages: int
    rows: int


class AbandonBatch(LinkRequest[BatchAbandoned], frozen=True, kw_only=True):
    """Drop the stages of *batch*. *owner*: only if the query is its own; None: anybody's."""

    code: ClassVar = RequestCode.ABANDON_BATCH
    reply: ClassVar = BatchAbandoned

    query: QueryName
    owner: str | None = None
    batch: Number


class ListedStage(msgspec.Struct, frozen=True, array_like=True):
    """A stage; times are the group's, ms since 1970."""

    batch: int
    partition: int
    attempt: int
    rows: int
    size_bytes: int
    begun_ms: int
    staged_ms: int
    until_ms: int


class ListedPublication(msgspec.Struct, frozen=True, kw_only=True):
    """A query. *batch*: the last published one, NO_BATCH for none. *stages*: how many it has, with
    so many *staged_rows*; *shown*: some of them.
    """

    query: str
    owner: str
    batch: int
    rows: int
    published_ms: int
    is_final: bool
    stages: int
    staged_rows: int
    topics: list[str]
    shown: list[ListedStage]


class PublicationList(LinkReply, frozen=True, kw_only=True):
    """Reply: the queries by name."""

    publications: list[ListedPublication]


class ListPublications(LinkRequest[PublicationList], frozen=True, kw_only=True):
    """Request all queries, or only *query* with its stages, which may be missing."""

    code: ClassVar = RequestCode.LIST_PUBLICATIONS
    reply: ClassVar = PublicationList

    query: str = ""
