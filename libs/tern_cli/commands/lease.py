"""`ternmq lease ls` and `rm`: read leases, which keep messages from retention while a job reads
them.
"""

from typing import Annotated, Any

import typer

from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_json, show_rows

lease_app = typer.Typer(no_args_is_help=True, help="List and end the leases of jobs that read topics.")


@lease_app.command(name="ls")
def list_leases(endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """List read leases, the first one to end first. A broken one keeps nothing any more: the disk
    was too full, or its topic was deleted.

    [bold]Examples[/bold]

    ternmq lease ls
    ternmq lease ls -o json
    """
    with administration(endpoint) as admin:
        leases = admin.read_leases()
    if output is Format.JSON:
        show_json(leases)
        return
    rows: list[dict[str, Any]] = [
        {
            "leased_until": lease["leased_until"],
            "lease": lease["lease"],
            "owner": lease["owner"],
            "topics": [topic["topic"] for topic in lease["topics"]],
            "messages": sum(topic["messages"] for topic in lease["topics"]),
            "broken_by": lease["broken_by"],
        }
        for lease in leases
    ]
    show_rows(rows, ("leased_until", "lease", "owner", "topics", "messages", "broken_by"), output)
    typer.echo(f"{len(rows)} read leases.")


@lease_app.command(name="rm")
def end_lease(
    lease: Annotated[str, typer.Argument(help="The lease, as `ternmq lease ls` shows it.")], endpoint: Endpoint = ""
) -> None:
    """End a read lease: retention may drop its messages. The job that took it is told so when it
    renews the lease.

    [bold]Examples[/bold]

    ternmq lease rm c41d7be09a5f2e3806b7d914.broker-a
    """
    with administration(endpoint) as admin:
        admin.end_read_lease(lease)
    typer.echo("The lease has ended; retention may drop its messages.")
