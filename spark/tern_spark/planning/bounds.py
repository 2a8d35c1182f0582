"""Where a read begins and ends in each queue. Pure: spans, places and looked-up offsets in.

A place of a time or of a group needs offsets that only the cluster knows. `lookups_of` names what
to ask, and `Marks` has the answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tern_spark.options import EARLIEST, LATEST, Ago, At, AtTimes, OptionError, Place, ReadOptions, Shift
from tern_spark.ranges import QueueRange, QueueSpan
from tern_wire.errors import OffsetExpired


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Offsets from the cluster: *at*, by topic and time, and *committed* ones by topic."""

    now_ms: int = 0
    at: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
    committed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The ranges of a read, empty ones left out, and the number of deleted rows before them."""

    ranges: tuple[QueueRange, ...]
    skipped_rows: int = 0


def times_of(place: Place, topic: str, now_ms: int) -> set[int]:
    """Return the times whose offsets in *topic* the place needs."""
    if isinstance(place, Ago):
        return {max(0, now_ms - place.duration_ms)}
    if isinstance(place, At):
        return {place.time_ms}
    return set(place.times.get(topic, {}).values()) if isinstance(place, AtTimes) else set()


def check_names(option: str, place: Place, spans: Sequence[QueueSpan]) -> None:
    """Raise OptionError unless a document of *place* names exactly the queues of *spans*.

    A typo in a document must not silently read nothing, or everything.
    """
    if not isinstance(place, dict | AtTimes):
        return
    documents: Mapping[str, Mapping[str, int]] = place if isinstance(place, dict) else place.times
    there: dict[str, set[str]] = {}
    for span in spans:
        there.setdefault(span.topic, set()).add(span.queue)
    for topic in documents.keys() | there.keys():
        named = documents.get(topic, {})
        queues = there.get(topic, set())
        covered = queues if "" in named else named.keys()
        _compare(option, f"topic '{topic}'", named.keys() - {""}, covered, queues)


def _compare(option: str, where: str, named: Iterable[str], covered: Iterable[str], there: set[str]) -> None:
    missing, extra = sorted(there - set(covered)), sorted(set(named) - there)
    if extra:
        raise OptionError(
            f"{option}: {where} has no queue {', '.join(extra)}. It has {', '.join(sorted(there)) or 'none'}."
        )
    if missing:
        raise OptionError(f"{option}: {where} lacks {', '.join(missing)}. Give -2 (earliest) or -1 (latest) for it.")


def start_of(span: QueueSpan, options: ReadOptions, marks: Marks) -> int:
    """Return the first offset of a read in *span*, possibly a deleted one.

    OptionError where no message is as young as `startingTimestamp` asks.
    """
    offset = _resolve(options.starting, span, marks)
    is_timed = isinstance(options.starting, At | AtTimes)
    if is_timed and offset >= span.max_offset and options.late_start == "error":
        raise OptionError(
            f"startingTimestamp: queue {span.queue} of topic '{span.topic}' has no message from then on. "
            "Set startingOffsetsByTimestampStrategy to 'latest' to begin at its end."
        )
    return offset


def bounds_of(spans: Sequence[QueueSpan], options: ReadOptions, marks: Marks) -> Bounds:
    """Return the ranges of a batch over *spans*.

    OptionError when the offsets do not name exactly the existing queues, or lie outside them;
    OffsetExpired when the start was deleted and `failOnDataLoss` is true.
    """
    check_names("startingOffsets", options.starting, spans)
    check_names("endingOffsets", options.ending, spans)
    ranges: list[QueueRange] = []
    skipped_rows = 0
    for span in spans:
        start = start_of(span, options, marks)
        found, lost_rows = _range_of(span, start, _resolve(options.ending, span, marks), options)
        skipped_rows += lost_rows
        ranges += [found] if found.rows else []
    return Bounds(ranges=tuple(ranges), skipped_rows=skipped_rows)


def _range_of(span: QueueSpan, start: int, end: int, options: ReadOptions) -> tuple[QueueRange, int]:
    where = f"queue {span.queue} of topic '{span.topic}'"
    if start > span.max_offset or end > span.max_offset:
        option, offset = ("startingOffsets", start) if start > span.max_offset else ("endingOffsets", end)
        raise OptionError(f"{option}: {offset} is beyond the end of {where}, which is at {span.max_offset}.")
    skipped_rows = 0
    if start < span.min_offset:
        if options.fail_on_data_loss:
            raise OffsetExpired(topic=span.topic, queue=span.queue, offset=start, min_offset=span.min_offset)
        skipped_rows = max(0, min(span.min_offset, end) - start)
        start = span.min_offset
        # The whole range may be deleted; then there is nothing to read.
        end = max(end, start)
    if end < start:
        if isinstance(options.starting, dict) and isinstance(options.ending, dict):
            raise OptionError(f"endingOffsets: {end} is before startingOffsets, {start}, in {where}.")
        end = start  # a time or a group that is behind the end: there is nothing to read in this queue
    return QueueRange(topic=span.topic, queue=span.queue, start=start, end=end), skipped_rows


def _resolve(place: Place, span: QueueSpan, marks: Marks) -> int:
    if isinstance(place, Shift):
        return max(span.min_offset, span.max_offset - place.rows)
    if isinstance(place, Ago | At | AtTimes):
        return _at(place, span, marks)
    if place == "group":
        return marks.committed.get(span.topic, {}).get(span.queue, span.min_offset)
    chosen = place if isinstance(place, str) else place[span.topic][span.queue]
    if chosen in {"earliest", EARLIEST}:
        return span.min_offset
    if chosen in {"latest", LATEST}:
        return span.max_offset
    return int(chosen)


def _at(place: Ago | At | AtTimes, span: QueueSpan, marks: Marks) -> int:
    if isinstance(place, AtTimes):
        times = place.times[span.topic]
        time_ms = times[span.queue] if span.queue in times else times[""]
    else:
        (time_ms,) = times_of(place, span.topic, marks.now_ms)
    # A queue that began after the span was told may have another end.
    return min(marks.at[span.topic, time_ms].get(span.queue, span.max_offset), span.max_offset)
