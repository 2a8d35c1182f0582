"""`ternmq backup`: copy a broker group's log from its leader up to one cut, and verify the copy."""

import contextlib
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tern_cli.commands.mesh import DataDir
from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import KEY_SIZE_BYTES, MeshFiles
from tern_cli.operating.raft import NameServers
from tern_cli.output import Format, Output, show_json, show_warning
from tern_cli.progress import byte_bar
from tern_cli.variables import DATA_DIR
from tern_cli.views.raft_view import answering_brokers, nodes_of_group
from tern_wire.limits import BACKUP_RATE_MAX_MIB_PER_S, MIB, REBUILD_RATE_MAX_BYTES_PER_S
from tern_wire.principals.peer_proof import NONCE_SIZE_BYTES
from tern_wire.version import VERSION

if TYPE_CHECKING:
    from tern_store.backup_note import BackupNote

CLUSTER_KEY_VARIABLE = "TERNMQ_CLUSTER_KEY_FILE"


def backup(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory of the backup: new, empty, or an older backup of the same group."
        ),
    ],
    *,
    broker_group: Annotated[
        str, typer.Option("--broker-group", help="The broker group; required if there are several.")
    ] = "",
    rate_max_mib_s: Annotated[
        int,
        typer.Option(
            "--rate-max-mib-s",
            min=1,
            max=BACKUP_RATE_MAX_MIB_PER_S,
            help="Maximum rate, since the group keeps serving meanwhile.",
        ),
    ] = REBUILD_RATE_MAX_BYTES_PER_S // MIB,
    cluster_key_file: Annotated[
        str,
        typer.Option(
            "--cluster-key-file",
            metavar="FILE",
            envvar=CLUSTER_KEY_VARIABLE,
            help="The cluster's key.  [default: cluster.key of --data-dir]",
            show_default=False,
        ),
    ] = "",
    namesrv: NameServers = "",
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Copy everything that a broker group stores, as of the start of the command.

    The group keeps serving meanwhile: the copy comes from its leader and ends
    with one entry of its log, the cut. Everything acknowledged before the command
    began is in the copy: messages, topics, groups and their offsets, delayed
    messages, open transactions, idempotency keys, principals. At the end the
    whole copy is read again and verified, as `ternmq store verify` does. Only
    then does DIR/backup.json mark DIR as a backup.

    If the command is interrupted, repeat it: it continues with the same cut. On a
    complete backup the same command copies only what is new; the older backup
    stays valid until the newer one is complete.

    The command needs the cluster key and, in a secure mesh, the certificate of
    the client `operator` (TERNMQ_OPERATOR_CERT_FILE, TERNMQ_OPERATOR_KEY_FILE,
    TERNMQ_CA_FILE, or those of --data-dir). A backup holds all messages and no
    key of the cluster: protect it as you protect the messages, and copy
    cluster.key, certificates and root.key separately.

    [bold]Examples[/bold]

    ternmq backup /backup/broker-a
    ternmq backup /backup/broker-a --rate-max-mib-s 16 -o json
    ternmq backup /backup/broker-b --broker-group broker-b --namesrv https://namesrv-0:9876
    """
    from tern_cli.backup.copying import PIECE_SIZE_BYTES, copy_log  # noqa: PLC0415 - help is quick
    from tern_cli.backup.leader_client import LeaderSearch, Operator  # noqa: PLC0415
    from tern_store.backup.backup_directory import BackupDirectory  # noqa: PLC0415

    key = _read_key(Path(cluster_key_file) if cluster_key_file else MeshFiles(data_dir).key)
    nodes = nodes_of_group(answering_brokers(namesrv, data_dir), broker_group)
    search = LeaderSearch(
        nodes,
        Operator(
            key=key,
            now_ms=lambda: time.time_ns() // 1_000_000,
            nonce=lambda: secrets.token_hex(NONCE_SIZE_BYTES),
        ),
    )
    began_s = time.monotonic()
    with store_failures(), contextlib.closing(search):
        copy = BackupDirectory.open(directory, chunk_size_bytes=PIECE_SIZE_BYTES)
        try:
            # A new directory is readable by this user only, as the log is; a mount of another owner
            # keeps its mode.
            with contextlib.suppress(PermissionError):
                directory.chmod(0o700)
            was_older = copy.is_update
            with byte_bar("Copying", output) as advance:
                came = copy_log(copy, search, rate_max_bytes_per_s=rate_max_mib_s * MIB, on_progress=advance)
            copied_s = time.monotonic() - began_s
            with byte_bar("Verifying", output) as advance:
                note, found = copy.finish(
                    cluster=next((str(node.status["cluster"]) for node in nodes if "cluster" in node.status), ""),
                    broker_group=nodes[0].broker_group,
                    release=VERSION,
                    made_at=lambda: datetime.now(UTC).isoformat(timespec="seconds"),
                    progress=advance,
                )
        finally:
            copy.close()
    if found:
        show_warning(
            f"{len(found)} messages were stored with a wrong checksum; the brokers have the same bytes. See `ternmq store verify`."
        )
    facts = {"directory": str(directory), "copied_bytes": came, "copied_s": round(copied_s, 3), "updated": was_older}
    if output is Format.JSON:
        show_json(facts | note.document())
    else:
        _tell(note, facts)


@contextlib.contextmanager
def store_failures() -> Iterator[None]:
    """End the command with the store's own error text.
    Exit code 1 for damage, 2 for unsuitable directories.
    """
    from tern_store.errors import BackupDamaged, BackupRefused, StoreError, WrongGroup  # noqa: PLC0415

    try:
        yield
    except BackupDamaged as error:
        raise CommandFailed("The backup is damaged", str(error)) from error
    except WrongGroup as error:
        raise CommandFailed("Of another group", str(error), exit_code=2) from error
    except BackupRefused as error:
        raise CommandFailed("The directory cannot be used", str(error), exit_code=2) from error
    except StoreError as error:
        raise CommandFailed("It cannot be done", str(error)) from error


def _read_key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError as error:
        raise CommandFailed(
            "The cluster key cannot be read",
            f"{path}: {error.strerror}. Name it with --cluster-key-file, or the mesh's directory with --data-dir.",
            exit_code=2,
        ) from error
    if len(key) != KEY_SIZE_BYTES:
        raise CommandFailed(
            "Not a cluster key", f"{path} has {len(key)} bytes, a cluster key {KEY_SIZE_BYTES}.", exit_code=2
        )
    return key


def _tell(note: "BackupNote", facts: dict[str, Any]) -> None:
    rate = facts["copied_bytes"] / MIB / max(facts["copied_s"], 0.001)
    typer.echo(
        f"{facts['directory']} is a backup of {note.broker_group}: {note.manifest.size_bytes:,} bytes, verified, up to entry "
        f"{note.cut.index} (made at {note.made_at})."
    )
    typer.echo(f"{facts['copied_bytes']:,} bytes were copied in {facts['copied_s']:.1f} s ({rate:.0f} MiB/s).")
    typer.echo(
        f"Keep it as you keep your messages: it holds all of them. To use it: ternmq restore {facts['directory']} ..."
    )
