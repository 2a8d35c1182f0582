"""Read leases: the part of each broker group, the id that names these groups, and one answer of
all. Pure.

     c41d7be09a5f2e3806b7d914.broker-a.broker-b
     | random, 24 hex digits  | broker groups with a part of the lease

The id names the groups, so any proxy can renew or end a lease, and one that lacks a part is never
taken for a whole one.
"""

import re
from collections.abc import Mapping, Sequence

from tern_proxy.core.documents.reads import (
    LeasedQueue,
    LeasedTopic,
    ListedLeasedTopic,
    ListedReadLease,
    ReadLease,
    ReadLeaseRequest,
    ReadLeases,
    ReadLeaseTimes,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.core.reading.plans import check_offsets
from tern_proxy.core.sending.topic import Topic
from tern_wire.errors import InvalidField, ReadLeaseNotFound
from tern_wire.limits_reads import (
    READ_LEASE_DEFAULT_MS,
    READ_LEASE_MAX_MS,
    READ_LEASE_MIN_MS,
    READ_PLAN_TOPICS_MAX,
)
from tern_wire.link.planned_reads import leases as link
from tern_wire.times import duration_text, given_duration, parse_duration_ms

LEASE_PATTERN = r"^[0-9a-f]{24}(\.[a-z0-9][a-z0-9-]{0,30})+$"
_LEASE = re.compile(LEASE_PATTERN.replace("$", r"\Z"))


def lease_id(random: str, broker_groups: Sequence[str]) -> str:
    """Return the id of a lease in *broker_groups*; *random*: 24 hex digits."""
    return ".".join((random, *broker_groups))


def broker_groups_of(lease: str) -> list[str]:
    """Return the broker groups with a part of *lease*. Raise ReadLeaseNotFound."""
    if _LEASE.match(lease) is None:
        raise ReadLeaseNotFound(lease=lease[:160])
    return lease.split(".")[1:]


def duration_of(value: str | int | None) -> int:
    """Return the milliseconds of `for`. Raise InvalidField."""
    if value is None:
        return READ_LEASE_DEFAULT_MS
    allowed = f"{duration_text(READ_LEASE_MIN_MS)} to {duration_text(READ_LEASE_MAX_MS)}"
    try:
        for_ms = parse_duration_ms(value)
    except ValueError as error:
        raise InvalidField(reason=f"'{given_duration(value)}' is no duration; {allowed}", pointer="/for") from error
    if not READ_LEASE_MIN_MS <= for_ms <= READ_LEASE_MAX_MS:
        raise InvalidField(reason=f"A lease is for {allowed}, not {given_duration(value)}", pointer="/for")
    return for_ms


def check_lease(asked: ReadLeaseRequest) -> None:
    """Raise InvalidField for a lease of no topic, of too many, or of one topic twice."""
    if not 1 <= len(asked.topics) <= READ_PLAN_TOPICS_MAX:
        reason = f"A lease has 1 to {READ_PLAN_TOPICS_MAX} topics, this one has {len(asked.topics)}"
        raise InvalidField(reason=reason, pointer="/topics")
    names: set[str] = set()
    for place, each in enumerate(asked.topics):
        if each.topic in names:
            raise InvalidField(reason=f"Topic '{each.topic[:160]}' is in the lease twice", pointer=f"/topics/{place}")
        names.add(each.topic)


def parts_of(asked: ReadLeaseRequest, topics: Sequence[Topic]) -> dict[str, list[link.LeasedTopic]]:
    """Return the topics of each broker group; *topics* are those of *asked*, in its order.

    Raise InvalidField, QueueNotFound.
    """
    parts: dict[str, list[link.LeasedTopic]] = {}
    for place, (each, topic) in enumerate(zip(asked.topics, topics, strict=True)):
        at = f"/topics/{place}/"
        for field, numbers in (("begin", each.begin), ("end", each.end)):
            check_offsets(numbers, f"{at}{field}/")
        ranges: dict[str, list[link.LeasedRange]] = {}
        for name in {**each.begin, **each.end}:
            queue = topic.pinned(name)
            begin, end = each.begin.get(name, -1), each.end.get(name, -1)
            if 0 <= end < begin:
                raise InvalidField(reason=f"'{name}' ends at {end}, before it begins", pointer=f"{at}end/{name}")
            ranges.setdefault(queue.broker_group, []).append(link.LeasedRange(queue.number, begin, end))
        for name in ranges or topic.broker_groups:
            parts.setdefault(name, []).append(link.LeasedTopic(topic=topic.name, ranges=ranges.get(name, [])))
    return parts


def lease_document(answers: Sequence[tuple[str, link.ReadLeaseTaken]]) -> ReadLease:
    """Return the lease of which each broker group has told its part."""
    topics: dict[str, LeasedTopic] = {}
    for name, told in answers:
        for part in told.topics:
            document = topics.setdefault(part.topic, LeasedTopic(topic=part.topic, queues=[]))
            document.queues += [
                LeasedQueue(queue=f"{name}:{each.queue}", begin=each.begin, end=each.end) for each in part.ranges
            ]
    return extended(times_document([told for _, told in answers]), ReadLease, topics=list(topics.values()))


def times_document(answers: Sequence[link.ReadLeaseTimes]) -> ReadLeaseTimes:
    """Return the times of a lease: of the broker group where it ends first."""
    return ReadLeaseTimes(
        lease=answers[0].lease,
        taken_at=min(told.taken_ms for told in answers),
        leased_until=min(told.until_ms for told in answers),
    )


def leases_document(answers: Mapping[str, link.ReadLeaseList]) -> list[ListedReadLease]:
    """Return every lease once, with its parts in all broker groups together, in order of their
    ends.
    """
    found: dict[str, ListedReadLease] = {}
    for told in answers.values():
        for row in told.leases:
            known = found.get(row.lease)
            if known is None:
                known = found[row.lease] = ListedReadLease(
                    lease=row.lease,
                    owner=row.owner,
                    taken_at=row.taken_ms,
                    leased_until=row.until_ms,
                    broken_by=row.broken_by,
                    topics=[],
                )
            known.leased_until = min(known.leased_until, row.until_ms)
            known.broken_by = known.broken_by or row.broken_by
            _add_topics(known, row.topics)
    return sorted(found.values(), key=lambda lease: (lease.leased_until, lease.lease))


def _add_topics(lease: ListedReadLease, topics: Sequence[link.ListedLeasedTopic]) -> None:
    by_name = {topic.topic: topic for topic in lease.topics}
    for each in topics:
        if (known := by_name.get(each.topic)) is not None:
            known.queues += each.queues
            known.messages += each.messages
        else:
            lease.topics.append(ListedLeasedTopic(topic=each.topic, queues=each.queues, messages=each.messages))


def listed(leases: Sequence[ListedReadLease]) -> ReadLeases:
    """Return the document of a list."""
    return ReadLeases(leases=list(leases))
