"""The driver's part of a stream: its begin, the end of each batch, the tasks of a range.

PySpark's calls come in an order that its API does not promise (see `reader.py`): each answer here
follows from the arguments and the cluster. What an instance keeps saves calls, or is the time of
its last batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tern_spark.options import OptionError, ReadOptions
from tern_spark.planning.bounds import check_names, start_of
from tern_spark.planning.catalog import Catalog, TopicNow
from tern_spark.planning.plan import marks_of, size_of, warn_of_skipped
from tern_spark.planning.tasks import Task, divide
from tern_spark.ranges import QueueRange
from tern_spark.stream import admission
from tern_spark.stream.admission import Waiting
from tern_spark.stream.offsets import CheckpointMismatch, StreamOffsets, TopicOffsets
from tern_wire.errors import OffsetExpired, TopicNotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What Spark allows a batch: all there is, or at most so many rows or bytes; 0 is no limit."""

    is_all: bool = False
    rows_max: int = 0
    bytes_max: int = 0


class StreamPlanner:
    """Plans the batches of one query. Owner: the driver's reader."""

    def __init__(self, options: ReadOptions, catalog: Catalog, now_ms: Callable[[], int]) -> None:
        self._options, self._catalog, self._now_ms = options, catalog, now_ms
        self._initial: StreamOffsets | None = None
        self._target: Sequence[TopicNow] | None = None
        self._known: StreamOffsets | None = None
        self._committed: dict[str, Mapping[str, int]] = {}
        self._last_batch_ms: int | None = None

    def initial(self) -> StreamOffsets:
        """Return where the query begins, the same at every call.

        With a group it is pinned: a queue in which the group has begun begins there, and in all
        others the group begins now.
        """
        if self._initial is None:
            topics = self._describe(())
            spans = [span for topic in topics for span in topic.spans]
            check_names("startingOffsets", self._options.starting, spans)
            marks = marks_of(self._options, self._catalog, spans, self._now_ms())
            found: dict[str, TopicOffsets] = {}
            for topic in topics:
                begun = self._catalog.committed(topic.topic) if self._options.group else {}
                starts = {
                    span.queue: begun[span.queue] if span.queue in begun else start_of(span, self._options, marks)
                    for span in topic.spans
                }
                self._check_starts(topic, starts)
                if self._options.group:
                    pinned = self._catalog.pin(topic.topic, starts)
                    starts = {queue: pinned[queue] for queue in starts}
                    self._committed[topic.topic] = starts
                found[topic.topic] = TopicOffsets(created_at=topic.created_ms, queues=starts)
            self._initial = found
        return self._initial

    def freeze(self) -> None:
        """Take the ends of now as those of the query: it reads up to them, and no further."""
        self._target = self._describe(())

    def latest(self, start: StreamOffsets, limit: Limit) -> StreamOffsets:
        """Return the end of the batch that begins at *start*; *start* itself if there is none.

        All before *start* has been processed: it is committed under the group. Spark asks once more
        after the last batch, so that one is committed, too.
        """
        now = self._describe(tuple(start))
        for topic in now:
            self._check_identity(topic, start.get(topic.topic))
        self._commit(start, {topic.topic: topic.created_ms for topic in now})
        ends = self._target if self._target is not None else now
        self._known = {topic.topic: _ends_of(topic) for topic in ends}
        begins = {topic.topic: _begins_of(topic, start.get(topic.topic)) for topic in ends}
        waiting = [
            Waiting(topic=topic.topic, queue=span.queue, start=begin, end=max(begin, span.max_offset))
            for topic in ends
            for span in topic.spans
            for begin in (begins[topic.topic][span.queue],)
        ]
        waiting_rows = sum(each.rows for each in waiting)
        if not waiting_rows or self._is_held(waiting_rows, limit):
            return start
        self._last_batch_ms = self._now_ms()
        return self._end(start, ends, begins, waiting, self._admitted([each for each in waiting if each.rows], limit))

    def known(self) -> StreamOffsets | None:
        """Return the ends that the last call of `latest` found; None before the first."""
        return self._known

    def tasks(self, start: StreamOffsets, end: StreamOffsets) -> list[Task]:
        """Return the tasks of a batch, which may be one of an earlier run that this one replays."""
        ranges: list[QueueRange] = []
        for topic, ended in end.items():
            begun = start.get(topic)
            queues = begun.queues if begun and begun.created_at == ended.created_at else {}
            for queue, offset in ended.queues.items():
                begin = queues.get(queue, ended.began.get(queue, 0))
                if begin < offset:
                    ranges.append(QueueRange(topic=topic, queue=queue, start=begin, end=offset))
        return divide(ranges, self._options, size_of(self._options, self._catalog, tuple(ranges)))

    def _describe(self, begun: tuple[str, ...]) -> list[TopicNow]:
        found: list[TopicNow] = []
        for topic in self._catalog.topics():
            try:
                found.append(self._catalog.now(topic))
            except TopicNotFound as error:
                if topic in begun:
                    raise CheckpointMismatch(f"Topic '{topic}', which the stream reads, was deleted.") from error
                raise
        return found

    def _check_starts(self, topic: TopicNow, starts: dict[str, int]) -> None:
        """Raise unless *starts* are in the queues; move deleted ones if that is accepted."""
        skipped_rows = 0
        for span in topic.spans:
            offset = starts[span.queue]
            if offset > span.max_offset:
                raise OptionError(
                    f"startingOffsets: {offset} is beyond the end of queue {span.queue} of topic '{topic.topic}', "
                    f"which is at {span.max_offset}."
                )
            if offset < span.min_offset:
                if self._options.fail_on_data_loss:
                    raise OffsetExpired(topic=topic.topic, queue=span.queue, offset=offset, min_offset=span.min_offset)
                starts[span.queue] = span.min_offset
                skipped_rows += span.min_offset - offset
        warn_of_skipped(skipped_rows, f"in front of the stream, in topic '{topic.topic}',")

    def _check_identity(self, topic: TopicNow, begun: TopicOffsets | None) -> None:
        if begun is None or begun.created_at == topic.created_ms or not self._options.fail_on_data_loss:
            return
        raise CheckpointMismatch(
            f"Topic '{topic.topic}' was deleted and made again since the stream read it; its offsets begin anew. "
            "Begin with a new checkpoint, or set failOnDataLoss to false to go on at its first message."
        )

    def _commit(self, start: StreamOffsets, created_ms: Mapping[str, int]) -> None:
        if not self._options.group:
            return
        for topic, begun in start.items():
            is_there = created_ms.get(topic) == begun.created_at
            if is_there and self._committed.get(topic) != begun.queues:
                self._catalog.commit(topic, begun.queues)
                self._committed[topic] = begun.queues

    def _is_held(self, waiting_rows: int, limit: Limit) -> bool:
        least = self._options.rows_per_trigger_min
        if limit.is_all or self._target is not None or waiting_rows >= least or self._last_batch_ms is None:
            return False
        return self._now_ms() - self._last_batch_ms < self._options.trigger_delay_max_ms

    def _admitted(self, waiting: Sequence[Waiting], limit: Limit) -> dict[tuple[str, str], int]:
        rows = [each.rows for each in waiting]
        if not limit.is_all and limit.rows_max:
            rows = self._admit(waiting, limit.rows_max)
        elif not limit.is_all and limit.bytes_max:
            rows = self._within(waiting, limit.bytes_max)
        return {(each.topic, each.queue): taken for each, taken in zip(waiting, rows, strict=True)}

    def _within(self, waiting: Sequence[Waiting], size_max_bytes: int) -> list[int]:
        """Return the rows of a batch of at most *size_max_bytes*, or of one message.

        Means of what waits tell how many rows may fit; then those are measured, and cut if they do
        not.
        """
        budget = [size_max_bytes] * len(waiting)
        measured = self._catalog.measure([_first(each, each.rows) for each in waiting], budget)
        means = [
            found.size_bytes / (found.end - each.start) if found.end > each.start else size_max_bytes + 1
            for found, each in zip(measured, waiting, strict=True)
        ]
        if self._options.admission in {"oldest", "aligned"}:  # each admission asks the broker: one is enough
            rows = self._admit(waiting, max(1, int(size_max_bytes / max(means))))
        else:
            rows = admission.within_bytes(waiting, size_max_bytes, means, partial(self._admit, waiting))
        ranges = [_first(each, taken) for each, taken in zip(waiting, rows, strict=True)]
        sizes = [found.size_bytes for found in self._catalog.measure(ranges)]
        if sum(sizes) <= size_max_bytes or sum(rows) == 1:
            return rows
        shares = [size * size_max_bytes // sum(sizes) for size in sizes]
        fitting = self._catalog.measure(ranges, shares)
        taken = [found.end - each.start for found, each in zip(fitting, waiting, strict=True)]
        return taken if any(taken) else self._admit(waiting, 1)

    def _admit(self, waiting: Sequence[Waiting], rows_max: int) -> list[int]:
        match self._options.admission:
            case "even":
                return admission.even(waiting, rows_max)
            case "oldest":
                return admission.oldest(waiting, rows_max, partial(self._offsets_at, waiting), self._now_ms())
            case "aligned":
                return admission.aligned(waiting, rows_max, partial(self._offsets_at, waiting), self._now_ms())
            case _:
                return admission.proportional(waiting, rows_max)

    def _offsets_at(self, waiting: Sequence[Waiting], time_ms: int) -> dict[tuple[str, str], int]:
        topics = sorted({each.topic for each in waiting})
        return {
            (topic, queue): offset
            for topic in topics
            for queue, offset in self._catalog.offsets_at(topic, time_ms).items()
        }

    def _end(
        self,
        start: StreamOffsets,
        ends: Sequence[TopicNow],
        begins: Mapping[str, Mapping[str, int]],
        waiting: Sequence[Waiting],
        rows: Mapping[tuple[str, str], int],
    ) -> StreamOffsets:
        # A topic that a pattern no longer finds keeps its offsets.
        found = {topic: TopicOffsets(created_at=old.created_at, queues=old.queues) for topic, old in start.items()}
        for topic in ends:
            old = start.get(topic.topic)
            known = old.queues if old and old.created_at == topic.created_ms else {}
            queues = dict(known)
            for each in waiting:
                if each.topic == topic.topic:
                    queues[each.queue] = each.start + rows.get((each.topic, each.queue), 0)
            began = {queue: offset for queue, offset in begins[topic.topic].items() if queue not in known}
            found[topic.topic] = TopicOffsets(created_at=topic.created_ms, queues=queues, began=began)
        return found


def _begins_of(topic: TopicNow, begun: TopicOffsets | None) -> dict[str, int]:
    """Return where a batch begins in each queue; in one that the stream has not met, at its first
    message.
    """
    known = begun.queues if begun and begun.created_at == topic.created_ms else {}
    return {span.queue: known.get(span.queue, span.min_offset) for span in topic.spans}


def _ends_of(topic: TopicNow) -> TopicOffsets:
    return TopicOffsets(created_at=topic.created_ms, queues={span.queue: span.max_offset for span in topic.spans})


def _first(waiting: Waiting, rows: int) -> QueueRange:
    return QueueRange(topic=waiting.topic, queue=waiting.queue, start=waiting.start, end=waiting.start + rows)
