"""`ternmq store verify`: compare a stopped node's directory with its checksums."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.progress import byte_bar

if TYPE_CHECKING:
    from tern_store.checks.finding import Finding

# Remedy of a finding, by its kind.
REMEDIES = {
    "log": "Rebuild this node from a peer; do not start it before.",
    "record": "Every node of the group has these bytes: the producer sent them, or a proxy has a defect.",
    "derived": "Nothing is lost: the node makes it again from its log.",
    "state": "Nothing is lost: the node uses an older saved state, or replays its log.",
    "vote": "If a good slot is left, the node uses it; if not, rebuild it from a peer.",
}
NOTHING_TO_DO = "Nothing: the next start puts it in order."


def verify_store(
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", help="A stopped node's directory, such as .tern/data/broker-a-0.", show_default=False
        ),
    ],
    *,
    output: Output = Format.TABLE,
) -> None:
    """Read everything in a stopped node's directory and report all damage. Changes nothing.

    The command checks the log from its first to its last entry with all
    checksums, every message, the derived files and their references, saved
    states, votes and config. The node must not run meanwhile. Remains of a crash
    are listed too, marked as such: they are no damage, and the next start cleans
    them up.

    Each finding has a kind that determines the remedy:

    - log: the log itself is damaged; only another node of the group has these
      entries.
    - record: a message was stored with a wrong checksum.
    - derived: queues, key index, timers, entry index; the node rebuilds them
      from its log.
    - state: a saved state; the node uses an older one.
    - vote: the file with this node's vote.

    Exit code 0: no damage. 1: damage was found. 2: not a node's directory. If the
    node runs: 1, with its process id.

    [bold]Examples[/bold]

    ternmq down && ternmq store verify --data-dir .tern/data/broker-a-0
    ternmq store verify --data-dir /backup/broker-a-0 -o json | jq '.findings[] | select(.damage)'
    """
    from tern_cli.store.native_directory import READING_FILES, NodeDirectory, held  # noqa: PLC0415 - help is quick
    from tern_store.checks.verification import verify_directory  # noqa: PLC0415
    from tern_store.errors import StoreError  # noqa: PLC0415

    checked = [0, 0]
    try:
        if not data_dir.is_dir():
            NodeDirectory(data_dir)
        with held(data_dir), byte_bar("Checking", output) as advance:

            def progress(done: int, total: int) -> None:
                checked[:] = done, total
                advance(done, total)

            found = verify_directory(data_dir, READING_FILES, progress)
    except StoreError as error:
        failure = CommandFailed("Not the data directory of a node", str(error), exit_code=2)
        _show_failed(failure, output)
        raise failure from error
    except CommandFailed as failure:
        _show_failed(failure, output)
        raise
    if output is Format.JSON:
        show_json({"checked_bytes": checked[0], "findings": [_document(finding, data_dir) for finding in found]})
    else:
        _show(found, checked[0], data_dir)
    if any(finding.is_damage for finding in found):
        raise typer.Exit(1)


def _document(finding: "Finding", directory: Path) -> dict[str, Any]:
    return {
        "file": str(finding.file.relative_to(directory)),
        "position": finding.position,
        "kind": finding.kind.value,
        "damage": finding.is_damage,
        "reason": finding.reason,
        "remedy": REMEDIES[finding.kind.value] if finding.is_damage else NOTHING_TO_DO,
    }


def _show(found: list["Finding"], checked_bytes: int, directory: Path) -> None:
    """Print a table of the findings, then the remedies, then the verdict."""
    from tern_store.checks.finding import FINDINGS_MAX  # noqa: PLC0415

    rows = [_document(finding, directory) | {"damage": "damage" if finding.is_damage else "note"} for finding in found]
    if rows:
        shown = [row | {"": row["damage"]} for row in rows]
        show_rows(shown, ["", "kind", "file", "position", "reason"], Format.TABLE)
        typer.echo("What to do:")
        for kind in dict.fromkeys((row["kind"], row["remedy"]) for row in rows):
            typer.echo(f"  {kind[0]}: {kind[1]}")
    damages = sum(finding.is_damage for finding in found)
    more = f" There may be more: the list ends at {FINDINGS_MAX}." if len(found) >= FINDINGS_MAX else ""
    verdict = f"{damages} damaged places." if damages else "No damage."
    typer.echo(f"{checked_bytes:,} bytes read in {directory}. {verdict}{more}")


def _show_failed(failure: CommandFailed, output: Format) -> None:
    """Print the failure as JSON to stdout too when JSON was requested."""
    if output is Format.JSON:
        show_json({"checked_bytes": 0, "findings": [], "error": {"title": failure.title, "detail": failure.detail}})
