"""The partition of a task: the queue ranges that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from tern_spark.leases import ReadLease
from tern_spark.ranges import QueueRange


@dataclass(frozen=True, slots=True)
class TaskPartition(InputPartition):  # type: ignore[misc]  # PySpark ships no types
    """All that a task needs to know, since it runs in another process than its plan."""

    ranges: tuple[QueueRange, ...]
    # None: retention may overtake the read.
    lease: ReadLease | None = None
    # When the topics were made, as the plan found them.
    created_ms: Mapping[str, int] = field(default_factory=dict)


def partition_of(
    ranges: tuple[QueueRange, ...], created_ms: Mapping[str, int], lease: ReadLease | None = None
) -> TaskPartition:
    """Return the partition of *ranges*, with what is known of their topics alone."""
    topics = dict.fromkeys(found.topic for found in ranges)
    return TaskPartition(ranges, lease, {topic: created_ms[topic] for topic in topics})
