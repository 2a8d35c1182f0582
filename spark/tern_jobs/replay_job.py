"""The job `replay`: an archive, or a time of topics, back into a topic, exactly once."""

import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import current_ranges, read_chain
from tern_jobs.archive.planning import chain_or_fail
from tern_jobs.frame.admin import open_admin
from tern_jobs.frame.outcome import Bars, JobFailed, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.replay.arguments import arguments, check_arguments, choice_of, reading_of, writing_of
from tern_jobs.replay.planning import check_continued, check_topics, plan_of_archive, plan_of_topics
from tern_jobs.replay.plans import UNKNOWN_ROWS, Choice, ReplayNote, ReplayPlan, ReplayState
from tern_jobs.replay.slices import Shelf, Slice, slices_of, tasks_of, topics_of
from tern_jobs.replay.staging import StageTask, stage_slices
from tern_spark.leases import kept
from tern_spark.options import ReadOptions
from tern_spark.planning.catalog import Catalog
from tern_spark.ranges import QueueRange
from tern_spark.sink.options import WriteOptions
from tern_spark.sink.publishing import publish
from tern_spark.sink.staging import Receipt
from tern_wire.errors import PublicationNotFound

# Retention waits for what is not yet replayed; a job that was killed holds it for so long.
_LEASE_MS = 600_000


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """Continue the same replay of an earlier run, or begin one; publish batch after batch."""
    check_arguments(options)
    choice, reading, writing = choice_of(options), reading_of(options), writing_of(options)
    shelf = _shelf(options, choice) if choice.archive else None
    state = ReplayState(ArchiveFolder(options.state or options.archive), choice, uuid.uuid4().hex)
    plan = None if options.again else state.plan()
    if plan is None:
        progress.step("plans")
        plan = _plan(options, choice, reading, shelf, clock)
        state.begin(plan)
    note = state.note()
    if note.batches == plan.batches and not options.again:
        return _outcome(plan, note, note)
    if plan.created_ms:
        with Catalog(reading) as catalog:
            check_topics(plan, catalog)
    check_continued(plan, last_ms=note.at_ms, now_ms=clock.now_ms())
    before = note = _caught_up(options, plan, note, clock)
    if note.batches:
        progress.step(f"goes on behind batch {note.batches} of {plan.batches}")
    began_ms = clock.now_ms()
    with _held(options, plan, note.batches):
        for batch in range(note.batches, plan.batches):
            slices = slices_of(plan, batch)
            if shelf is not None:
                slices = [shelf.with_files(found) for found in slices]
            rows = _publish(tasks, plan, batch, slices, reading, writing)
            note = ReplayNote(batches=batch + 1, rows=note.rows + rows, at_ms=clock.now_ms())
            state.keep(note)
            if options.rate and batch + 1 < plan.batches:
                due_ms = began_ms + (note.rows - before.rows) * 1_000 // options.rate
                clock.pause_s(max(0, due_ms - clock.now_ms()) / 1_000)
    return _outcome(plan, before, note)


def _shelf(options: Namespace, choice: Choice) -> Shelf:
    chain = chain_or_fail(read_chain(ArchiveFolder(options.archive)))
    if not chain.manifests:
        raise JobFailed("There is no archive", f"{options.archive} has no manifests.")
    ranges = current_ranges(chain.manifests)
    if missing := sorted(set(choice.topics) - {found.topic for found in ranges}):
        raise JobFailed("There is no such topic in the archive", f"Not archived: {', '.join(missing)}.", exit_code=2)
    return Shelf(found for found in ranges if not choice.topics or found.topic in choice.topics)


def _plan(options: Namespace, choice: Choice, reading: ReadOptions, shelf: Shelf | None, clock: Clock) -> ReplayPlan:
    batch_rows, rate, now_ms = options.batch_rows, options.rate, clock.now_ms()
    if shelf is not None:
        return plan_of_archive(choice, shelf, batch_rows=batch_rows, rate=rate, now_ms=now_ms)
    with Catalog(reading) as catalog:
        return plan_of_topics(choice, reading, catalog, batch_rows=batch_rows, rate=rate, now_ms=now_ms)


def _caught_up(options: Namespace, plan: ReplayPlan, note: ReplayNote, clock: Clock) -> ReplayNote:
    """Return *note* with the batch that a killed run has published and not noted."""
    with open_admin(options) as admin:
        try:
            told = admin.publication(plan.query)
        except PublicationNotFound:
            return note
    last = told.get("batch")
    if last is None or last < note.batches:
        return note
    return ReplayNote(batches=last + 1, rows=note.rows + told["rows"], at_ms=clock.now_ms())


@contextmanager
def _held(options: Namespace, plan: ReplayPlan, batch: int) -> Iterator[None]:
    """Lease what is not yet replayed, unless it comes from an archive."""
    if plan.choice.archive or not plan.queues:
        yield
        return
    ranges = [
        QueueRange(
            topic=queue.topic,
            queue=queue.queue,
            start=queue.start + (queue.end - queue.start) * batch // plan.batches,
            end=queue.end,
        )
        for queue in plan.queues
    ]
    with kept(ranges, _LEASE_MS, partial(open_admin, options)):
        yield


def _publish(
    tasks: Tasks, plan: ReplayPlan, batch: int, slices: list[Slice], reading: ReadOptions, writing: WriteOptions
) -> int:
    """Stage and publish one batch; return its rows. One without rows is published as well: it is
    what a later run finds.
    """
    work = [
        StageTask(query=plan.query, batch=batch, partition=partition, slices=found, created_ms=plan.created_ms)
        for partition, found in enumerate(tasks_of(slices))
    ]
    stage: Callable[[StageTask], Receipt] = partial(stage_slices, choice=plan.choice, reading=reading, writing=writing)
    receipts = tasks.map(f"batch {batch + 1} of {plan.batches}", stage, work)
    told = publish(writing, receipts, is_final=False)
    if told.batch != batch:
        raise JobFailed(
            "Another run of this replay is at work",
            f"It has published batch {told.batch + 1} of {plan.batches}. Nothing is there twice. Leave it alone, or "
            "stop it and run again.",
        )
    return told.rows


def _outcome(plan: ReplayPlan, before: ReplayNote, note: ReplayNote) -> Outcome:
    rows, choice = note.rows - before.rows, plan.choice
    faults = []
    if plan.rows not in {UNKNOWN_ROWS, note.rows}:
        faults.append(f"the archive has {plan.rows:,} rows in these ranges, and {note.rows:,} were published")
    if not plan.queues:
        headline = "There is nothing to replay."
    elif before.batches == plan.batches:
        headline = f"This replay is done: {note.rows:,} rows are in '{choice.to}'. --again would send them once more."
    else:
        headline = f"{rows:,} rows replayed into '{choice.to}'."
        if before.rows:
            headline += f" With earlier runs: {note.rows:,}."
    offsets = topics_of(plan.queues)
    table = [
        (topic, sum(1 for queue in plan.queues if queue.topic == topic), count)
        for topic, count in sorted(offsets.items())
    ]
    return Outcome(
        headline=headline,
        facts={
            "query": plan.query,
            "rows": rows,
            "rows in all runs": note.rows,
            "batches": plan.batches,
            "published at ms": note.at_ms,
        },
        tables=[Table(title="Replayed", columns=("topic", "queues", "offsets"), rows=table)],
        plots=[Bars(title="Offsets by topic", labels=list(offsets), values=list(offsets.values()), unit="offsets")]
        if offsets
        else [],
        faults=faults,
    )


JOB = Job(
    name="replay",
    summary="Send an archive, or a time of topics, into a topic again, exactly once.",
    description="""Rows become visible in batches, each at once. A run that was killed is continued by the same
command, and nothing is there twice; the same command behind the end sends nothing. Rows of a
message group keep their order. All rows go to one broker group (docs/spark.md says why).

  ternmq spark run replay --archive archive --to orders-again
  ternmq spark run replay --archive archive --topics orders --filter "price > 5" --to orders-again
  ternmq spark run replay --from-topics orders --since 2026-11-26T08:00:00Z \\
      --until 2026-11-26T09:00:00Z --state replays --to orders-again --rate 5000""",
    arguments=arguments,
    run=run,
)
