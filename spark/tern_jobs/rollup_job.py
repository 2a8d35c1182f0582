"""The job `rollup`: messages, bytes and born-to-store latency by topic, tag and minute."""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

from tern_jobs.frame.outcome import Bars, Lines, Outcome, Plot, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.frame.topics import topic_options
from tern_jobs.reports.latencies import percentile_ms
from tern_jobs.reports.minutes import Key, Sums, sum_range
from tern_spark.pages import ProxyPages
from tern_spark.ranges import QueueRange, split_ranges

_ROWS_PER_TASK = 1_000_000
_COLUMNS = ("topic", "tag", "minute", "messages", "stored_bytes", "p50 ms", "p95 ms", "p99 ms", "max ms")


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--topics", required=True, help="topics, separated by commas")
    parser.add_argument("--rows-per-task", type=int, default=_ROWS_PER_TASK, help=f"default {_ROWS_PER_TASK:,}")
    parser.add_argument(
        "--latency-max-ms", type=int, default=0, help="exit code 1 when the 99th percentile of a minute is above"
    )


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """Sum up all ranges of the topics in tasks."""
    del clock  # minutes are those of the messages
    progress.step("plans")
    reading = topic_options(options, options.topics)
    with ProxyPages.of(reading) as pages:
        spans = [span for topic in reading.topics for span in pages.spans(topic)]
    whole = [
        QueueRange(topic=span.topic, queue=span.queue, start=span.min_offset, end=span.max_offset)
        for span in spans
        if span.max_offset > span.min_offset
    ]
    ranges = split_ranges(whole, rows_max=max(options.rows_per_task, 1), partitions_min=0)
    sums: dict[Key, Sums] = {}
    for part in tasks.map("sums up", partial(sum_range, options=reading), ranges):
        for key, found in part.items():
            sums.setdefault(key, Sums()).add(found)
    rows = [_row(key, sums[key]) for key in sorted(sums)]
    limit_ms = options.latency_max_ms
    faults = [
        f"'{row[0]}', tag '{row[1]}', {row[2]}: 99 % of the messages took up to {row[7]} ms, {limit_ms} are allowed"
        for row in rows
        if limit_ms and row[7] > limit_ms
    ]
    messages = sum(found.messages for found in sums.values())
    minutes = len({minute for _, _, minute in sums})
    return Outcome(
        headline=f"{messages:,} messages in {minutes:,} minutes."
        + (f" {len(faults)} of {len(rows)} rows are slower than allowed." if faults else ""),
        facts={"messages": messages, "stored_bytes": sum(found.stored_bytes for found in sums.values())},
        tables=[Table(title="By topic, tag and minute", columns=_COLUMNS, rows=rows)],
        plots=_plots(sums),
        faults=faults,
    )


def _row(key: Key, sums: Sums) -> tuple[str, str, str, int, int, int, int, int, int]:
    topic, tag, minute = key
    at = datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")
    p50, p95, p99, most = (percentile_ms(sums.latencies, share) for share in (0.5, 0.95, 0.99, 1.0))
    return topic, tag, at, sums.messages, sums.stored_bytes, p50, p95, p99, most


def _plots(sums: Mapping[Key, Sums]) -> list[Plot]:
    """Return messages by minute and topic, latency by minute, and messages by tag."""
    topics = sorted({topic for topic, _, _ in sums})
    by_minute: dict[int, Counter[str]] = {}
    latencies: dict[int, Counter[int]] = {}
    by_tag: Counter[str] = Counter()
    for (topic, tag, minute), found in sums.items():
        by_minute.setdefault(minute, Counter())[topic] += found.messages
        latencies.setdefault(minute, Counter()).update(found.latencies)
        by_tag[tag or "(no tag)"] += found.messages
    minutes = sorted(by_minute)
    xs = [minute * 60_000 for minute in minutes]
    top = by_tag.most_common()
    return [
        Lines(
            title="Messages a minute",
            xs=xs,
            lines={topic: [by_minute[minute][topic] for minute in minutes] for topic in topics},
            unit="messages",
        ),
        Lines(
            title="Latency from the producer's proxy to the broker, ms",
            xs=xs,
            lines={
                name: [percentile_ms(latencies[minute], share) for minute in minutes]
                for name, share in (("median", 0.5), ("99 %", 0.99))
            },
            unit="ms",
        ),
        Bars(title="Messages by tag", labels=[tag for tag, _ in top], values=[n for _, n in top], unit="messages"),
    ]


JOB = Job(
    name="rollup",
    summary="Count messages, bytes and latency by topic, tag and minute.",
    description="""The minute is that of the store time. The latency is from the arrival at the producer's
proxy to the store time at the broker's leader.

  ternmq spark run rollup --topics orders --html rollup.html
  ternmq spark run rollup --topics orders,payments --latency-max-ms 500""",
    arguments=arguments,
    run=run,
)
