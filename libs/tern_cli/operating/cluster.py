"""`ternmq init-cluster`: the authority, certificates and secrets of a cluster, in one directory.

The command prints names, never a secret.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json
from tern_security.cluster_directory import ClusterDirectory, DirectoryUnusable, Made, Wanted
from tern_security.peer_identity import BROKER, CHECKER, CLIENT, NAME_SERVER, OPERATOR, PROXY, PeerIdentity

# A client that only reads: metrics and health of every process.
SCRAPER = "scraper"


def init_cluster(
    directory: Annotated[Path, typer.Argument(help="Directory of the files; created if missing.")],
    *,
    cluster: Annotated[str, typer.Option(help="The cluster's name.  [default: tern, or that of the directory]")] = "",
    name_servers: Annotated[int, typer.Option(min=0, max=99, help="namesrv-0, namesrv-1 ...")] = 2,
    brokers: Annotated[int, typer.Option(min=0, max=5, help="Of each broker group: broker-a-0 ...")] = 3,
    broker_group: Annotated[list[str] | None, typer.Option(help="Repeat for several.  [default: broker-a]")] = None,
    proxies: Annotated[int, typer.Option(min=0, max=99, help="proxy-0 ...")] = 2,
    checkers: Annotated[int, typer.Option(min=0, max=99, help="checker-0 ...")] = 2,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROLE/NAME", help="A further process; roles: name-server, broker, proxy, checker, client."
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=HOST,...", help="DNS names and addresses of a process, beside its name and localhost."
        ),
    ] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Reissue every certificate, for 90 days.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Make the authority, certificates, cluster key and root key of a secure cluster.

    Every process gets its own certificate. Run the command again to add missing
    files; nothing is overwritten, except certificates with --renew. Processes
    load renewed certificates within 5 s, without a restart. Store ca.key outside
    the cluster: only this command needs it. root.key manages keys and grants, and
    can neither send nor receive.

    [bold]Examples[/bold]

    ternmq init-cluster cluster --cluster shop
    ternmq init-cluster cluster --host proxy-0=mq.example.com,10.1.2.3
    ternmq init-cluster cluster --add broker/broker-b-0 --add client/prometheus
    ternmq init-cluster cluster --renew
    """
    hosts = _hosts(host or [])
    names = [
        *((NAME_SERVER, f"namesrv-{number}") for number in range(name_servers)),
        *((BROKER, f"{group}-{number}") for group in broker_group or ["broker-a"] for number in range(brokers)),
        *((PROXY, f"proxy-{number}") for number in range(proxies)),
        *((CHECKER, f"checker-{number}") for number in range(checkers)),
        (CLIENT, OPERATOR),
        (CLIENT, SCRAPER),
        *(_added(text) for text in add or []),
    ]
    if unknown := hosts.keys() - {name for _, name in names}:
        raise CommandFailed("Not a process of this cluster", f"--host names {', '.join(sorted(unknown))}.", exit_code=2)
    wanted = [Wanted(role=role, name=name, hosts=hosts.get(name, ())) for role, name in dict.fromkeys(names)]
    made = make_cluster(directory, wanted, cluster=cluster, renew=renew)
    if output is Format.JSON:
        show_json({"directory": str(directory), "created": made.created, "renewed": made.renewed, "kept": made.kept})
        return
    for what, paths in (("created", made.created), ("renewed", made.renewed)):
        for path in paths:
            typer.echo(f"{what} {directory / path}")
    typer.echo(f"{len(made.created)} created, {len(made.renewed)} renewed, {made.kept} kept.")


def make_cluster(directory: Path, wanted: list[Wanted], *, cluster: str, renew: bool = False) -> Made:
    """Make the *wanted* files that are missing, dated now (ClusterDirectory.make).
    CommandFailed (exit 2) when the directory or a name cannot be used.
    """
    found = ClusterDirectory(directory)
    try:
        return found.make(wanted, cluster=cluster or ("" if found.exists() else "tern"), now_s=time.time(), renew=renew)
    except (DirectoryUnusable, ValueError) as error:
        raise CommandFailed("The cluster directory cannot be used", str(error), exit_code=2) from error


def _hosts(options: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for option in options:
        name, equals, hosts = option.partition("=")
        listed = tuple(host.strip() for host in hosts.split(",") if host.strip())
        if not equals or not name or not listed:
            raise CommandFailed("Not hosts of a process", f"--host '{option}': write NAME=HOST,HOST.", exit_code=2)
        found[name] = (*found.get(name, ()), *listed)
    return found


def _added(text: str) -> tuple[str, str]:
    role, _, name = text.partition("/")
    try:
        PeerIdentity(cluster="x", role=role, name=name)
    except ValueError as error:
        raise CommandFailed("Not a process", f"--add '{text}': {error}", exit_code=2) from error
    return role, name
