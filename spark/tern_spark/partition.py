"""The partition of a task: the queue ranges that it reads."""

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from tern_spark.leases import ReadLease
from tern_spark.ranges import QueueRange


@dataclass(frozen=True, slots=True)
class TaskPartition(InputPartition):  # type: ignore[misc]  # PySpark ships no types
    """All that a task needs to know, since it runs in another process than its plan."""

    ranges: tuple[QueueRange, ...]
    # None: retention may overtake the read.
    lease: ReadLease | None = None
