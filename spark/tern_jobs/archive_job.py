"""The job `archive`: topics to Parquet, incremental, with a manifest for each run."""

import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import (
    ARCHIVE_FOLDERS,
    VERSION,
    ArchivedRange,
    Chain,
    Manifest,
    Plan,
    current_ranges,
    drop_plans,
    known_topics,
    next_offsets,
    publish_manifest,
    read_chain,
    read_plan,
    write_plan,
)
from tern_jobs.archive.planning import chain_or_fail, check_same, join_faults, lost_ranges, plan_archive
from tern_jobs.archive.writing import ArchiveTask, archive_range
from tern_jobs.catalog.publishing import Tables, check_catalog, publish_tables, tables_shown
from tern_jobs.frame.admin import open_admin
from tern_jobs.frame.outcome import Bars, JobFailed, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.frame.topics import topic_options
from tern_spark.leases import kept
from tern_spark.options import ReadOptions
from tern_spark.pages import ProxyPages
from tern_spark.ranges import QueueRange, QueueSpan

_ROWS_PER_FILE = 1_000_000
# Retention waits for the tasks; a job that was killed holds it for so long.
LEASE_MS = 600_000


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--topics", required=True, help="topics, separated by commas")
    parser.add_argument("--to", required=True, metavar="DEST", help="folder, or a URI such as s3://bucket/archive")
    parser.add_argument(
        "--rows-per-file", type=int, default=_ROWS_PER_FILE, help=f"most rows in a file; default {_ROWS_PER_FILE:,}"
    )
    parser.add_argument(
        "--allow-gaps",
        action="store_true",
        help="go on when retention was faster than the archive, and record the offsets that are lost",
    )
    parser.add_argument(
        "--catalog",
        action="store_true",
        help="also make a Delta table of each topic at DEST/data/TOPIC; later runs continue it",
    )


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """Finish the plan of a killed run, if there is one; then archive what is new."""
    if options.rows_per_file < 1:
        raise JobFailed("An argument is wrong", "--rows-per-file is 1 at least.", exit_code=2)
    reading = topic_options(options, options.topics, fail_on_data_loss=not options.allow_gaps)
    folder = ArchiveFolder(options.to)
    wanted = list(reading.topics) if options.catalog else []
    if options.catalog:
        check_catalog(folder, wanted)
    chain = chain_or_fail(read_chain(folder))
    written: list[ArchivedRange] = []
    while True:
        plan = read_plan(folder, len(chain.manifests) + 1)
        is_resumed = plan is not None and plan.previous == chain.head
        lost: list[ArchivedRange] = []
        if plan is None or not is_resumed:
            plan, lost = _new_plan(reading, chain, options, progress)
        if not plan.ranges and not lost:
            break
        attempt = uuid.uuid4().hex
        if is_resumed:
            progress.step(f"finishes the plan of run {plan.number}, which was interrupted")
            for place in ARCHIVE_FOLDERS:
                folder.drop_parts(place)
        else:
            write_plan(folder, plan, attempt)
        task = partial(archive_range, options=reading, uri=options.to)
        with kept(_queue_ranges(plan), LEASE_MS, partial(open_admin, options)):
            items = [
                ArchiveTask(planned=found, attempt=attempt, created_ms=plan.created_ms.get(found.topic))
                for found in plan.ranges
            ]
            parts = tasks.map("archives", task, items)
        if faults := join_faults(plan.ranges, parts):
            raise JobFailed("A task returned other ranges than planned", faults[0])
        added = lost + [part for found in parts for part in found]
        manifest = Manifest(
            version=VERSION,
            number=plan.number,
            previous=plan.previous,
            made_ms=clock.now_ms(),
            ranges=added,
            created_ms=plan.created_ms,
        )
        head = publish_manifest(folder, manifest, attempt)
        drop_plans(folder, plan.number)
        chain = Chain(manifests=[*chain.manifests, manifest], head=head, faults=[])
        written += added
        if not is_resumed:
            break
    progress.step("brings tables up to date")
    return _outcome(written, chain, publish_tables(folder, chain.manifests, wanted))


def _new_plan(
    reading: ReadOptions, chain: Chain, options: Namespace, progress: Progress
) -> tuple[Plan, list[ArchivedRange]]:
    progress.step("plans")
    spans: list[QueueSpan] = []
    with ProxyPages.of(reading) as pages:
        created_ms = {topic: pages.created_ms(topic) for topic in reading.topics}
        for topic in reading.topics:
            spans += pages.spans(topic)
    check_same(known_topics(chain.manifests), created_ms)
    ends = next_offsets(current_ranges(chain.manifests))
    lost = lost_ranges(spans, ends)
    if lost and not options.allow_gaps:
        first = lost[0]
        raise JobFailed(
            "Messages were deleted before they were archived",
            f"{first.queue} of '{first.topic}': offset {first.start} was wanted, the oldest one kept is {first.end}. "
            "--allow-gaps goes on and records the gap.",
        )
    ranges = plan_archive(spans, ends, rows_max=options.rows_per_file)
    plan = Plan(number=len(chain.manifests) + 1, previous=chain.head, ranges=ranges, created_ms=created_ms)
    return plan, lost


def _queue_ranges(plan: Plan) -> list[QueueRange]:
    """Return the ranges of *plan*, each queue's joined into one."""
    joined: dict[tuple[str, str], QueueRange] = {}
    for found in plan.ranges:
        old = joined.get((found.topic, found.queue))
        start, end = (min(old.start, found.start), max(old.end, found.end)) if old else (found.start, found.end)
        joined[found.topic, found.queue] = QueueRange(topic=found.topic, queue=found.queue, start=start, end=end)
    return list(joined.values())


def _outcome(written: Sequence[ArchivedRange], chain: Chain, published: Tables) -> Outcome:
    by_topic: dict[str, list[ArchivedRange]] = {}
    by_day: dict[str, int] = {}
    for found in written:
        by_topic.setdefault(found.topic, []).append(found)
        if found.file:
            day = found.file.split("/")[2]
            by_day[day] = by_day.get(day, 0) + found.rows
    rows = [
        (
            topic,
            len({found.queue for found in ranges}),
            sum(1 for found in ranges if found.file),
            sum(found.rows for found in ranges),
            sum(found.stored_bytes for found in ranges),
            sum(found.file_bytes for found in ranges),
            sum(found.end - found.start for found in ranges if found.is_skipped),
        )
        for topic, ranges in sorted(by_topic.items())
    ]
    columns = ("topic", "queues", "files", "rows", "stored_bytes", "file_bytes", "lost offsets")
    total = sum(found.rows for found in written)
    number = len(chain.manifests)
    lost = sum(found.end - found.start for found in written if found.is_skipped)
    headline = f"{total:,} rows archived by manifest {number}." if written else "Nothing is new."
    if lost:
        headline += f" {lost:,} offsets were deleted before; the manifest records them."
    return Outcome(
        headline=headline,
        facts={"manifest": number, "head": chain.head, "rows": total, "lost": lost, "tables": len(published.right)},
        tables=[Table(title="Archived", columns=columns, rows=rows), tables_shown(published)],
        plots=[
            Bars(
                title="Rows by topic",
                labels=[str(row[0]) for row in rows],
                values=[row[3] for row in rows],
                unit="rows",
            ),
            Bars(
                title="Rows by day", labels=sorted(by_day), values=[by_day[day] for day in sorted(by_day)], unit="rows"
            ),
        ]
        if rows
        else [],
        faults=published.faults,
    )


JOB = Job(
    name="archive",
    summary="Copy topics to Parquet by topic and day; continue where the last run ended.",
    description="""Tasks write the files themselves; one manifest then makes them part of the archive. A run
that was killed has added nothing, and the next one finishes it. One archive run at a
time writes to a destination.

  ternmq spark run archive --topics orders,payments --to /archive
  ternmq spark run archive --topics orders --to /archive --catalog
  ternmq spark run archive --topics orders --to 's3://bucket/archive?endpoint_override=http://127.0.0.1:9000'""",
    arguments=arguments,
    run=run,
)
