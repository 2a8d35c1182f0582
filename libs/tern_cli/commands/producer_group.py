"""`ternmq producer-group create|ls|describe|rm`: producer groups and their transaction checks."""

from typing import Annotated, Any

import typer

from tern_cli.commands.admin import duration_ms
from tern_cli.commands.topic import Sure, confirm
from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_json, show_rows
from tern_wire.limits import (
    CHECK_AFTER_MAX_MS,
    CHECK_AFTER_MIN_MS,
    CHECK_TIMEOUT_MAX_MS,
    CHECK_TIMEOUT_MIN_MS,
    CHECKS_MAX,
)
from tern_wire.times import duration_text

producer_group_app = typer.Typer(
    no_args_is_help=True,
    help="""Create, list, describe and delete producer groups.

    A producer group decides its transactions. If one is neither committed nor
    rolled back in time, a transaction check requests its outcome: a signed call
    of the txn-checker to the group's check URL, or a check that a producer
    receives (`TransactionProducer` with a checker).""",
)

ProducerGroup = Annotated[str, typer.Argument(metavar="GROUP", help="The producer group's name.", show_default=False)]
_COLUMNS = ("producer_group", "asked", "check_after_ms", "check_interval_ms", "max_checks")


@producer_group_app.command("create")
def create_producer_group(
    group: ProducerGroup,
    *,
    check_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="URL of transaction checks; '' for checks by pull. --check-hosts of the proxies lists the allowed hosts.",
        ),
    ] = None,
    check_secret: Annotated[
        str | None,
        typer.Option(
            metavar="whsec_...",
            help="Secret that signs callbacks (Standard Webhooks).",
            show_default="made and shown once",
        ),
    ] = None,
    timeout: Annotated[str | None, typer.Option(help="Timeout of a callback, such as 3s.", show_default="3s")] = None,
    max_checks: Annotated[
        int | None,
        typer.Option(
            min=1, max=CHECKS_MAX, help="Unanswered checks after which a transaction is expired.", show_default="15"
        ),
    ] = None,
    check_after: Annotated[
        str | None, typer.Option(help="Time from the begin to the first check, such as 60s.", show_default="6s")
    ] = None,
    check_interval: Annotated[
        str | None, typer.Option(help="Time from one check to the next.", show_default="30s")
    ] = None,
    include_body: Annotated[
        bool | None,
        typer.Option("--include-body/--no-include-body", help="Whether callbacks carry the messages' bodies."),
    ] = None,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Create a producer group, or change the named settings of an existing one.

    A producer group names the endpoint or the receivers of transaction checks.
    The secret that signs callbacks is shown once, by the command that sets it.

    [bold]Examples[/bold]

    ternmq producer-group create shop
    ternmq producer-group create shop --check-after 60s --check-interval 10s
    ternmq producer-group create shop --check-url http://127.0.0.1:9000/checks
    """

    with administration(endpoint) as admin:
        document = admin.create_producer_group(
            group,
            check_url=check_url,
            check_secret=check_secret,
            timeout=_span("--timeout", timeout, CHECK_TIMEOUT_MIN_MS, CHECK_TIMEOUT_MAX_MS),
            max_checks=max_checks,
            check_after=_span("--check-after", check_after, CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS),
            check_interval=_span("--check-interval", check_interval, CHECK_AFTER_MIN_MS, CHECK_AFTER_MAX_MS),
            include_body=include_body,
        )
    if output is Format.JSON:
        show_json(document)
        return
    typer.echo(f"Producer group {document['producer_group']} is there, {_asked(document)}.")
    if secret := document.get("check_secret"):
        typer.echo(f"Its check secret, which is not shown again: {secret}")


@producer_group_app.command("ls")
def list_producer_groups(endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """List producer groups, with the way in which each gets its transaction checks.

    [bold]Examples[/bold]

    ternmq producer-group ls
    ternmq producer-group ls -o json
    """

    with administration(endpoint) as admin:
        documents = admin.producer_groups()
    rows = (
        documents if output is Format.JSON else [{**row, "asked": row["check_url"] or "by pull"} for row in documents]
    )
    show_rows(rows, _COLUMNS, output)


@producer_group_app.command("describe")
def describe_producer_group(group: ProducerGroup, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show a producer group's settings and the counts of its transactions.

    The counts are of open, expired, committed and rolled back transactions.

    [bold]Examples[/bold]

    ternmq producer-group describe shop
    ternmq producer-group describe shop -o json
    """

    with administration(endpoint) as admin:
        document = admin.producer_group(group)
    if output is Format.JSON:
        show_json(document)
        return
    stats = document.get("stats", {})
    show_rows([{name: stats[name] for name in stats}], tuple(stats), output)
    typer.echo(f"It is {_asked(document)}, {duration_text(document['check_after_ms'])} after the begin and every")
    typer.echo(
        f"{duration_text(document['check_interval_ms'])}, {document['max_checks']} times; then a transaction is expired."
    )
    if document["check_url"]:
        bodies = "with" if document["include_body"] else "without"
        typer.echo(f"A callback may take {duration_text(document['timeout_ms'])}; callbacks go {bodies} bodies.")


@producer_group_app.command("rm")
def delete_producer_group(
    group: ProducerGroup, yes: Sure = False, endpoint: Endpoint = "", output: Output = Format.TABLE
) -> None:
    """Delete a producer group.

    Refused while it has transactions that have not ended: see `ternmq tx ls`.

    [bold]Examples[/bold]

    ternmq producer-group rm shop
    ternmq producer-group rm shop --yes
    """

    confirm(f"Delete producer group {group}?", yes=yes)
    with administration(endpoint) as admin:
        admin.delete_producer_group(group)
    if output is Format.JSON:
        show_json({"producer_group": group, "deleted": True})
    else:
        typer.echo(f"Producer group {group} is deleted.")


def _span(option: str, text: str | None, least_ms: int, most_ms: int) -> int | None:
    return None if text is None else duration_ms(option, text, least_ms, most_ms)


def _asked(document: dict[str, Any]) -> str:
    return f"asked at {document['check_url']}" if document["check_url"] else "asked by pull"
