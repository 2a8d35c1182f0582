"""Publications: names of queries, the home of a query, the requests of a chunk, and the documents.
Pure.

A query publishes in one broker group, its home: there a batch is one entry of the log, whole or not
at all. The home is the broker group that knows the query. A query that none knows gets the home
that its name has among the broker groups of its topics, so that proxies that do not know of each
other agree. Reference: rendezvous hashing (Thaler and Ravishankar, 1998).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from msgspec import UNSET

from tern_proxy.core.documents.publications import (
    QUERY_PATTERN,
    ListedPublication,
    ListedStage,
    PublicationDescription,
    PublishRequest,
)
from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.documents.values import extended
from tern_proxy.core.sending.encoding import Encoded, Parcel
from tern_proxy.core.sending.parameters import number_of
from tern_proxy.core.sending.topic import Topic
from tern_wire.errors import BrokerGroupNotWritable, InvalidField, QueryElsewhere
from tern_wire.limits_publications import (
    PUBLISHED_MESSAGES_MAX,
    PUBLISHED_STAGES_MAX,
    PUBLISHED_TOPICS_MAX,
    STAGE_LIFE_DEFAULT_MS,
    STAGE_LIFE_MAX_MS,
    STAGE_LIFE_MIN_MS,
)
from tern_wire.link import publications as link
from tern_wire.names import SEPARATOR
from tern_wire.times import duration_text, given_duration, parse_duration_ms

_QUERY = re.compile(QUERY_PATTERN.replace("$", r"\Z"))
# A chunk becomes parts of LANE_SIZE_MAX_BYTES; BATCH_SIZE_MAX_BYTES and the properties of
# BATCH_MESSAGES_MAX messages fill fewer than these.
PARTS_BITS = 8
CHUNK_MAX = link.NUMBER_MAX >> PARTS_BITS
_Bool = {"true": True, "false": False}


# Parameters ---------------------------------------------------------------------------------------
def query_in(namespace: str, name: str, pointer: str = "path/query") -> str:
    """Return the full name of a client's query in *namespace* ("" for none). Raise InvalidField."""
    if _QUERY.match(name) is None:
        reason = f"'{name[:80]}' is no name of a query: 1 to 64 letters, digits, '_', '-' or '.', the first a letter or digit"
        raise InvalidField(reason=reason, pointer=pointer)
    return f"{namespace}{SEPARATOR}{name}" if namespace else name


def place_of(batch: str, partition: str, attempt: str, chunk: str) -> tuple[int, int, int, int]:
    """Return the numbers of a path. Raise InvalidField."""
    return (
        batch_of(batch),
        number_of(partition, "partition", 0, link.NUMBER_MAX, "path/"),
        number_of(attempt, "attempt", 0, link.NUMBER_MAX, "path/"),
        number_of(chunk, "chunk", 0, CHUNK_MAX, "path/"),
    )


def batch_of(text: str) -> int:
    """Return the batch of a path. Raise InvalidField."""
    return number_of(text, "batch", 0, link.NUMBER_MAX, "path/")


def life_of(fields: Mapping[str, str]) -> int:
    """Return the milliseconds of `life`. Raise InvalidField."""
    value = fields.get("life")
    if value is None:
        return STAGE_LIFE_DEFAULT_MS
    allowed = f"{duration_text(STAGE_LIFE_MIN_MS)} to {duration_text(STAGE_LIFE_MAX_MS)}"
    try:
        life_ms = parse_duration_ms(value)
    except ValueError as error:
        raise InvalidField(
            reason=f"'{given_duration(value)}' is no duration; {allowed}", pointer="query/life"
        ) from error
    if not STAGE_LIFE_MIN_MS <= life_ms <= STAGE_LIFE_MAX_MS:
        raise InvalidField(reason=f"A stage lives {allowed}, not {given_duration(value)}", pointer="query/life")
    return life_ms


def accepts_lost_history(fields: Mapping[str, str]) -> bool:
    """Return `accept_lost_history`. Raise InvalidField."""
    value = fields.get("accept_lost_history", "false")
    if value not in _Bool:
        reason = f"'accept_lost_history' is '{value[:40]}'; it is true or false"
        raise InvalidField(reason=reason, pointer="query/accept_lost_history")
    return _Bool[value]


def check_publication(asked: PublishRequest) -> None:
    """Raise InvalidField for numbers out of range, for two attempts at one partition, and for too
    many of anything.
    """
    for name, count, limit in (
        ("stages", len(asked.stages), PUBLISHED_STAGES_MAX),
        ("topics", len(asked.topics), PUBLISHED_TOPICS_MAX),
    ):
        if count > limit:
            raise InvalidField(reason=f"A publication has at most {limit:,} {name}, not {count:,}", pointer=f"/{name}")
    partitions: set[int] = set()
    for place, stage in enumerate(asked.stages):
        at = f"/stages/{place}/"
        for name, number, most in (
            ("partition", stage.partition, link.NUMBER_MAX),
            ("attempt", stage.attempt, link.NUMBER_MAX),
            ("rows", stage.rows, PUBLISHED_MESSAGES_MAX),
        ):
            number_of(number, name, 0, most, at)
        if stage.partition in partitions:
            reason = f"Partition {stage.partition} is announced twice; one attempt counts"
            raise InvalidField(reason=reason, pointer=f"{at}partition")
        partitions.add(stage.partition)


# Home ---------------------------------------------------------------------------------------------
def known_home(query: str, answers: Iterable[tuple[str, link.PublicationList]]) -> str:
    """Return the broker group that knows *query*; "" if none does.

    Two know it only if proxies with different routes have begun it at once: the one that has
    published, or else one that all proxies choose alike, remains.
    """
    knowing = [(row.batch, name) for name, told in answers for row in told.publications]
    if not knowing:
        return ""
    last = max(batch for batch, _ in knowing)
    return home_among(query, [name for batch, name in knowing if batch == last])


def home_among(query: str, broker_groups: Collection[str]) -> str:
    """Return the home of a new query among *broker_groups*, at least one."""
    return max(broker_groups, key=lambda name: blake2b(f"{name}\0{query}".encode(), digest_size=8).digest())


def new_home(query: str, topics: Sequence[Topic], wiped: Collection[str]) -> str:
    """Return the home of a new query, one of the broker groups that have all *topics* and take
    writes: those where keyed messages of the topics belong, if any, because nothing of the query
    belongs elsewhere then.

    Raise BrokerGroupNotWritable, and QueryElsewhere when no broker group has all topics.
    """
    homes: set[str] = set()
    for number, topic in enumerate(topics):
        own = {name for name in topic.broker_groups if name not in wiped}
        if not own:
            raise BrokerGroupNotWritable(broker_group=min(topic.broker_groups))
        if number and not homes & own:
            what = f"topic '{topic.name}'"
            raise QueryElsewhere(query=query, broker_group=home_among(query, homes), what=what, known=min(own))
        homes = homes & own if number else own
    placed = [set(topic.placement.groups) for topic in topics if topic.placement.epoch]
    return home_among(query, homes.intersection(*placed) or homes)


# Chunks -------------------------------------------------------------------------------------------
def refuse_keys(messages: Sequence[PackedMessage | JsonMessage]) -> None:
    """Raise InvalidField for a message with an idempotency key."""
    for index, message in enumerate(messages):
        if message.idempotency_key:
            reason = "A staged message has no idempotency key: its batch is published once"
            raise InvalidField(reason=reason, pointer=f"/messages/{index}/idempotency_key")


def parts_of(encoded: Encoded, topic: str, query: str, home: str) -> list[Parcel]:
    """Return the parcels of a chunk, all for *home*.

    Raise the first message's error, and QueryElsewhere for a message that belongs to another broker
    group: a chunk is staged whole or not at all.
    """
    for index in sorted(encoded.errors):
        raise encoded.errors[index]
    for parcel in encoded.parcels:
        if parcel.broker_group != home:
            what = f"message {parcel.indexes[0]} of topic '{topic}'"
            raise QueryElsewhere(query=query, broker_group=home, what=what, known=parcel.broker_group)
    return encoded.parcels


def stage_requests(
    parcels: Sequence[Parcel],
    query: str,
    place: tuple[int, int, int, int],
    *,
    owner: str,
    life_ms: int,
    accepts_lost: bool,
) -> list[tuple[link.Stage, list[bytes]]]:
    """Return the requests of a chunk, one for each parcel, with their raw bytes. *place*: batch,
    partition, attempt and chunk.
    """
    batch, partition, attempt, chunk = place
    return [
        (
            link.Stage(
                query=query,
                owner=owner,
                batch=batch,
                partition=partition,
                attempt=attempt,
                chunk=chunk << PARTS_BITS | part,
                life_ms=life_ms,
                accepts_lost_history=accepts_lost,
                topics=list(parcel.topics),
                rows=len(parcel.rows),
            ),
            [*parcel.rows, *parcel.parts],
        )
        for part, parcel in enumerate(parcels)
    ]


# Documents ----------------------------------------------------------------------------------------
def listed(row: link.ListedPublication, broker_group: str) -> ListedPublication:
    """Return a query as it is listed."""
    return ListedPublication(
        query=row.query,
        owner=row.owner,
        broker_group=broker_group,
        batch=row.batch if row.batch != link.NO_BATCH else UNSET,
        rows=row.rows,
        published_at=row.published_ms or UNSET,
        final=row.is_final,
        stages=row.stages,
        staged_rows=row.staged_rows,
        topics=row.topics,
    )


def described(row: link.ListedPublication, broker_group: str) -> PublicationDescription:
    """Return a query with its stages."""
    staged = [
        ListedStage(
            batch=stage.batch,
            partition=stage.partition,
            attempt=stage.attempt,
            rows=stage.rows,
            size_bytes=stage.size_bytes,
            begun_at=stage.begun_ms,
            staged_at=stage.staged_ms,
            kept_until=stage.until_ms,
        )
        for stage in row.shown
    ]
    return extended(listed(row, broker_group), PublicationDescription, staged=staged)
