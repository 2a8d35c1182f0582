"""`ternmq context add|ls|show|use|rm`: named meshes of a user, with namespace and credentials."""

import os
from typing import Annotated, Any

import typer

from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_facts, show_json, show_rows
from tern_client.settings.contexts import (
    Context,
    Contexts,
    change_contexts,
    check_context_name,
    context_of,
    contexts_file,
    read_contexts,
)
from tern_client.settings.settings import split_urls

context_app = typer.Typer(
    no_args_is_help=True,
    help="""Name meshes once: where they are, their namespace, and the files with key and
    authority.

    `--context NAME` or TERNMQ_CONTEXT chooses one for a command, `ternmq context
    use` for all that name none. Programs with the SDK (`connect()`) and Spark read
    the same file, ~/.config/ternmq/contexts.json, or TERNMQ_CONTEXTS_FILE. It holds
    names of key files, no keys.""",
)
ContextName = Annotated[str, typer.Argument(metavar="NAME", help="The context, such as prod.", show_default=False)]
_COLUMNS = ("current", "context", "endpoints", "namespace", "key_file", "ca_file")


@context_app.command("add")
def add_context(
    name: ContextName,
    *,
    endpoint: Annotated[str, typer.Option("--endpoint", help="Proxies, separated by commas.", show_default=False)],
    namespace: Annotated[str, typer.Option("--namespace", help="Namespace of its topics and groups.")] = "",
    key_file: Annotated[str, typer.Option("--key-file", metavar="FILE", help="File with the key for this mesh.")] = "",
    ca_file: Annotated[str, typer.Option("--ca-file", metavar="FILE", help="Authority of its https endpoints.")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace a context of this name.")] = False,
) -> None:
    """Add a context. The first one becomes the current one.

    [bold]Examples[/bold]

    ternmq context add local --endpoint http://127.0.0.1:8080
    ternmq context add prod --endpoint https://mq.example.com --key-file prod.key --ca-file ca.crt
    """
    check_context_name(name)
    made = context_of(split_urls(endpoint), namespace=namespace, key_file=key_file, ca_file=ca_file)

    def added(before: Contexts) -> Contexts:
        if name in before.contexts and not replace:
            raise CommandFailed("The context exists", f"Add --replace to replace the context {name}.")
        return before.with_context(name, made)

    after = change_contexts(contexts_file(os.environ), added)
    is_current = " It is the current one." if after.current == name else ""
    typer.echo(f"Context {name} added.{is_current}")
    for what, file in (("key", made.key_file), ("authority", made.ca_file)):
        if file and not os.path.isfile(file):
            typer.echo(f"The file of its {what}, {file}, does not exist yet.", err=True)


@context_app.command("ls")
def list_contexts(output: Output = Format.TABLE) -> None:
    """List the contexts, with the current one marked.

    [bold]Examples[/bold]

    ternmq context ls
    ternmq context ls -o json
    """
    known = read_contexts(contexts_file(os.environ))
    rows = [_row(name, known) for name in sorted(known.contexts)]
    if output is Format.TABLE:
        rows = [{**row, "current": "*" if row["current"] else ""} for row in rows]
    show_rows(rows, _COLUMNS, output)


@context_app.command("show")
def show_context(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="By default the current one.", show_default=False)] = "",
    output: Output = Format.TABLE,
) -> None:
    """Show one context.

    [bold]Examples[/bold]

    ternmq context show
    ternmq context show prod -o json
    """
    known = read_contexts(contexts_file(os.environ))
    if not (name or known.current):
        raise CommandFailed("No current context", "Choose one with `ternmq context use NAME`.")
    chosen = name or known.current
    known.named(chosen)
    row = _row(chosen, known)
    if output is Format.JSON:
        show_json(row)
    else:
        show_facts(row)


@context_app.command("use")
def use_context(name: ContextName) -> None:
    """Make a context the current one, which commands and programs use when they name none.

    In the folder of a mesh that `ternmq up` has started, commands use that mesh.

    [bold]Examples[/bold]

    ternmq context use prod
    """
    change_contexts(contexts_file(os.environ), lambda before: before.using(name))
    typer.echo(f"The current context is {name}.")


@context_app.command("rm")
def remove_context(name: ContextName) -> None:
    """Remove a context. Its key files stay.

    [bold]Examples[/bold]

    ternmq context rm local
    """
    after = change_contexts(contexts_file(os.environ), lambda before: before.without(name))
    left = "" if after.current else " No context is current."
    typer.echo(f"Context {name} removed.{left}")


def _row(name: str, known: Contexts) -> dict[str, Any]:
    context: Context = known.contexts[name]
    return {
        "context": name,
        "current": name == known.current,
        "endpoints": list(context.endpoints),
        "namespace": context.namespace,
        "key_file": context.key_file,
        "ca_file": context.ca_file,
    }
