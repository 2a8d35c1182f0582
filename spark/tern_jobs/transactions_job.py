"""The job `transactions`: open, slow and expired transactions by producer group."""

from argparse import ArgumentParser, Namespace

import msgspec

from tern_client.transactions.models import Transaction
from tern_jobs.frame.admin import duration_argument, open_admin
from tern_jobs.frame.outcome import Bars, Outcome, Table
from tern_jobs.frame.progress import Progress
from tern_jobs.frame.run import Clock, Job
from tern_jobs.frame.tasks import Tasks
from tern_jobs.reports.moments import moment
from tern_wire.limits import LISTED_MAX
from tern_wire.times import duration_text

_SLOW = "5m"
_COLUMNS = ("producer group", "open", "slow", "expired", "messages", "most checks", "oldest begun", "oldest id")


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions of one producer group that have not ended. *slow* ones are open, and old."""

    producer_group: str
    open: int
    slow: int
    expired: int
    messages: int
    checks_max: int
    oldest_begun: str
    oldest_id: str


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this job."""
    parser.add_argument("--producer-group", default="", help="only transactions of this producer group")
    parser.add_argument(
        "--slow", type=duration_argument, default=_SLOW, help=f"an open one this old is slow; default {_SLOW}"
    )
    parser.add_argument("--slow-max", type=int, default=-1, help="exit code 1 when more open ones are slow")


def run(options: Namespace, tasks: Tasks, progress: Progress, clock: Clock) -> Outcome:
    """List them in the driver: the admin API answers them in pages."""
    del tasks
    found: list[Transaction] = []
    cursor = ""
    with open_admin(options) as admin:
        while True:
            progress.step(f"lists transactions, {len(found):,} so far")
            page = admin.transactions(producer_group=options.producer_group, state="", limit=LISTED_MAX, cursor=cursor)
            found += page.transactions
            cursor = page.next_cursor
            if not cursor:
                break
    rows = group_rows(found, now_ms=clock.now_ms(), slow_ms=options.slow)
    faults = [
        f"producer group '{row.producer_group}': {row.expired} expired, which only an operator ends; "
        f"the oldest is of {row.oldest_begun}"
        for row in rows
        if row.expired
    ]
    slow = sum(row.slow for row in rows)
    if 0 <= options.slow_max < slow:
        faults.append(f"{slow} are open for {duration_text(options.slow)} or longer, {options.slow_max} are allowed")
    names = [row.producer_group for row in rows]
    return Outcome(
        headline=f"{len(found):,} transactions have not ended: {sum(row.open for row in rows):,} open, {slow:,} of "
        f"them slow, {sum(row.expired for row in rows):,} expired.",
        facts={"open": sum(row.open for row in rows), "slow": slow, "expired": sum(row.expired for row in rows)},
        tables=[
            Table(
                title="By producer group",
                columns=_COLUMNS,
                rows=[msgspec.structs.astuple(row) for row in rows],
            )
        ],
        plots=[
            Bars(
                title="Not ended, by producer group",
                labels=names,
                values=[row.open + row.expired for row in rows],
                unit="transactions",
            ),
            Bars(
                title="Expired, by producer group",
                labels=names,
                values=[row.expired for row in rows],
                unit="transactions",
            ),
        ],
        faults=faults,
    )


def group_rows(found: list[Transaction], *, now_ms: int, slow_ms: int) -> list[GroupRow]:
    """Return a row for each producer group, the most expired and open ones first."""
    groups: dict[str, list[Transaction]] = {}
    for one in found:
        groups.setdefault(one.producer_group, []).append(one)
    rows = []
    for name, ones in groups.items():
        oldest = min(ones, key=lambda one: (one.begun_at, one.transaction_id))
        still_open = [one for one in ones if one.state == "open"]
        rows.append(
            GroupRow(
                producer_group=name,
                open=len(still_open),
                slow=sum(1 for one in still_open if now_ms - one.begun_at >= slow_ms),
                expired=sum(1 for one in ones if one.state == "expired"),
                messages=sum(one.message_count or len(one.messages) for one in ones),
                checks_max=max(one.attempts for one in ones),
                oldest_begun=moment(oldest.begun_at),
                oldest_id=oldest.transaction_id,
            )
        )
    return sorted(rows, key=lambda row: (-row.expired, -row.open, row.producer_group))


JOB = Job(
    name="transactions",
    summary="Count open, slow and expired transactions by producer group.",
    description="""Exit code 1 when one is expired: it stays invisible until an operator ends it with
`ternmq tx commit ID --reason` or `rollback`.

  ternmq spark run transactions --slow 10m
  ternmq spark run transactions --producer-group shop --slow-max 0""",
    arguments=arguments,
    run=run,
)
