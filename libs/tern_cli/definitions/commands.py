"""`ternmq definitions export|apply`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tern_cli.commands.topic import Sure, confirm
from tern_cli.definitions.difference import Change, changes
from tern_cli.definitions.document import KINDS, Definitions, read_definitions, written
from tern_cli.definitions.mesh import definitions_of, make
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json
from tern_wire.errors import TernError

definitions_app = typer.Typer(
    no_args_is_help=True,
    help="""Keep topics, groups, producer groups and principals in a file.

    `export` writes what a mesh has, `apply` makes a mesh agree with a file. What the
    file does not name stays as it is; nothing is deleted. Keys and secrets are no
    part of it.""",
)
Kinds = Annotated[
    str,
    typer.Option("--kinds", metavar="LIST", help="Only these kinds, separated by commas."),
]
_ALL = ",".join(KINDS)


@definitions_app.command("export")
def export_definitions(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Where to write it; by default to stdout.", show_default=False),
    ] = None,
    kinds: Kinds = _ALL,
    endpoint: Endpoint = "",
) -> None:
    """Write the definitions of a mesh as YAML.

    [bold]Examples[/bold]

    ternmq definitions export mesh.yaml
    ternmq definitions export --kinds topics,groups
    """
    chosen = _kinds(kinds)
    with administration(endpoint) as admin:
        found = definitions_of(admin, chosen)
    text = written(found)
    if file is None:
        sys.stdout.write(text.decode())
        return
    file.write_bytes(text)
    count = sum(len(getattr(found, kind)) for kind in KINDS)
    typer.echo(f"{count} definitions written to {file}.", err=True)


@definitions_app.command("apply")
def apply_definitions(
    file: Annotated[Path, typer.Argument(help="The file, in YAML or JSON; - for stdin.", show_default=False)],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes and make none.")] = False,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="With --dry-run: exit code 1 when something differs.")
    ] = False,
    yes: Sure = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Make a mesh agree with a file. A second time it changes nothing.

    [bold]Examples[/bold]

    ternmq definitions apply mesh.yaml --dry-run
    ternmq definitions apply mesh.yaml --yes
    """
    text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    wanted = read_definitions(text, "stdin" if str(file) == "-" else str(file))
    with administration(endpoint) as admin:
        needed = changes(wanted, definitions_of(admin, _named(wanted)))
        if not dry_run and needed:
            if output is Format.TABLE:
                _show(needed)
            confirm(f"Make {_counted(needed)}?", yes=yes)
            for number, change in enumerate(needed):
                try:
                    make(admin, change)
                except TernError as error:
                    raise CommandFailed(
                        f"{error.title} ({number} of {len(needed)} changes were made)",
                        f"{change.kind}.{change.name}: {error.detail} Repeat the command after that.",
                    ) from error
    if output is Format.JSON:
        show_json(
            {
                "changes": [
                    {
                        "kind": each.kind,
                        "name": each.name,
                        "new": each.is_new,
                        "fields": {row.field: {"before": row.before, "after": row.after} for row in each.fields},
                    }
                    for each in needed
                ],
                "applied": bool(needed) and not dry_run,
            }
        )
    elif dry_run or not needed:
        _show(needed)
        typer.echo(f"{_counted(needed)}; none is made." if needed else "The mesh agrees with the file.")
    else:
        typer.echo(f"{_counted(needed)} made.")
    if dry_run and fail_on_change and needed:
        raise typer.Exit(1)


def _show(needed: list[Change]) -> None:
    for change in needed:
        for line in change.lines():
            typer.echo(line)


def _counted(needed: list[Change]) -> str:
    return f"{len(needed)} {'change' if len(needed) == 1 else 'changes'}"


def _named(wanted: Definitions) -> frozenset[str]:
    """Return the kinds that *wanted* has: what it does not name need not be readable."""
    return frozenset(kind for kind in KINDS if getattr(wanted, kind))


def _kinds(text: str) -> frozenset[str]:
    chosen = [kind.strip().replace("-", "_") for kind in text.split(",") if kind.strip()]
    if unknown := [kind for kind in chosen if kind not in KINDS]:
        raise CommandFailed("Not a kind", f"{unknown[0]} should be one of {', '.join(KINDS)}.", exit_code=2)
    return frozenset(chosen)
