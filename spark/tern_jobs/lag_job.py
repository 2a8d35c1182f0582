"""The job `lag`: lag and skew of groups over a few samples, and when they will have caught up."""

from argparse import ArgumentParser, Namespace

import msgspec

from tern_jobs.frame.admin import chosen_groups, duration_argument, open_admin
from tern_jobs.frame.outcome import Bars, JobFailed, Lines, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.reports.lags import GroupLag, Sample, trends

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
    "idle queues",
)
_SAMPLES, _EVERY = 5, "2s"


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--groups", default="", help="groups, separated by commas; default: all")
    parser.add_argument("--samples", type=int, default=_SAMPLES, help=f"default {_SAMPLES}; 1: only how it is now")
    parser.add_argument("--every", type=duration_argument, default=_EVERY, help=f"between samples; default {_EVERY}")
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
    return Outcome(
        headline=f"{sum(group.lag for group in now):,} messages of {len(now)} groups are not settled."
        + (f" {len(faults)} groups are too far behind." if faults else ""),
        facts={"groups": len(now), "samples": len(samples), "dead letters": sum(group.dead_letters for group in now)},
        tables=[
            Table(title="Lag by group and topic", columns=_COLUMNS, rows=[msgspec.structs.astuple(row) for row in rows])
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
        ],
        faults=faults,
    )


def _lag_of(sample: Sample, name: str) -> int:
    return sum(group.lag for group in sample.groups if group.group == name)


JOB = Job(
    name="lag",
    summary="Show lag and skew of groups, when they will have caught up, and the hottest queue.",
    description="""Rates are those between the first and the last sample. `drained in s` is empty when a group
does not catch up. `skew` is the lag of the fullest queue over the mean of all queues.

  ternmq spark run lag --groups billing --samples 10 --every 5s --html lag.html
  ternmq spark run lag --samples 1 --lag-max 100000""",
    arguments=arguments,
    run=run,
)
