"""`ternmq tx ls|show|commit|rollback|stats`: list, inspect, end and count transactions."""

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tern_cli.commands.admin import duration_ms
from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_facts, show_json, show_rows
from tern_cli.readable import shown_time
from tern_wire.limits import LISTED_MAX

if TYPE_CHECKING:
    from tern_client import Decision, EndedTransaction, Transaction

tx_app = typer.Typer(
    no_args_is_help=True,
    help="""List, show, commit, roll back and count transactions.

    A transaction is open until its producer or a transaction check ends it. After
    the maximum number of unanswered checks it is expired: it stays stored and
    invisible until an operator ends it by hand, with a reason.""",
)


class ListedState(StrEnum):
    """States by which transactions are listed."""

    OPEN = "open"
    EXPIRED = "expired"


TransactionName = Annotated[
    str, typer.Argument(metavar="ID", help="The transaction's id, from `tx ls` or its begin.", show_default=False)
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason",
        help="End the transaction by hand, an expired one too, and store this reason. Without a reason, an open transaction is ended as its producer would.",
        show_default=False,
    ),
]
_COLUMNS = ("transaction_id", "producer_group", "state", "begun_at", "check_at", "attempts", "messages", "topics")
_CHECK_COLUMNS = ("attempt", "at", "checker", "answer", "latency_ms")
_COUNTS = ("open", "expired", "committed", "rolled_back", "checks")


@tx_app.command("ls")
def list_transactions(
    *,
    group: Annotated[
        str, typer.Option("-g", "--group", help="Only those of this producer group.", show_default=False)
    ] = "",
    state: Annotated[
        ListedState | None, typer.Option("--state", help="Only open ones, or only expired ones.", show_default=False)
    ] = None,
    older_than: Annotated[
        str,
        typer.Option("--older-than", help="Only those begun at least this long ago, such as 5m.", show_default=False),
    ] = "",
    count: Annotated[int, typer.Option("-n", "--count", min=1, help="Maximum number.")] = 100,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List transactions that have not ended, the oldest of each broker group first.

    [bold]Examples[/bold]

    ternmq tx ls
    ternmq tx ls --group shop --older-than 5m
    ternmq tx ls --state expired -n 1000 -o json
    """
    found: list[Transaction] = []
    cursor, is_more = "", True
    span_ms = duration_ms("--older-than", older_than) if older_than else None
    with administration(endpoint) as admin:
        while is_more and len(found) < count:
            limit = min(count - len(found), LISTED_MAX)
            page = admin.transactions(
                producer_group=group, state=state or "", older_than=span_ms, limit=limit, cursor=cursor
            )
            found += page.transactions
            cursor, is_more = page.next_cursor, bool(page.next_cursor)
    if output is Format.JSON:
        show_json([asdict(one) for one in found])
        return
    show_rows([_row(one) for one in found], _COLUMNS, output)
    typer.echo(f"{len(found)} transactions have not ended" + (", and more." if is_more else "."))


@tx_app.command("show")
def show_transaction(transaction_id: TransactionName, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show a transaction: its state, its end with the reason, its messages, and every check.

    [bold]Examples[/bold]

    ternmq tx show AQAAAZ...
    """

    with administration(endpoint) as admin:
        found = admin.transaction(transaction_id)
    if output is Format.JSON:
        show_json(asdict(found))
        return
    facts = {
        "transaction_id": found.transaction_id,
        "producer_group": found.producer_group,
        "state": f"{found.state} (by {found.by})" if found.by else found.state,
        "reason": found.reason,
        "begun_at": found.begun_at,
        "check_at": found.check_at,
        "ended_at": found.ended_at,
        "attempts": found.attempts,
        "messages": found.message_count or len(found.messages),
    }
    show_facts(facts)
    messages = [{**asdict(one), "offset": "" if one.offset < 0 else one.offset} for one in found.messages]
    show_rows(messages, ("topic", "queue", "offset", "size"), output, title="Messages")
    if found.checks:
        checks = [{**asdict(check), "at": shown_time(check.at)} for check in found.checks]
        show_rows(checks, _CHECK_COLUMNS, output, title="Checks")


@tx_app.command("commit")
def commit_transaction(
    transaction_id: TransactionName, reason: Reason = "", endpoint: Endpoint = "", output: Output = Format.TABLE
) -> None:
    """Commit a transaction: its messages become visible, for good.

    Exit code 1 when it was rolled back before.

    [bold]Examples[/bold]

    ternmq tx commit AQAAAZ... --reason 'order 4711 is paid, ticket 17'
    ternmq tx commit AQAAAZ...
    """
    from tern_client import Decision  # noqa: PLC0415 - help must not wait for the SDK

    _tell(_end(transaction_id, Decision.COMMIT, reason, endpoint), output)


@tx_app.command("rollback")
def roll_transaction_back(
    transaction_id: TransactionName, reason: Reason = "", endpoint: Endpoint = "", output: Output = Format.TABLE
) -> None:
    """Roll back a transaction: its messages never become visible.

    Exit code 1 when it was committed before.

    [bold]Examples[/bold]

    ternmq tx rollback AQAAAZ... --reason 'order 4712 was cancelled'
    """
    from tern_client import Decision  # noqa: PLC0415 - as above

    _tell(_end(transaction_id, Decision.ROLLBACK, reason, endpoint), output)


@tx_app.command("stats")
def show_stats(
    group: Annotated[str, typer.Argument(help="Only this producer group.", show_default=False)] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Count transactions by producer group: open, expired, committed, rolled back, and checks.

    [bold]Examples[/bold]

    ternmq tx stats
    ternmq tx stats shop -o json
    """

    with administration(endpoint) as admin:
        names = [group] if group else [document["producer_group"] for document in admin.producer_groups()]
        documents = [admin.producer_group(name) for name in names]
    rows = [
        {"producer_group": document["producer_group"], **{name: document["stats"][name] for name in _COUNTS}}
        for document in documents
    ]
    show_rows(rows, ("producer_group", *_COUNTS), output)
    if output is Format.TABLE:
        expired = sum(row["expired"] for row in rows)
        typer.echo(
            f"{expired} wait for somebody to end them: ternmq tx ls --state expired." if expired else "None is expired."
        )


def _end(transaction_id: str, decision: "Decision", reason: str, endpoint: str) -> "EndedTransaction":
    with administration(endpoint) as admin:
        if reason:
            return admin.resolve(transaction_id, decision, reason)
        return admin.commit(transaction_id) if decision == "commit" else admin.rollback(transaction_id)


def _tell(ended: "EndedTransaction", output: Format) -> None:
    if output is Format.JSON:
        show_json(asdict(ended))
        return
    where = f" Its first message is at {ended.queue}, offset {ended.offset}, of {ended.topic}." if ended.queue else ""
    typer.echo(f"The transaction is {ended.state} (by {ended.by}).{where}")


def _row(one: "Transaction") -> dict[str, Any]:
    return {
        "transaction_id": one.transaction_id,
        "producer_group": one.producer_group,
        "state": one.state,
        "begun_at": one.begun_at,
        "check_at": one.check_at,
        "attempts": one.attempts,
        "messages": one.message_count or len(one.messages),
        "topics": " ".join(sorted({message.topic for message in one.messages})),
    }
