"""`ternmq namesrv`: name servers compared, their configuration, routes, and write permissions."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from tern_cli.commands.mesh import DataDir
from tern_cli.endpoint import name_servers
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows, show_warning
from tern_cli.variables import DATA_DIR
from tern_cli.views.namesrv_view import Said, answered, ask_all, permit, taken_by_all
from tern_wire.paths import CLUSTER_PATH, KV_PATH, kv_path, topic_route_path
from tern_wire.routing.route import PERM_READ, PERM_WRITE

namesrv_app = typer.Typer(no_args_is_help=True, help="Inspect and configure the name servers.")
kv_app = typer.Typer(no_args_is_help=True, help="Configuration by namespace and key, at every name server.")
namesrv_app.add_typer(kv_app, name="kv")

NameServers = Annotated[
    list[str] | None,
    typer.Option(
        "--namesrv",
        envvar="TERNMQ_NAMESRV",
        help="Name servers, repeated or separated by commas.  [default: those of the mesh]",
        show_default=False,
    ),
]
Namespace = Annotated[str, typer.Argument(help="The namespace, such as ORDER_TOPIC_CONFIG.", show_default=False)]
Key = Annotated[str, typer.Argument(help="The key, such as a topic's name.", show_default=False)]
Group = Annotated[str, typer.Argument(help="The broker group, such as broker-a.", show_default=False)]


@namesrv_app.command("status")
def namesrv_status(namesrv: NameServers = None, data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE) -> None:
    """Show the state of each name server: live brokers, leaders, topics, configurations.

    Name servers do not talk to each other, so their rows may differ for one
    heartbeat after a change. Exit code 1 when one does not answer.

    [bold]Examples[/bold]

    ternmq namesrv status
    ternmq namesrv status -o json
    ternmq namesrv status --namesrv http://10.0.0.1:9876 --namesrv http://10.0.0.2:9876
    """
    said = ask_all(name_server_urls(namesrv, data_dir), "GET", CLUSTER_PATH, data_dir=data_dir)
    rows = [_status_row(one) for one in said]
    if output is Format.JSON:
        show_json([{"name_server": one.url, "answers": one.is_good, **one.document} for one in said])
    else:
        show_rows(rows, list(rows[0]), output)
    if not all(one.is_good for one in said):
        raise typer.Exit(1)


@namesrv_app.command("route")
def topic_route(
    topic: Annotated[str, typer.Argument(help="The topic's name.", show_default=False)],
    namesrv: NameServers = None,
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Show the route of a topic: queues, permission and leader in every broker group.

    The topic's ordered configuration is shown too, if it has one.

    [bold]Examples[/bold]

    ternmq namesrv route orders
    ternmq namesrv route orders -o json
    """
    said = ask_all(
        name_server_urls(namesrv, data_dir), "GET", topic_route_path(quote(topic, safe="")), data_dir=data_dir
    )
    route = next((one for one in answered(said) if one.document.get("warm")), answered(said)[0]).document
    if output is Format.JSON:
        show_json(route)
        return
    rows: list[dict[str, Any]] = []
    for row in route["queue_data"]:
        group = route["broker_groups"][row["broker_group"]]
        shown = {"broker_group": row["broker_group"], "leader": group["leader"] or "-", "nodes": len(group["nodes"])}
        rows.append(
            {**shown, **{name: row[name] for name in ("read_queues", "write_queues")}, "perm": _perm(row["perm"])}
        )
    show_rows(rows, list(rows[0]), output)
    if route["order"]:
        typer.echo(f"Ordered configuration: {route['order']}")


@namesrv_app.command("wipe-write")
def wipe_write(
    broker_group: Group, namesrv: NameServers = None, data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE
) -> None:
    """Withdraw a broker group's write permission.

    No new messages go there; stored messages are still received and settled.
    Messages whose idempotency key or pinned queue belongs there are refused
    meanwhile. Proxies follow with their next poll. The withdrawal survives
    restarts and lasts until it is undone. To remove a broker group from service,
    use `ternmq broker-group drain`, which includes this step.

    [bold]Examples[/bold]

    ternmq namesrv wipe-write broker-a
    """
    _permit(broker_group, name_server_urls(namesrv, data_dir), data_dir, output, writable=False)


@namesrv_app.command("restore-write")
def restore_write(
    broker_group: Group, namesrv: NameServers = None, data_dir: DataDir = DATA_DIR, output: Output = Format.TABLE
) -> None:
    """Restore a broker group's write permission.

    [bold]Examples[/bold]

    ternmq namesrv restore-write broker-a
    """
    _permit(broker_group, name_server_urls(namesrv, data_dir), data_dir, output, writable=True)


@kv_app.command("get")
def kv_get(
    namespace: Namespace,
    key: Key,
    namesrv: NameServers = None,
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Print one value; name servers that hold a different one are named on stderr.

    [bold]Examples[/bold]

    ternmq namesrv kv get ORDER_TOPIC_CONFIG orders
    """
    said = ask_all(name_server_urls(namesrv, data_dir), "GET", _place(namespace, key), data_dir=data_dir)
    document = answered(said)[0].document
    for one in said:
        if not one.is_good:
            show_warning(one.reason)
        elif one.document["value"] != document["value"]:
            show_warning(f"{one.url} holds another value: {one.document['value']}")
    if output is Format.JSON:
        show_json({**document, "name_servers": {one.url: one.document.get("value") for one in said}})
    else:
        typer.echo(document["value"])


@kv_app.command("put")
def kv_put(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value, such as 'broker-a:8;broker-b:8'.", show_default=False)],
    namesrv: NameServers = None,
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Set one value at every name server.

    Exit code 1 when a name server did not accept it; the error names these
    servers.

    [bold]Examples[/bold]

    ternmq namesrv kv put ORDER_TOPIC_CONFIG orders 'broker-a:8;broker-b:8'
    """
    taken = taken_by_all(
        ask_all(name_server_urls(namesrv, data_dir), "PUT", _place(namespace, key), {"value": value}, data_dir=data_dir)
    )
    if output is Format.JSON:
        show_json({**taken[0].document, "name_servers": [one.url for one in taken]})
    else:
        typer.echo(f"{namespace}/{key} is set at {_servers(taken)}.")


@kv_app.command("rm")
def kv_rm(
    namespace: Namespace,
    key: Key,
    namesrv: NameServers = None,
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Remove one value from every name server; a missing value is no error.

    [bold]Examples[/bold]

    ternmq namesrv kv rm ORDER_TOPIC_CONFIG orders
    """
    taken = taken_by_all(
        ask_all(name_server_urls(namesrv, data_dir), "DELETE", _place(namespace, key), data_dir=data_dir)
    )
    removed = any(one.document["removed"] for one in taken)
    if output is Format.JSON:
        show_json({"namespace": namespace, "key": key, "removed": removed, "name_servers": [one.url for one in taken]})
    else:
        typer.echo(f"{namespace}/{key} {'is removed from' if removed else 'was not set at'} {_servers(taken)}.")


@kv_app.command("ls")
def kv_ls(
    namespace: Annotated[str, typer.Argument(help="Only this namespace.", show_default=False)] = "",
    namesrv: NameServers = None,
    data_dir: DataDir = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """List the namespaces, or the keys and values of one namespace.

    The column `name servers` counts the servers that hold the same value.

    [bold]Examples[/bold]

    ternmq namesrv kv ls
    ternmq namesrv kv ls ORDER_TOPIC_CONFIG -o json
    """
    path = kv_path(quote(namespace, safe="")) if namespace else KV_PATH
    said = ask_all(name_server_urls(namesrv, data_dir), "GET", path, data_dir=data_dir)
    good = answered(said)
    for one in said:
        if not one.is_good:
            show_warning(one.reason)
    member, columns = ("entries", ("key", "value")) if namespace else ("namespaces", ("namespace", "keys"))
    held: dict[tuple[str, Any], int] = {}
    for one in good:
        for pair in one.document[member].items():
            held[pair] = held.get(pair, 0) + 1
    rows: list[dict[str, Any]] = [
        {columns[0]: name, columns[1]: value, "name_servers": f"{count}/{len(said)}"}
        for (name, value), count in sorted(held.items(), key=lambda row: row[0][0])
    ]
    show_rows(rows, (*columns, "name_servers"), output)


def _permit(broker_group: str, urls: list[str], data_dir: str, output: Format, *, writable: bool) -> None:
    taken, topics = permit(urls, broker_group, writable=writable, data_dir=data_dir)
    if output is Format.JSON:
        facts = {"broker_group": broker_group, "writable": writable, "topics": topics}
        show_json({**facts, "name_servers": [one.url for one in taken]})
    else:
        does = "may be written again" if writable else "is not written any more"
        typer.echo(f"{broker_group} {does}: {topics} topics, at {_servers(taken)}.")


def name_server_urls(namesrv: list[str] | None, data_dir: str) -> list[str]:
    """Return the URLs of the named name servers, or of the mesh's."""
    return [url.rstrip("/") for url in name_servers(",".join(namesrv or ()), data_dir)]


def _place(namespace: str, key: str) -> str:
    """Return the path of one value; CommandFailed (exit 2) for an empty namespace or key."""
    if not namespace or not key:
        raise CommandFailed("No name", "A namespace and a key have at least one letter.", exit_code=2)
    return kv_path(quote(namespace, safe=""), quote(key, safe=""))


def _servers(said: list[Said]) -> str:
    return f"{len(said)} name server{'' if len(said) == 1 else 's'}"


def _perm(bits: int) -> str:
    """Return permissions for people, such as `RW` or `R-`."""
    return f"{'R' if bits & PERM_READ else '-'}{'W' if bits & PERM_WRITE else '-'}"


def _status_row(said: Said) -> dict[str, Any]:
    facts = said.document
    if not said.is_good:
        unknown = ("state", "groups", "nodes", "leaders", "topics", "configurations", "not_writable")
        return {"name_server": said.url, **dict.fromkeys(unknown, "-"), "state": "no answer"}
    groups = facts["broker_groups"]
    return {
        "name_server": said.url,
        "state": "warm" if facts["warm"] else "warming up",
        "groups": len(groups),
        "nodes": sum(len(group["nodes"]) for group in groups.values()),
        "leaders": ", ".join(sorted(group["leader"] for group in groups.values() if group["leader"])) or "-",
        "topics": facts["topics"],
        "configurations": facts["configurations"],
        "not_writable": ", ".join(facts["wiped"]) or "-",
    }
