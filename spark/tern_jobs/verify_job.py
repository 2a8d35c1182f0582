"""The job `verify`: the proof that an archive is whole, and equal to what the brokers hold."""

from argparse import ArgumentParser, Namespace
from functools import partial

from tern_jobs.archive.checking import CheckTask, check_range, compared_from, contiguity_faults, span_faults
from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import ArchivedRange, Chain, current_ranges, next_offsets, read_chain
from tern_jobs.archive.planning import chain_or_fail
from tern_jobs.catalog.publishing import compare_tables
from tern_jobs.frame.outcome import Bars, JobFailed, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.frame.topics import topic_options
from tern_jobs.replay.contents import contents_of, total
from tern_spark.options import ReadOptions
from tern_spark.pages import ProxyPages
from tern_spark.ranges import QueueSpan
from tern_wire.errors import TopicNotFound


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--archive", required=True, metavar="DEST", help="folder or URI that `archive` wrote to")
    parser.add_argument("--topics", default="", help="only these topics, separated by commas; default: all of it")
    parser.add_argument("--without-broker", action="store_true", help="only compare the archive with itself")
    parser.add_argument(
        "--copy", default="", metavar="DEST", help="another archive: prove that it has the same messages, each once"
    )
    parser.add_argument("--copy-topics", default="", help="only these topics of the copy; default: all of it")
    parser.add_argument("--head", default="", help="hash that the newest manifest must have, kept from an earlier run")


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """Check the chain, then every range in tasks."""
    del clock  # nothing of a proof depends on the time
    folder = ArchiveFolder(options.archive)
    chain = read_chain(folder)
    if not chain.manifests and not chain.faults:
        raise JobFailed("There is no archive", f"{options.archive} has no manifests.")
    faults = list(chain.faults)
    if options.head and options.head != chain.head:
        faults.append(f"manifest {len(chain.manifests):08}.json: its hash is {chain.head}, not {options.head}")
    ranges = _chosen(chain, options.topics)
    copied = (
        _chosen(chain_or_fail(read_chain(ArchiveFolder(options.copy))), options.copy_topics) if options.copy else []
    )
    faults += contiguity_faults(ranges)

    spans: list[QueueSpan] = []
    reading: ReadOptions | None = None
    if ranges and not options.without_broker:
        progress.step("reads the brokers' offsets")
        topics = sorted({found.topic for found in ranges})
        reading = topic_options(options, ",".join(topics))
        spans = _spans(reading)
        faults += span_faults(next_offsets(ranges), spans)
    by_queue = {(span.topic, span.queue): span for span in spans}
    items = [CheckTask(range=found, broker_from=compared_from(found, by_queue)) for found in ranges]
    checked = tasks.map("verifies", partial(check_range, uri=options.archive, options=reading), items)
    faults += [fault for result in checked for fault in result.faults]

    tables = compare_tables(folder, chain.manifests, {found.topic for found in ranges})
    faults += tables.faults
    if options.copy:
        faults += _copy_faults(options, ranges, copied, tasks)

    rows = sum(result.rows for result in checked)
    compared = sum(result.compared_rows for result in checked)
    lost = sum(found.end - found.start for found in ranges if found.is_skipped)
    ends = next_offsets(ranges)
    ahead = sum(max(span.max_offset - max(ends.get((span.topic, span.queue), 0), span.min_offset), 0) for span in spans)
    what = f"{rows:,} rows in {sum(1 for found in ranges if found.file):,} files"
    if faults:
        headline = f"{len(faults)} faults in {what}."
    else:
        against = f", {compared:,} of them compared with the brokers" if reading else ""
        same = f", and the copy at {options.copy} has the same messages" if options.copy else ""
        count = len(tables.right)
        named = f", and {count:,} {'table names' if count == 1 else 'tables name'} the same files" if count else ""
        headline = f"The archive holds: {what}{against}{same}{named}."
    rows_by_topic = _by_topic(ranges, [result.compared_rows for result in checked])
    return Outcome(
        headline=headline,
        facts={
            "manifests": len(chain.manifests),
            "head": chain.head,
            "rows": rows,
            "compared rows": compared,
            "not yet archived": ahead,
            "lost before archiving": lost,
            "tables": len(tables.right),
            "tables not compared": tables.not_compared,
        },
        tables=[
            Table(
                title="Verified", columns=("topic", "queues", "rows", "compared rows", "file_bytes"), rows=rows_by_topic
            )
        ],
        plots=[
            Bars(
                title="Rows by topic",
                labels=[str(row[0]) for row in rows_by_topic],
                values=[float(row[2] or 0) for row in rows_by_topic],
                unit="rows",
            )
        ],
        faults=faults,
    )


def _chosen(chain: Chain, topics: str) -> list[ArchivedRange]:
    """Return the current ranges of *topics*, separated by commas; "" for all."""
    wanted = {name.strip() for name in topics.split(",") if name.strip()}
    ranges = [found for found in current_ranges(chain.manifests) if not wanted or found.topic in wanted]
    if missing := sorted(wanted - {found.topic for found in ranges}):
        raise JobFailed("There is no such topic in the archive", f"Not archived: {', '.join(missing)}.", exit_code=2)
    return ranges


def _copy_faults(
    options: Namespace, ranges: list[ArchivedRange], copied: list[ArchivedRange], tasks: Tasks
) -> list[str]:
    """Return the difference between the messages of both archives, if there is one."""
    ours, theirs = (
        total(tasks.map(what, partial(contents_of, uri=uri), [found for found in of_it if found.file]))
        for what, uri, of_it in (
            ("reads what was copied", options.archive, ranges),
            ("reads the copy", options.copy, copied),
        )
    )
    if ours == theirs:
        return []
    if ours.rows != theirs.rows:
        return [f"{options.copy} has {theirs.rows:,} messages, the archive {ours.rows:,}"]
    return [f"{options.copy} has as many messages as the archive, and others: {theirs.hexdigest()}, {ours.hexdigest()}"]


def _spans(reading: ReadOptions) -> list[QueueSpan]:
    """Return the queues of the topics; a topic that is gone has none."""
    spans: list[QueueSpan] = []
    with ProxyPages.of(reading) as pages:
        for topic in reading.topics:
            try:
                spans += pages.spans(topic)
            except TopicNotFound:
                continue
    return spans


def _by_topic(ranges: list[ArchivedRange], compared: list[int]) -> list[tuple[str, int, int, int, int]]:
    made = []
    for topic in sorted({found.topic for found in ranges}):
        of_it = [(found, count) for found, count in zip(ranges, compared, strict=True) if found.topic == topic]
        made.append(
            (
                topic,
                len({found.queue for found, _ in of_it}),
                sum(found.rows for found, _ in of_it),
                sum(count for _, count in of_it),
                sum(found.file_bytes for found, _ in of_it),
            )
        )
    return made


JOB = Job(
    name="verify",
    summary="Prove that an archive is whole and equal to what the brokers hold.",
    description="""Checked are the chain of the manifests, gaps and overlaps of ranges, the hash of every
file, the counts and checksums of its rows, and, as far as the brokers still have them,
the same rows there. Exit code 1, with one line for each fault, when anything differs.

  ternmq spark run verify --archive /archive
  ternmq spark run verify --archive /archive --without-broker --master inline
  ternmq spark run verify --archive /archive --topics orders --copy /copy --copy-topics orders-again""",
    arguments=arguments,
    run=run,
)
