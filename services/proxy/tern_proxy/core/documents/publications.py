"""Documents of batches that become visible at once: staged chunks, publications, and their list."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import TOPIC_PATTERN, BrokerGroupName, Count, Time, shown
from tern_wire.limits_publications import (
    PUBLISHED_MESSAGES_MAX,
    PUBLISHED_STAGES_MAX,
    PUBLISHED_TOPICS_MAX,
    QUERY_NAME_SIZE_MAX_BYTES,
)

QUERY_PATTERN = f"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,{QUERY_NAME_SIZE_MAX_BYTES - 1}}}$"
NUMBER_MAX = (1 << 53) - 1
_Number = Annotated[int, shown(minimum=0, maximum=NUMBER_MAX)]
QueryName = Annotated[str, Meta(description="Name that the writer has given itself.")]


# Requests -----------------------------------------------------------------------------------------
class AnnouncedStage(Struct, forbid_unknown_fields=True):
    """The attempt at a partition that counts, with the number of its messages."""

    partition: _Number
    attempt: _Number
    rows: Annotated[int, shown(minimum=0, maximum=PUBLISHED_MESSAGES_MAX)]


class PublishRequest(Struct, forbid_unknown_fields=True):
    """The body of POST /v1/publications/{query}/batches/{batch}.

    `topics` are those of the query; they are needed where its first batches are empty.
    """

    stages: Annotated[list[AnnouncedStage], shown(maxItems=PUBLISHED_STAGES_MAX)] = []
    final: Annotated[bool, shown("No other batch will follow.")] = False
    topics: Annotated[list[Annotated[str, shown(pattern=TOPIC_PATTERN)]], shown(maxItems=PUBLISHED_TOPICS_MAX)] = []
    accept_lost_history: Annotated[bool, shown("Publish though the batches before are not known.")] = False


# Answers ------------------------------------------------------------------------------------------
class StagedChunk(Struct, kw_only=True):
    """A chunk that is staged: its messages are durable, and invisible."""

    query: QueryName
    batch: Count
    partition: Count
    attempt: Count
    chunk: Count
    rows: Count
    replayed: Annotated[bool, Meta(description="An earlier request had staged it.")]
    broker_group: BrokerGroupName


class PublishedBatch(Struct, kw_only=True):
    """The last batch of a query that is published. `batch` is larger than that of the path if later
    ones are published, too.
    """

    query: QueryName
    batch: Count
    rows: Count
    published_at: Time
    replayed: Annotated[bool, Meta(description="An earlier request had published it.")]
    broker_group: BrokerGroupName


class AbandonedBatch(Struct, kw_only=True):
    """What was dropped."""

    query: QueryName
    batch: Count
    stages: Count
    rows: Count


class ListedStage(Struct, kw_only=True):
    """What one attempt at one partition of a batch has staged."""

    batch: Count
    partition: Count
    attempt: Count
    rows: Count
    size_bytes: Count
    begun_at: Time
    staged_at: Time
    kept_until: Time


class ListedPublication(Struct, kw_only=True):
    """A query that writes batches. `batch` is the last published one; without it none is."""

    query: QueryName
    owner: Annotated[str, Meta(description="Principal; empty without authentication.")]
    broker_group: BrokerGroupName
    batch: Count | UnsetType = UNSET
    rows: Count
    published_at: Time | UnsetType = UNSET
    final: bool
    stages: Count
    staged_rows: Count
    topics: list[str]


class Publications(Struct, kw_only=True):
    """Queries that write batches, by name."""

    publications: list[ListedPublication]


class PublicationDescription(ListedPublication, kw_only=True):
    """One query, with its stages, or the first of them."""

    staged: list[ListedStage]
