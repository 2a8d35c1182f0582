"""The job `dlq`: why messages died, where they came from, since when; and a list to redrive."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tern_client import BlockingAdmin
from tern_jobs.frame.admin import chosen_groups, open_admin, time_argument
from tern_jobs.frame.outcome import Bars, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.reports.letters import Letter, LetterFilter, causes, read_letter
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX

_COLUMNS = ("group", "cause", "topic", "reason", "letters", "first dead", "last dead", "most attempts", "sample")


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--groups", default="", help="groups, separated by commas; default: all")
    parser.add_argument("--cause", default="", help="only letters of this cause: expired, nacked or rejected")
    parser.add_argument("--topic", default="", help="only letters that came from this topic")
    parser.add_argument("--reason", default="", help="only letters whose reason contains this text")
    parser.add_argument(
        "--since", type=time_argument, default=0, metavar="TIME", help="only letters that died at this time or later"
    )
    parser.add_argument(
        "--redrive", type=Path, metavar="FILE", help="write the list of these letters for `ternmq dlq redrive --file`"
    )
    parser.add_argument("--letters-max", type=int, default=-1, help="exit code 1 when there are more letters")


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """List the letters in the driver: the admin API answers them in pages."""
    del tasks, clock
    wanted = LetterFilter(
        cause=options.cause,
        topic=options.topic,
        reason=options.reason,
        since_ms=options.since,
    )
    letters: list[Letter] = []
    with open_admin(options) as admin:
        groups = chosen_groups(admin, options.groups)
        for done, group in enumerate(groups, 1):
            letters += [letter for letter in _letters(admin, group) if wanted.takes(letter)]
            progress.tasks("groups", done, len(groups))
    rows = causes(letters)
    if options.redrive:
        options.redrive.parent.mkdir(parents=True, exist_ok=True)
        options.redrive.write_text("".join(f"{line}\n" for line in redrive_lines(letters)), "utf-8")
    faults = []
    if 0 <= options.letters_max < len(letters):
        faults.append(f"{len(letters):,} dead letters, {options.letters_max:,} are allowed")
    return Outcome(
        headline=f"{len(letters):,} dead letters in {len(groups)} groups."
        + (f" To redrive them: ternmq dlq redrive --file {options.redrive}" if options.redrive and letters else ""),
        facts={"letters": len(letters), "groups": len(groups)},
        tables=[
            Table(
                title="Dead letters by cause and origin",
                columns=_COLUMNS,
                rows=[msgspec.structs.astuple(row) for row in rows],
            )
        ],
        plots=[
            Bars(
                title="Dead letters by cause",
                labels=[
                    f"{row.group}: {row.topic} {row.cause}" + (f", {row.reason}" if row.reason else "") for row in rows
                ],
                values=[row.letters for row in rows],
                unit="letters",
            )
        ],
        faults=faults,
    )


def _letters(admin: BlockingAdmin, group: str) -> Iterator[Letter]:
    cursor = ""
    while True:
        page = admin.dead_letters(group, limit=DEAD_LETTERS_PAGE_MAX, cursor=cursor)
        yield from (read_letter(group, message) for message in page["messages"])
        cursor = page.get("next_cursor") or ""
        if not cursor:
            return


def redrive_lines(letters: Sequence[Letter]) -> list[str]:
    """Return the lines of a list for `ternmq dlq redrive --file`, which names every letter once."""
    return [json.dumps({"group": letter.group, "offset": letter.offset}) for letter in letters]


JOB = Job(
    name="dlq",
    summary="Group dead letters by cause, origin and reason, and write the list that redrives them.",
    description="""  ternmq spark run dlq --groups billing --html dlq.html
  ternmq spark run dlq --groups billing --reason 'no such shop' --redrive letters.ndjson""",
    arguments=arguments,
    run=run,
)
