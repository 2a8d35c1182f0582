"""`ternmq up`, `down`, `status`: the mesh on one machine as separate supervised processes."""

import contextlib
import os
import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_cli.mesh.hints import try_it, with_data_dir
from tern_cli.output import Format, Output, show_json, show_rows, show_warning
from tern_cli.variables import DATA_DIR, DATA_DIR_VARIABLE

DataDir = Annotated[
    str, typer.Option("--data-dir", envvar=DATA_DIR_VARIABLE, help="Directory of the mesh's data, logs and key.")
]
_MIB = 1024 * 1024
CHECK_HOSTS_VARIABLE = "TERNMQ_CHECK_HOSTS"
CHECK_HTTP_VARIABLE = "TERNMQ_CHECK_HTTP"


def up(
    *,
    brokers: Annotated[int | None, typer.Option(help="Nodes of the broker group: 1, 3 or 5; 3 by default.")] = None,
    proxies: Annotated[int | None, typer.Option(min=1, max=9, help="Number of proxies.")] = None,
    namesrvs: Annotated[int | None, typer.Option(min=1, max=9, help="Number of name servers.")] = None,
    checkers: Annotated[
        int | None,
        typer.Option(min=0, max=9, help="Number of transaction checkers; 1 by default, 0: checks by pull only."),
    ] = None,
    data_dir: DataDir = DATA_DIR,
    port_base: Annotated[
        int | None,
        typer.Option(
            min=1024,
            max=65_400,
            help="Base of all ports: proxies +0, name servers +10, brokers +20, +30 ..., checkers +70.",
        ),
    ] = None,
    proxy_port: Annotated[int | None, typer.Option(min=1, max=65_000, help="First proxy's port; 8080.")] = None,
    namesrv_port: Annotated[int | None, typer.Option(min=1, max=65_000, help="First name server's port; 9876.")] = None,
    broker_port: Annotated[
        int | None,
        typer.Option(min=1, max=65_000, help="First broker's link port; 10911. Node i: +10*i, and +1 Raft, +2 HTTP."),
    ] = None,
    checker_port: Annotated[int | None, typer.Option(min=1, max=65_000, help="First checker's port; 8090.")] = None,
    check_hosts: Annotated[
        str | None,
        typer.Option(
            envvar=CHECK_HOSTS_VARIABLE,
            help="Hosts that checkers may call, separated by commas: host, host:port, host:*, *.example.com, 10.1.0.0/16. "
            "By default this machine only.",
        ),
    ] = None,
    check_http: Annotated[
        bool | None,
        typer.Option(
            envvar=CHECK_HTTP_VARIABLE,
            help="Whether hosts with private addresses may be called by http as well as https.",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster's name.")] = None,
    secure: Annotated[
        bool | None,
        typer.Option(
            "--secure/--no-secure",
            help="TLS everywhere, and a key for every request, as required beyond loopback.",
            show_default=False,
        ),
    ] = None,
    disk_budget: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Maximum bytes of all brokers' files together, enforced by retention. By default 20 GiB or half of "
            "the free space; 0: the whole disk.",
        ),
    ] = None,
    segment_size_bytes: Annotated[int | None, typer.Option(hidden=True, min=65_536)] = None,
    wait: Annotated[
        float, typer.Option(min=1, max=600, help="Seconds within which the mesh must accept a message.")
    ] = 20.0,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay in the foreground; Ctrl-C stops the mesh.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Start the mesh on this machine and return when it accepts a message.

    The command starts name servers, brokers, proxies and transaction checkers as
    separate processes, restarts those that die, and stores its options: the next
    `ternmq up` needs none. If the mesh already runs, nothing changes; options
    that differ from the running mesh are named, with exit code 2. Nodes that take
    no part (quarantined, failed) are named too: a mesh with a majority of its
    brokers counts as up.

    If the directory's cluster.key is lost, a new one is made, with a warning:
    older receipt handles are then refused, and their messages are delivered
    again.

    [bold]Examples[/bold]

    ternmq up
    ternmq up --brokers 1
    ternmq up --data-dir .tern-b --port-base 18000     (a second mesh beside the first)
    """
    from tern_cli.mesh.options import AskedOptions  # noqa: PLC0415 - only `up` pays for these
    from tern_cli.mesh.readiness import accepts_a_message, is_warming_up, why_not_ready  # noqa: PLC0415
    from tern_cli.mesh.start import Probes, start_mesh, start_notes, stop_mesh  # noqa: PLC0415
    from tern_wire.checks.urls import CheckHosts  # noqa: PLC0415

    if brokers not in {None, 1, 3, 5}:
        raise CommandFailed("Not a size for a broker group", "--brokers takes 1, 3 or 5.", exit_code=2)
    try:
        CheckHosts.parse(check_hosts or "")
    except ValueError as error:
        raise CommandFailed("Not a list of hosts", f"{error} (--check-hosts)", exit_code=2) from error
    given = {
        "brokers": brokers,
        "proxies": proxies,
        "namesrvs": namesrvs,
        "checkers": checkers,
        "proxy_port": proxy_port,
        "namesrv_port": namesrv_port,
        "broker_port": broker_port,
        "checker_port": checker_port,
        "check_hosts": check_hosts,
        "check_http": check_http,
        "cluster": cluster,
        "secure": secure,
        "segment_size_bytes": segment_size_bytes,
        "disk_budget_bytes": disk_budget,
    }
    asked = AskedOptions(
        fields={name: value for name, value in given.items() if value is not None},
        port_base=port_base or 0,
        foreground=foreground,
    )
    files = MeshFiles(data_dir)
    warnings: list[str] = []

    def warn(text: str) -> None:
        warnings.append(text)
        show_warning(text)

    probes = Probes(accepts=accepts_a_message, warms_up=is_warming_up, why_not_ready=why_not_ready)
    started = start_mesh(files, asked, wait_s=wait, probes=probes, warn=warn)
    found = start_notes(files)
    if output is Format.JSON:
        facts: dict[str, Any] = {"already_running": started.already_running, "seconds": round(started.seconds, 3)}
        show_json({**facts, "warnings": warnings, "notes": found, "mesh": started.mesh})
    else:
        say = "The mesh is already running" if started.already_running else "The mesh is up"
        typer.echo(f"{say} ({started.seconds:.1f} s, {len(started.mesh['processes'])} processes, {files.root})")
        typer.echo(f"Endpoint: {' '.join(started.mesh['proxies'])}")
        _show_notes(found)
        typer.echo("\nTry:")
        for line in try_it(started.mesh["proxies"][0], files.root, folder=Path.cwd(), environ=os.environ):
            typer.echo(f"  {line}")
    if started.supervisor and foreground:
        # Ctrl-C reaches the supervisor too, which is in the same process group; it stops the mesh
        # and ends.
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGTERM, lambda *_: _interrupt())
            started.supervisor.wait()
        stop_mesh(files)
        started.supervisor.wait()


def _interrupt() -> None:
    raise KeyboardInterrupt


def _show_notes(found: list[str]) -> None:
    for note in found:
        typer.echo(f"{typer.style('note:', fg='yellow')} {note}")


def down(data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Stop the mesh within 10 s: proxies and checkers, then brokers, then name servers.

    Messages and settings stay on the disk; `ternmq up` starts the mesh again.

    [bold]Examples[/bold]

    ternmq down
    ternmq down --data-dir .tern-b
    """
    from tern_cli.mesh.start import stop_mesh  # noqa: PLC0415

    files = MeshFiles(data_dir)
    stopped = stop_mesh(files)
    if output is Format.JSON:
        show_json({"stopped": stopped, "data_dir": str(files.root)})
    else:
        typer.echo(f"The mesh is down ({files.root})" if stopped else f"No mesh was running in {files.root}")


def status(data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Show each process of the mesh: role, pid, ports, state, memory, restarts, leadership.

    Notes below the table name problems: a node that is quarantined (file,
    position, reason), that has failed (with the last line of its log), that
    rebuilds derived files, or that refuses sends because its disk is full.

    Exit code 1 when no mesh runs, or when one of its processes does not run or is
    quarantined.

    [bold]Examples[/bold]

    ternmq status
    ternmq status -o json
    """
    from tern_cli.mesh.start import living  # noqa: PLC0415
    from tern_cli.mesh.view import leaders, notes, process_rows  # noqa: PLC0415

    files = MeshFiles(data_dir)
    mesh = files.read_mesh()
    if not mesh or not living(mesh):
        start = with_data_dir("ternmq up", files.root)
        raise CommandFailed("No mesh runs here", f"{files.root} has no running mesh. Start one: {start}.")
    rows = process_rows(files, mesh, leaders(mesh["namesrvs"], str(files.root)))
    if output is Format.JSON:
        show_json(
            {"cluster": mesh["cluster"], "data_dir": mesh["data_dir"], "proxies": mesh["proxies"], "processes": rows}
        )
    else:
        shown = [{**row, "rss": f"{row['rss_bytes'] / _MIB:.0f} MiB", "ports": _ports(row["ports"])} for row in rows]
        columns = ("name", "role", "pid", "ports", "state", "rss", "restarts", "leader")
        show_rows(shown, columns, output, title=f"cluster {mesh['cluster']} in {mesh['data_dir']}")
        total = sum(row["rss_bytes"] for row in rows) / _MIB
        typer.echo(f"{total:.0f} MiB in all. Logs: {os.path.relpath(files.root / 'logs')}")
        _show_notes(notes(files, rows))
    if any(row["state"] != "running" for row in rows):
        raise typer.Exit(1)


def _ports(ports: dict[str, int]) -> str:
    return " ".join(f"{use} {port}" for use, port in ports.items())
