"""The arguments of `replay`, checked and typed."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from tern_jobs.frame.admin import time_argument
from tern_jobs.frame.outcome import JobFailed
from tern_jobs.replay.plans import Choice
from tern_jobs.replay.slices import BATCH_ROWS, BATCH_ROWS_MAX
from tern_spark.options import ReadOptions, read_options
from tern_spark.options.values import selection
from tern_spark.sink.options import WriteOptions, write_options


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--to", required=True, metavar="TOPIC", help="topic that gets the messages")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DEST", help="folder or URI that `archive` wrote to")
    source.add_argument("--from-topics", metavar="TOPICS", help="topics at their brokers, separated by commas")
    parser.add_argument("--topics", default="", help="only these topics of the archive; default: all of it")
    parser.add_argument("--since", type=time_argument, default=0, metavar="TIME", help="stored at that time or later")
    parser.add_argument("--until", type=time_argument, default=0, metavar="TIME", help="stored before that time")
    parser.add_argument("--filter", default="*", help="tags such as 'paid || sent', or an SQL92 condition")
    parser.add_argument("--rate", type=int, default=0, metavar="ROWS", help="most rows a second; default: no limit")
    parser.add_argument(
        "--batch-rows",
        type=int,
        default=BATCH_ROWS,
        help=f"rows that become visible at once, about; default {BATCH_ROWS:,}, at most {BATCH_ROWS_MAX:,}",
    )
    parser.add_argument(
        "--without-origin",
        action="store_true",
        help="do not add the properties replay_origin (orders/broker-a:3/17) and replay_stored_ms",
    )
    parser.add_argument(
        "--state", metavar="DEST", help="folder or URI that remembers the replay; default: that of the archive"
    )
    parser.add_argument("--again", action="store_true", help="begin anew, also where the same replay is done")


def check_arguments(options: Namespace) -> None:
    """Raise JobFailed with the first argument that is wrong."""
    faults: list[tuple[bool, str]] = [
        (not 1 <= options.batch_rows <= BATCH_ROWS_MAX, f"--batch-rows is from 1 to {BATCH_ROWS_MAX:,}."),
        (options.rate < 0, "--rate is 1 at least; without it there is no limit."),
        (bool(options.until) and options.until <= options.since, "--until is not behind --since: nothing is chosen."),
        (bool(options.topics and options.from_topics), "--topics chooses from an archive; --from-topics is enough."),
        (
            bool(options.from_topics) and not options.state,
            "--from-topics needs --state: a folder or URI that remembers how far the replay is, so that a run that "
            "was killed is continued.",
        ),
    ]
    for is_so, text in faults:
        if is_so:
            raise JobFailed("An argument is wrong", text, exit_code=2)


def choice_of(options: Namespace) -> Choice:
    """Return what is replayed."""
    archive = options.archive or ""
    if archive and "://" not in archive:
        archive = str(Path(archive).absolute())
    return Choice(
        to=options.to,
        archive=archive,
        topics=_names(options.from_topics or options.topics),
        since_ms=options.since,
        until_ms=options.until,
        selection=list(selection("--filter", options.filter)),
        tells_origin=not options.without_origin,
    )


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def reading_of(options: Namespace) -> ReadOptions:
    """Return the options of the source. OptionError."""
    # An archive is read without brokers; the name of a topic is only a form then.
    given = {"endpoint": options.endpoint, "subscribe": options.from_topics or options.to}
    if options.from_topics:
        given |= {"filter": options.filter, "startingOffsetsByTimestampStrategy": "latest"}
        times = {"startingTimestamp": options.since, "endingTimestamp": options.until}
        given |= {name: str(time_ms) for name, time_ms in times.items() if time_ms}
    return read_options(given | _files(options))


def writing_of(options: Namespace) -> WriteOptions:
    """Return the options of the sink. OptionError."""
    return write_options({"endpoint": options.endpoint, "topic": options.to} | _files(options))


def _files(options: Namespace) -> dict[str, str]:
    files = {"keyFile": options.key_file, "caFile": options.ca_file}
    return {name: file for name, file in files.items() if file}
