"""`ternmq restore`: make the data directories of a broker group's members from one backup.

The directories are for brokers started separately, or for `ternmq up`.
"""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tern_cli.backup.backup_command import store_failures
from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.hints import with_data_dir
from tern_cli.output import Format, Output, show_json
from tern_cli.progress import Advance, byte_bar

if TYPE_CHECKING:
    from tern_store.backup_note import BackupNote

NOT_BESIDE = "The restored group has the id of the old one. The old one must not run beside it: remove its data, or keep it stopped for good."


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="A directory that `ternmq backup` has completed.")],
    *,
    mesh_dir: Annotated[
        str,
        typer.Option(
            "--dir", metavar="DIR", help="For `ternmq up --data-dir DIR`: all members at once.", show_default=False
        ),
    ] = "",
    data_dir: Annotated[
        str,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="For brokers started separately: a directory DIR/NODE for each --node.",
            show_default=False,
        ),
    ] = "",
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node", metavar="NODE", help="A member of the group, with --data-dir; repeatable.", show_default=False
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Make the data directories of a broker group's members from a backup.

    Each member gets the log as it was at the backup's cut. The whole backup is
    verified first. Each broker derives its queues, index and timers from the log
    at its first start. Nothing is overwritten: the members' directories must be
    missing or empty.

    Restore ALL members from the SAME backup, and start them all: the group is
    founded again once all members have met, and continues from the cut. Do not
    replace a single lost disk in this way: start that broker with an empty
    directory, and it copies the leader's log.

    The restored group has the same group id, so its brokers need the --group-id
    that backup.json names. The old group must not run beside it. Put the old
    cluster.key into DIR if you have it: receipt handles and transaction ids are
    sealed with it. Without it, leased messages are delivered again, and `ternmq
    tx ls` shows the transactions with new ids.

    [bold]Examples[/bold]

    ternmq restore /backup/broker-a --dir .tern-restored && ternmq up --data-dir .tern-restored
    ternmq restore /backup/a --data-dir /new --node broker-a-0 --node broker-a-1 --node broker-a-2
    """
    from tern_cli.backup.restored_mesh import RestoredMesh  # noqa: PLC0415 - help is quick
    from tern_cli.store.native_directory import READING_FILES, held  # noqa: PLC0415
    from tern_store.backup.restore import require_targets, verified_backup  # noqa: PLC0415
    from tern_store.backup_note import read_backup  # noqa: PLC0415

    if bool(mesh_dir) == bool(data_dir or node) or bool(data_dir) != bool(node):
        raise CommandFailed(
            "Restore where?",
            "Name --dir DIR for a mesh of `ternmq up`, or --data-dir DIR and a --node for each member.",
            exit_code=2,
        )
    with store_failures(), held(backup):
        note = read_backup(backup, READING_FILES)
        mesh = RestoredMesh(MeshFiles(mesh_dir), note) if mesh_dir else None
        if mesh is not None:
            targets = mesh.targets()
        else:
            targets = [(name, Path(data_dir) / name) for name in dict.fromkeys(node or [])]
        require_targets(note, targets)
        with byte_bar("Verifying", output) as advance:
            verified_backup(backup, READING_FILES, advance)
        with byte_bar("Restoring", output) as advance:
            if mesh is None:
                _restore(note, backup, targets, advance)
            else:
                with mesh.held():
                    _restore(note, backup, targets, advance)
                    mesh.write_cluster()
    restored = {name: str(directory) for name, directory in targets}
    if output is Format.JSON:
        facts = note.document()
        keys = ("cluster", "broker_group", "group_id", "members", "segment_size_bytes", "cut", "made_at")
        show_json({"nodes": restored, **{name: facts[name] for name in keys}, "note": NOT_BESIDE})
        return
    for name, place in restored.items():
        typer.echo(f"{name}: {place}")
    typer.echo(f"Restored up to entry {note.cut.index} of {note.broker_group}, as backed up at {note.made_at}.")
    missing = sorted(set(note.group.members) - set(restored))
    if missing:
        typer.echo(f"Before the group can start, restore from the same backup: {', '.join(missing)}.")
    elif mesh is not None:
        if not mesh.files.key.exists():
            typer.echo(
                f"If you have the old cluster.key, put it into {mesh.files.root} first: receipt handles need it."
            )
        typer.echo(f"Start it: {with_data_dir('ternmq up', mesh.files.root)}")
    else:
        typer.echo(f"Start all of its brokers with --group-id {note.group.group_id.hex()}.")
    typer.echo(NOT_BESIDE)


def _restore(note: "BackupNote", backup: Path, targets: list[tuple[str, Path]], advance: Advance) -> None:
    from tern_cli.store.native_directory import READING_FILES  # noqa: PLC0415
    from tern_store.backup.restore import restore_node  # noqa: PLC0415
    from tern_store.state.vote_file import INCARNATION_SIZE_BYTES  # noqa: PLC0415

    done, total = 0, note.manifest.size_bytes * len(targets)

    def copied(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        advance(done, total)

    for _, directory in targets:
        incarnation = secrets.token_bytes(INCARNATION_SIZE_BYTES)
        restore_node(note, backup, directory, incarnation=incarnation, source_files=READING_FILES, on_copied=copied)
