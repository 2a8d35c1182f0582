"""`ternmq publication ls`, `show` and `rm`: batches that are staged, and become visible at once."""

from typing import Annotated

import typer

from tern_cli.endpoint import Endpoint, administration
from tern_cli.output import Format, Output, show_json, show_rows

publication_app = typer.Typer(
    no_args_is_help=True, help="Show and give up batches that jobs stage before they publish."
)
_Query = Annotated[
    str, typer.Argument(help="The query, as `ternmq publication ls` shows it; a stream's is Spark's id.")
]
_LISTED = ("query", "owner", "broker_group", "batch", "rows", "published_at", "stages", "staged_rows", "topics")
_STAGED = ("batch", "partition", "attempt", "rows", "size_bytes", "staged_at", "kept_until")


@publication_app.command(name="ls")
def list_publications(endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """List queries that publish batches: the last published batch, and what is staged.

    [bold]Examples[/bold]

    ternmq publication ls
    ternmq publication ls -o json
    """
    with administration(endpoint) as admin:
        found = admin.publications()
    if output is Format.JSON:
        show_json(found)
        return
    show_rows([{**dict.fromkeys(("batch", "published_at")), **row} for row in found], _LISTED, output)
    typer.echo(f"{len(found)} queries, {sum(row['staged_rows'] for row in found):,} messages staged.")


@publication_app.command(name="show")
def show_publication(query: _Query, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show a query and its stages: what each attempt at a partition of a batch has sent.

    [bold]Examples[/bold]

    ternmq publication show nightly
    """
    with administration(endpoint) as admin:
        found = admin.publication(query)
    if output is Format.JSON:
        show_json(found)
        return
    last = f"batch {found['batch']} with {found['rows']:,} messages" if "batch" in found else "nothing"
    typer.echo(
        f"Query {found['query']} has published {last}; {found['stages']} stages, {found['staged_rows']:,} messages."
    )
    show_rows(found["staged"], _STAGED, output)


@publication_app.command(name="rm")
def give_up(
    query: _Query,
    batch: Annotated[int, typer.Argument(min=0, help="The batch, as `ternmq publication show` shows it.")],
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Give a batch up: what is staged for it is dropped. A job that is about to publish it fails,
    and runs the batch again. What is published stays.

    [bold]Examples[/bold]

    ternmq publication rm nightly 7
    """
    with administration(endpoint) as admin:
        dropped = admin.abandon_batch(query, batch)
    if output is Format.JSON:
        show_json(dropped)
        return
    typer.echo(f"{dropped['stages']} stages with {dropped['rows']:,} messages are dropped.")
