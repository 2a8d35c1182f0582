"""The ranges of the next run: from where the archive ends to where the queues end now.

Ranges are cut at multiples of the rows for one file, so that later runs cut at the same offsets.
"""

from collections.abc import Iterable, Mapping, Sequence

from tern_jobs.archive.manifests import ArchivedRange, Chain, PlannedRange
from tern_jobs.archive.writing import skipped_range
from tern_jobs.frame.outcome import JobFailed
from tern_spark.ranges import QueueSpan


def plan_archive(
    spans: Iterable[QueueSpan], ends: Mapping[tuple[str, str], int], *, rows_max: int
) -> list[PlannedRange]:
    """Return the ranges of at most *rows_max* offsets that *spans* have beyond *ends*.

    JobFailed when a queue ends before its archive: that is another topic of the same name.
    """
    planned: list[PlannedRange] = []
    for span in spans:
        start = max(ends.get((span.topic, span.queue), span.min_offset), span.min_offset)
        if span.max_offset < ends.get((span.topic, span.queue), 0):
            raise JobFailed(
                "The topic is another one",
                f"{span.queue} of '{span.topic}' ends at {span.max_offset}, its archive at "
                f"{ends[span.topic, span.queue]}: the topic was deleted and made again. Archive it to another place.",
            )
        while start < span.max_offset:
            end = min((start // rows_max + 1) * rows_max, span.max_offset)
            planned.append(PlannedRange(topic=span.topic, queue=span.queue, start=start, end=end))
            start = end
    return planned


def check_same(known: Mapping[str, int], found: Mapping[str, int]) -> None:
    """Raise JobFailed when a topic was deleted and made again. *known*, *found*: when topics were
    made.
    """
    for topic, created_ms in found.items():
        if known.get(topic, created_ms) != created_ms:
            raise JobFailed(
                "The topic is another one",
                f"'{topic}' was deleted and made again since it was archived. Archive it to another place.",
            )


def lost_ranges(spans: Iterable[QueueSpan], ends: Mapping[tuple[str, str], int]) -> list[ArchivedRange]:
    """Return the ranges that were deleted at the broker before this run, which continues *ends*."""
    return [
        skipped_range(span.topic, span.queue, ends[span.topic, span.queue], span.min_offset)
        for span in spans
        if span.min_offset > ends.get((span.topic, span.queue), span.min_offset)
    ]


def join_faults(planned: Sequence[PlannedRange], written: Sequence[Sequence[ArchivedRange]]) -> list[str]:
    """Return a line for each planned range that its written ranges do not cover exactly."""
    faults = []
    for plan, parts in zip(planned, written, strict=True):
        edges = [plan.start, *(part.end for part in parts)]
        if [part.start for part in parts] != edges[:-1] or edges[-1] != plan.end:
            faults.append(f"{plan.queue} of '{plan.topic}': {plan.start} to {plan.end} came back as {edges}")
    return faults


def chain_or_fail(chain: Chain) -> Chain:
    """Return *chain* when it has no fault. JobFailed otherwise."""
    if chain.faults:
        raise JobFailed("The archive is damaged", f"{chain.faults[0]}. `ternmq spark run verify` tells everything.")
    return chain
