"""The job `lag`: lag and skew of groups over a few samples, when they will have caught up, and the
hottest queues and keys.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import msgspec

from tern_jobs.frame.admin import chosen_groups, duration_argument, open_admin
from tern_jobs.frame.outcome import Bars, Cell, JobFailed, Lines, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.frame.topics import topic_options
from tern_jobs.reports.hot_keys import KeyCounts, keys_of
from tern_jobs.reports.lags import GroupLag, Sample, TopicTrend, fresh_ranges, trends
from tern_wire.errors import TernError

_COLUMNS = (
    "group",
    "topic",
    "queues",
    "lag",
    "lag ms",
    "in per s",
    "out per s",
    "drained in s",
    "skew",
    "hottest queue",
    "hottest key",
    "idle queues",
)
_KEY_COLUMNS = ("group", "topic", "key", "messages", "of the sample %", "sample")
_SAMPLES, _EVERY = 5, "2s"
# Rows whose keys are read, those with the most lag, and keys that are told of each.
_KEYED_MAX, _KEYS_SHOWN = 10, 5


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--groups", default="", help="groups, separated by commas; default: all")
    parser.add_argument("--samples", type=int, default=_SAMPLES, help=f"default {_SAMPLES}; 1: only how it is now")
    parser.add_argument("--every", type=duration_argument, default=_EVERY, help=f"between samples; default {_EVERY}")
    parser.add_argument("--no-keys", action="store_true", help="read no messages, and so name no hottest key")
    parser.add_argument("--lag-max", type=int, default=-1, help="exit code 1 when a group is further behind")


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """Take the samples in the driver: they are small."""
    del tasks
    if options.samples < 1:
        raise JobFailed("An argument is wrong", "--samples is 1 at least.", exit_code=2)
    samples: list[Sample] = []
    with open_admin(options) as admin:
        groups = chosen_groups(admin, options.groups)
        while True:
            found = [msgspec.convert(admin.lag(group), GroupLag) for group in groups]
            samples.append(Sample(clock.now_ms(), found))
            progress.tasks("samples", len(samples), options.samples)
            if len(samples) == options.samples:
                break
            clock.pause_s(options.every / 1_000)
    rows = trends(samples)
    keys, refused = ({}, "") if options.no_keys else keys_by_topic(rows, samples, options)
    now = samples[-1].groups
    faults = [
        f"group '{group.group}': {group.lag:,} messages behind, {options.lag_max:,} are allowed"
        for group in now
        if 0 <= options.lag_max < group.lag
    ]
    by_group = {group.group: [_lag_of(sample, group.group) for sample in samples] for group in now}
    most = sorted(by_group, key=lambda name: -by_group[name][-1])
    queues = sorted(
        (
            (queue.lag, f"{group.group}: {topic.topic} {queue.queue}")
            for group in now
            for topic in group.topics
            for queue in topic.queues
            if queue.lag
        ),
        reverse=True,
    )
    facts: dict[str, Cell] = {
        "groups": len(now),
        "samples": len(samples),
        "dead letters": sum(group.dead_letters for group in now),
    }
    hottest = [(name, *found) for name, counts in keys.items() for found in counts.top(1)]
    return Outcome(
        headline=f"{sum(group.lag for group in now):,} messages of {len(now)} groups are not settled."
        + (f" {len(faults)} groups are too far behind." if faults else ""),
        facts=facts | ({"keys were not read": refused} if refused else {}),
        tables=[
            Table(title="Lag by group and topic", columns=_COLUMNS, rows=[_row(row, keys) for row in rows]),
            Table(title="Keys of what waits or has just come", columns=_KEY_COLUMNS, rows=_key_rows(keys)),
        ],
        plots=[
            Lines(
                title="Lag by group",
                xs=[sample.at_ms for sample in samples],
                lines={name: by_group[name] for name in most},
                unit="messages",
            ),
            Bars(
                title="Lag by queue",
                labels=[name for _, name in queues],
                values=[lag for lag, _ in queues],
                unit="messages",
            ),
            Bars(
                title="The hottest key of each group and topic, of its sample",
                labels=[f"{group}: {topic} {key}" for (group, topic), key, _ in hottest],
                values=[100 * count / keys[name].rows for name, _, count in hottest],
                unit="%",
            ),
        ],
        faults=faults,
    )


def keys_by_topic(
    rows: Sequence[TopicTrend], samples: Sequence[Sample], options: Namespace
) -> tuple[dict[tuple[str, str], KeyCounts], str]:
    """Return the keys by group and topic, and why some could not be read; "" if all could."""
    found: dict[tuple[str, str], KeyCounts] = {}
    refused = ""
    for row in rows[:_KEYED_MAX]:
        ranges = fresh_ranges(samples, row.group, row.topic)
        try:
            found[row.group, row.topic] = keys_of(ranges, topic_options(options, row.topic))
        except TernError as error:
            # Lag may be seen by those who may not read, and the topic may be gone by now.
            if error.retryable:
                raise
            refused = f"{row.topic}: {error}"
    return found, refused


def _row(row: TopicTrend, keys: dict[tuple[str, str], KeyCounts]) -> tuple[Cell, ...]:
    counts = keys.get((row.group, row.topic))
    hottest = counts.top(1) if counts else []
    values: tuple[Cell, ...] = msgspec.structs.astuple(row)
    return (*values[:-1], hottest[0][0] if hottest else "", values[-1])


def _key_rows(keys: dict[tuple[str, str], KeyCounts]) -> list[tuple[Cell, ...]]:
    return [
        (group, topic, key, count, 100 * count / counts.rows, counts.rows)
        for (group, topic), counts in keys.items()
        for key, count in counts.top(_KEYS_SHOWN)
    ]


def _lag_of(sample: Sample, name: str) -> int:
    return sum(group.lag for group in sample.groups if group.group == name)


JOB = Job(
    name="lag",
    summary="Show lag and skew of groups, when they will have caught up, and the hottest queue and key.",
    description="""Rates are those between the first and the last sample. `drained in s` is empty when a group
does not catch up. `skew` is the lag of the fullest queue over the mean of all queues. Keys are those of
messages that wait or have just come, of the ten topics with the most lag: all of a small backlog, else a
sample of at most 16,384. A message with several keys counts for each.

  ternmq spark run lag --groups billing --samples 10 --every 5s --html lag.html
  ternmq spark run lag --samples 1 --lag-max 100000""",
    arguments=arguments,
    run=run,
)
