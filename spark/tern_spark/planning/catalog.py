"""What the planner asks the cluster, in the driver: topics, ends of queues, a group's offsets.

A plan takes one request for each topic, and one more for each time or group in its options. Stored
bytes are asked for only where an option limits them; they are exact.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tern_client import BlockingAdmin, RetryPolicy
from tern_client.calls.documents import read_document
from tern_client.transport.exchange import Request
from tern_spark.options import OptionError, ReadOptions
from tern_spark.ranges import QueueRange, QueueSpan
from tern_wire.errors import GroupNotFound, InvalidField, OffsetMoved, QueueNotFound, UpgradeUnfinished
from tern_wire.limits import QUEUES_PER_TOPIC_MAX
from tern_wire.limits_reads import READ_PLAN_QUEUES_MAX, READ_PLAN_TOPICS_MAX
from tern_wire.paths import JSON, READ_PLAN_PATH

_PAUSE_MAX_MS = 5_000
# Queues of one commit: one topic may have more, in several broker groups, than one request takes.
_COMMIT_QUEUES_MAX = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNow:
    """A topic as it is now. A topic that was deleted and made again has a later *created_ms*."""

    topic: str
    created_ms: int
    spans: tuple[QueueSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The records of a range, up to *end*, have *size_bytes*."""

    end: int
    size_bytes: int


class _Admin(BlockingAdmin):
    """Adds the plan of a read, whose answer has sizes."""

    def measured_topics(self, document: dict[str, object]) -> list[dict[str, Any]]:
        """Return the topics of a plan, which changes nothing and may be repeated."""
        body = json.dumps(document).encode()
        request = Request("POST", READ_PLAN_PATH, (("Content-Type", JSON),), body, repeatable=True)
        topics: list[dict[str, Any]] = read_document(self._call(request))["topics"]
        return topics


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
        # All queues of each topic that was asked for: a plan counts them, too, if it names a few.
        self._queues: dict[str, int] = {}
        self.admin = _Admin(
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
        self.admin.close()

    @property
    def group(self) -> str:
        """The group of the options; empty for none."""
        return self._options.group

    def topics(self) -> tuple[str, ...]:
        """Return the topics of the read; those of a pattern, and all without a choice, as they are
        now.
        """
        chosen = self._options.topics or tuple(self._options.assigned)
        if chosen:
            return chosen
        wanted = re.compile(self._options.topic_pattern or ".*")
        return tuple(row["topic"] for row in self.admin.topics() if wanted.fullmatch(row["topic"]))

    def spans(self, topic: str) -> list[QueueSpan]:
        """Return the current offsets of the queues of *topic* that are read."""
        rows = self.admin.offsets(topic)
        return self._wanted(topic, [(row.queue, row.min_offset, row.max_offset) for row in rows])

    def now(self, topic: str) -> TopicNow:
        """Return *topic* and the current offsets of its queues that are read."""
        found = self.admin.topic(topic)
        rows = [(row["queue"], row["min_offset"], row["max_offset"]) for row in found["offsets"]]
        return TopicNow(topic=topic, created_ms=found["created_at"], spans=tuple(self._wanted(topic, rows)))

    def offsets_at(self, topic: str, time_ms: int) -> dict[str, int]:
        """Return the first offset of each queue that was visible at *time_ms* or later."""
        return self.admin.offsets_at(topic, time_ms)

    def committed(self, topic: str) -> dict[str, int]:
        """Return the offsets that the group has committed; none before it is declared."""
        try:
            return self.admin.group_offsets(self._options.group, topic)
        except GroupNotFound:
            return {}

    def pin(self, topic: str, offsets: Mapping[str, int]) -> dict[str, int]:
        """Commit *offsets* of queues in which the group has not begun; return all committed ones.

        A group that does not exist is declared. Where another query of the group begins at the same
        moment, the first one counts for both.
        """
        group = self._options.group
        while True:
            committed = self.committed(topic)
            missing = {queue: offset for queue, offset in offsets.items() if queue not in committed}
            if not missing:
                return committed
            try:
                for part in _parts_of(missing):
                    self.admin.commit_offsets(group, topic, part, expected=dict.fromkeys(part))
            except GroupNotFound:
                self.admin.create_group(group)
            except OffsetMoved:
                continue
            except (InvalidField, UpgradeUnfinished):
                # A proxy or a broker of the release before: it does not know that condition.
                self.commit(topic, missing)

    def commit(self, topic: str, offsets: Mapping[str, int]) -> None:
        """Commit the group's *offsets*."""
        for part in _parts_of(offsets):
            self.admin.commit_offsets(self._options.group, topic, part)

    def measure(self, ranges: Sequence[QueueRange], budgets_bytes: Sequence[int] = ()) -> list[Measured]:
        """Return the stored bytes of *ranges*; with a budget each, of the records that fit into it.

        The end is before that of the range where it is full, or too long to be measured at once.
        """
        by_topic: dict[str, list[int]] = {}
        for at, each in enumerate(ranges):
            by_topic.setdefault(each.topic, []).append(at)
        found = [Measured(end=each.start, size_bytes=0) for each in ranges]
        for part in _plans_of({topic: self._queues.get(topic, QUEUES_PER_TOPIC_MAX) for topic in by_topic}):
            asked = [_to_measure(topic, by_topic[topic], ranges, budgets_bytes) for topic in part]
            for told in self.admin.measured_topics({"topics": asked, "sizes": True}):
                rows = {row["queue"]: row for row in told["queues"]}
                for at in by_topic[told["topic"]]:
                    row = rows[ranges[at].queue]
                    found[at] = Measured(end=row["measured_to"], size_bytes=row["size_bytes"])
        return found

    def _wanted(self, topic: str, rows: Sequence[tuple[str, int, int]]) -> list[QueueSpan]:
        self._queues[topic] = len(rows)
        named = self._options.assigned.get(topic)
        assigned = None if named is None else frozenset(named)
        there = {queue for queue, *_ in rows}
        for queue in named or ():
            if queue not in there:
                missing = QueueNotFound(queue=queue, topic=topic)
                raise OptionError(f"assign: {missing}")
        return [
            QueueSpan(topic=topic, queue=queue, min_offset=least, max_offset=end)
            for queue, least, end in rows
            if assigned is None or queue in assigned
        ]


def _to_measure(
    topic: str, places: Sequence[int], ranges: Sequence[QueueRange], budgets_bytes: Sequence[int]
) -> dict[str, object]:
    asked: dict[str, object] = {
        "topic": topic,
        "begin": {ranges[at].queue: ranges[at].start for at in places},
        "end": {ranges[at].queue: ranges[at].end for at in places},
    }
    if budgets_bytes:
        asked["budget_bytes"] = {ranges[at].queue: budgets_bytes[at] for at in places}
    return asked


def _plans_of(queues: Mapping[str, int]) -> list[list[str]]:
    """Return the topics of each plan, by the number of their *queues*: as few plans as their limits
    allow.
    """
    plans: list[list[str]] = []
    room = 0
    for topic, count in queues.items():
        if not plans or count > room or len(plans[-1]) == READ_PLAN_TOPICS_MAX:
            plans.append([])
            room = READ_PLAN_QUEUES_MAX
        plans[-1].append(topic)
        room -= count
    return plans


def _parts_of(offsets: Mapping[str, int]) -> list[dict[str, int]]:
    pairs = list(offsets.items())
    return [dict(pairs[at : at + _COMMIT_QUEUES_MAX]) for at in range(0, len(pairs), _COMMIT_QUEUES_MAX)]
