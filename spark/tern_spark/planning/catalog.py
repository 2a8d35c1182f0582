"""What the planner asks the cluster, in the driver: topics, ends of queues, a group's offsets.

A plan takes one request for each topic, and one more for each time or group in its options. Sizes
are no part of these answers: they are estimated from the first records of a range.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tern_client import BlockingAdmin, RetryPolicy
from tern_spark.options import OptionError, ReadOptions
from tern_spark.ranges import QueueRange, QueueSpan
from tern_wire.errors import GroupNotFound, QueueNotFound
from tern_wire.records.columns import record_starts

# Records that an estimate of sizes reads, and the bytes that they may have.
_SAMPLED_ROWS, _SAMPLED_SIZE_MAX_BYTES = 64, 256 << 10
_PAUSE_MAX_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNow:
    """A topic as it is now. A topic that was deleted and made again has a later *created_ms*."""

    topic: str
    created_ms: int
    spans: tuple[QueueSpan, ...]


class Catalog:
    """The cluster as planning sees it. A context manager; otherwise call close()."""

    def __init__(self, options: ReadOptions) -> None:
        pause_ms = options.fetch_retry_interval_ms
        pauses_ms = [min(pause_ms << at, _PAUSE_MAX_MS) for at in range(options.fetch_retries)]
        policy = RetryPolicy(
            deadline_ms=options.fetch_timeout_ms + sum(pauses_ms),
            attempt_timeout_ms=options.fetch_timeout_ms,
            first_delay_ms=pause_ms,
            max_delay_ms=max(pause_ms, _PAUSE_MAX_MS),
        )
        self._options = options
        self._admin = BlockingAdmin(
            options.endpoints,
            namespace=options.namespace,
            policy=policy,
            key_file=options.key_file,
            ca_file=options.ca_file,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def topics(self) -> tuple[str, ...]:
        """Return the topics of the read; those of a pattern as they are now."""
        if not self._options.topic_pattern:
            return self._options.topics or tuple(self._options.assigned)
        wanted = re.compile(self._options.topic_pattern)
        return tuple(row["topic"] for row in self._admin.topics() if wanted.fullmatch(row["topic"]))

    def spans(self, topic: str) -> list[QueueSpan]:
        """Return the current offsets of the queues of *topic* that are read."""
        rows = self._admin.offsets(topic)
        return self._wanted(topic, [(row.queue, row.min_offset, row.max_offset) for row in rows])

    def now(self, topic: str) -> TopicNow:
        """Return *topic* and the current offsets of its queues that are read."""
        found = self._admin.topic(topic)
        rows = [(row["queue"], row["min_offset"], row["max_offset"]) for row in found["offsets"]]
        return TopicNow(topic=topic, created_ms=found["created_at"], spans=tuple(self._wanted(topic, rows)))

    def offsets_at(self, topic: str, time_ms: int) -> dict[str, int]:
        """Return the first offset of each queue that was visible at *time_ms* or later."""
        return self._admin.offsets_at(topic, time_ms)

    def committed(self, topic: str) -> dict[str, int]:
        """Return the offsets that the group has committed; none before it is declared."""
        try:
            return self._admin.group_offsets(self._options.group, topic)
        except GroupNotFound:
            return {}

    def pin(self, topic: str, offsets: Mapping[str, int]) -> dict[str, int]:
        """Commit *offsets* of queues in which the group has not begun; return all committed ones.

        A group that does not exist is declared.
        """
        committed = self.committed(topic)
        missing = {queue: offset for queue, offset in offsets.items() if queue not in committed}
        if not missing:
            return committed
        try:
            self.commit(topic, missing)
        except GroupNotFound:
            self._admin.create_group(self._options.group)
            self.commit(topic, missing)
        return committed | missing

    def commit(self, topic: str, offsets: Mapping[str, int]) -> None:
        """Commit the group's *offsets*."""
        if offsets:
            self._admin.commit_offsets(self._options.group, topic, offsets)

    def row_size_bytes(self, ranges: Sequence[QueueRange]) -> float:
        """Return the mean stored size of the first records of the longest of *ranges*; 0 if there
        is none to read.
        """
        if not ranges:
            return 0
        found = max(ranges, key=lambda each: each.rows)
        end = min(found.end, found.start + _SAMPLED_ROWS)
        pages = self._admin.pull_records(found.topic, found.queue, found.start, end, max_bytes=_SAMPLED_SIZE_MAX_BYTES)
        page = next(iter(pages), None)
        return len(page.data) / len(record_starts(page.data)) if page else 0

    def _wanted(self, topic: str, rows: Sequence[tuple[str, int, int]]) -> list[QueueSpan]:
        assigned = self._options.assigned.get(topic)
        there = {queue for queue, *_ in rows}
        for queue in assigned or ():
            if queue not in there:
                missing = QueueNotFound(queue=queue, topic=topic)
                raise OptionError(f"assign: {missing}")
        return [
            QueueSpan(topic=topic, queue=queue, min_offset=least, max_offset=end)
            for queue, least, end in rows
            if assigned is None or queue in assigned
        ]
