"""`ternmq acl grant|deny|remove|ls|check|quota`: permissions of principals."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from tern_cli.commands.key import PrincipalName
from tern_cli.commands.topic import Sure, confirm
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_json, show_rows
from tern_cli.views.acl_lines import (
    CONSUMER,
    PRODUCER,
    actions_of,
    grants_in,
    objects_of,
    of_role,
    principal_in,
    wanted,
    with_less,
    with_more,
)
from tern_client import BlockingAdmin
from tern_wire.errors import PrincipalChanged, PrincipalNotFound
from tern_wire.principals.principals import ACTIONS, ALL, ALLOW, DENY, ROOT, ROOT_NAME, Grant, deciding, is_permitted

acl_app = typer.Typer(
    no_args_is_help=True,
    help=f"""Show and change the permissions of principals.

    Everything that no grant allows is denied, and a denial overrides all other
    grants. Names may end with '*': orders* is every topic whose name begins with
    orders. A principal sees only the objects that it may use or change.

    Actions: {", ".join(ACTIONS)}, or {ALL}.

    Sending needs PUB on the topic. Receiving needs SUB on the topic, and SUB and
    ACK on the group. Transactions need PUB on the topic and TXN on the producer
    group. Managing principals needs ADMIN on the cluster. --producer and
    --consumer grant these sets.""",
)

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Topics: a name, or prefix*; repeatable.")
]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="Consumer groups, as --topic.")]
ProducerGroups = Annotated[
    list[str] | None, typer.Option("--producer-group", metavar="NAME", help="Producer groups, as --topic.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Actions = Annotated[
    str, typer.Argument(metavar="[ACTIONS]", help="Actions, such as PUB,SUB, or ALL.", show_default=False)
]
_COLUMNS = ("principal", "effect", "actions", "kind", "pattern")
# Attempts of a change while other clients change the same principal.
_ATTEMPTS = 5


@acl_app.command("grant")
def grant(
    principal: PrincipalName,
    actions: Actions = "",
    *,
    topic: Topics = None,
    group: Groups = None,
    producer_group: ProducerGroups = None,
    cluster: Cluster = False,
    producer: Annotated[
        bool, typer.Option("--producer", help="PUB of the topics, TXN of the producer groups.")
    ] = False,
    consumer: Annotated[bool, typer.Option("--consumer", help="SUB of the topics, SUB and ACK of the groups.")] = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Allow a principal actions on the named objects, in addition to its other grants.

    The principal is created if it does not exist. --producer and --consumer grant
    the usual sets of actions.

    [bold]Examples[/bold]

    ternmq acl grant shop --producer --topic orders
    ternmq acl grant billing --consumer --topic orders --group billing
    ternmq acl grant shop PUB,CREATE --topic 'shop-*'
    ternmq acl grant operator ADMIN,DESCRIBE --cluster
    """
    objects = objects_of(topic, group, producer_group, cluster=cluster)
    if [bool(actions), producer, consumer].count(True) != 1:
        raise CommandFailed(
            "Which actions?", "Name actions such as PUB,SUB, or use --producer or --consumer.", exit_code=2
        )
    if actions:
        more = wanted(ALLOW, actions_of(actions), objects)
    else:
        more = of_role(PRODUCER if producer else CONSUMER, objects, word="--producer" if producer else "--consumer")
    _change(principal, lambda grants: with_more(grants, more), endpoint, output, is_creating=True)


@acl_app.command("deny")
def deny(
    principal: PrincipalName,
    actions: Annotated[
        str, typer.Argument(metavar="ACTIONS", help="Actions, such as DELETE, or ALL.", show_default=False)
    ],
    *,
    topic: Topics = None,
    group: Groups = None,
    producer_group: ProducerGroups = None,
    cluster: Cluster = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Deny a principal actions on the named objects, whatever its other grants allow.

    [bold]Examples[/bold]

    ternmq acl deny shop PUB --topic 'orders-archive-*'
    ternmq acl deny analyst ALL --topic salaries
    """
    more = wanted(DENY, actions_of(actions), objects_of(topic, group, producer_group, cluster=cluster))
    _change(principal, lambda grants: with_more(grants, more), endpoint, output, is_creating=True)


@acl_app.command("remove")
def remove(
    principal: PrincipalName,
    actions: Actions = "",
    *,
    topic: Topics = None,
    group: Groups = None,
    producer_group: ProducerGroups = None,
    cluster: Cluster = False,
    everything: Annotated[bool, typer.Option("--all", help="Delete the principal, with all grants and keys.")] = False,
    yes: Sure = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Remove actions from grants, remove whole grants, or with --all remove the principal itself.

    Only grants with exactly the named patterns change. Without actions, the whole
    grants are removed.

    [bold]Examples[/bold]

    ternmq acl remove shop PUB --topic 'shop-*'
    ternmq acl remove shop --topic 'shop-*'
    ternmq acl remove shop --all
    """
    if everything:
        if actions or topic or group or producer_group or cluster:
            raise CommandFailed("All, or some?", "--all removes the principal: name nothing else with it.", exit_code=2)
        confirm(f"Delete principal {principal} with its grants and keys?", yes=yes)
        with administration(endpoint) as admin:
            admin.delete_principal(principal)
        if output is Format.JSON:
            show_json({"principal": principal, "deleted": True})
        else:
            typer.echo(f"Principal {principal} is deleted, and its keys are refused.")
        return
    objects = objects_of(topic, group, producer_group, cluster=cluster)
    _change(
        principal, lambda grants: with_less(grants, actions_of(actions), objects), endpoint, output, is_creating=False
    )


@acl_app.command("ls")
def list_acls(
    principal: Annotated[
        str, typer.Argument(metavar="[PRINCIPAL]", help="Only grants of this principal.", show_default=False)
    ] = "",
    *,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="Grants that apply to this topic.")] = "",
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="Grants that apply to this consumer group.")
    ] = "",
    producer_group: Annotated[
        str, typer.Option("--producer-group", metavar="NAME", help="Grants that apply to this producer group.")
    ] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List grants: all of them, those of one principal, or those that apply to a topic or group.

    A grant applies to a topic or group by its full name or by a prefix.

    [bold]Examples[/bold]

    ternmq acl ls
    ternmq acl ls shop
    ternmq acl ls --topic orders
    """
    with administration(endpoint) as admin:
        rows = admin.acls(topic=topic, group=group, producer_group=producer_group)
        if principal and not any(row["principal"] == principal for row in rows):
            admin.principal(principal)  # an unknown name must not look like a principal without grants
    rows = [row for row in rows if principal in {"", row["principal"]}]
    show_rows(rows if output is Format.JSON else [_row(row) for row in rows], _COLUMNS, output)


@acl_app.command("check")
def check(
    principal: PrincipalName,
    action: Annotated[str, typer.Argument(metavar="ACTION", help="An action, such as PUB.", show_default=False)],
    *,
    topic: Annotated[str, typer.Option("--topic", metavar="NAME", help="This topic.")] = "",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="This consumer group.")] = "",
    producer_group: Annotated[str, typer.Option("--producer-group", metavar="NAME", help="This producer group.")] = "",
    cluster: Cluster = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Check whether a principal may perform an action, and show the deciding grants.

    Exit code 0: it may. Exit code 1: it may not.

    [bold]Examples[/bold]

    ternmq acl check shop PUB --topic orders
    ternmq acl check operator ADMIN --cluster
    """
    names = ([topic] if topic else None, [group] if group else None, [producer_group] if producer_group else None)
    objects = objects_of(*names, cluster=cluster)
    if len(objects) > 1:
        raise CommandFailed("Of which one?", "Name one topic, group or producer group, or the cluster.", exit_code=2)
    ((kind, (name,)),) = objects.items()
    if "*" in name and not cluster:
        raise CommandFailed("Not a name", f"Name one {kind} by its full name, without '*'.", exit_code=2)
    (asked,) = wanted(ALLOW, [action.upper()], objects)
    if asked.actions == (ALL,):
        raise CommandFailed("Not one action", f"Name one of {', '.join(ACTIONS)}.", exit_code=2)
    if principal == ROOT_NAME:
        found = ROOT
    else:
        with administration(endpoint) as admin:
            found = principal_in(admin.principal(principal))
    may = is_permitted(found, asked.actions[0], kind, name)
    because = [str(each) for each in deciding(found, asked.actions[0], kind, name)]
    if output is Format.JSON:
        show_json(
            {
                "principal": principal,
                "action": asked.actions[0],
                "kind": kind,
                "name": name,
                "allowed": may,
                "because": because,
            }
        )
    else:
        shown = "the cluster" if cluster else f"{kind} {name}"
        typer.echo(f"{principal} {'may' if may else 'may not'} {asked.actions[0]} {shown}.")
        for line in because or [
            "No grant speaks of it." if not found.is_root else "Root manages everything, and never sends or receives."
        ]:
            typer.echo(f"  {line}")
    if not may:
        raise typer.Exit(1)


@acl_app.command("quota")
def quota(
    principal: PrincipalName,
    *,
    requests_per_s: Annotated[
        int | None, typer.Option("--requests-per-s", min=0, help="Requests per second at each proxy; 0: unlimited.")
    ] = None,
    bytes_per_s: Annotated[
        int | None, typer.Option("--bytes-per-s", min=0, help="Request bytes per second at each proxy; 0: unlimited.")
    ] = None,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show or change the request quota of a principal.

    Requests beyond the quota are answered 429 quota-exceeded.

    [bold]Examples[/bold]

    ternmq acl quota shop
    ternmq acl quota shop --requests-per-s 500 --bytes-per-s 10000000
    """
    with administration(endpoint) as admin:
        found = admin.principal(principal)
        if requests_per_s is not None or bytes_per_s is not None:
            found = admin.put_principal(principal, requests_per_s=requests_per_s, bytes_per_s=bytes_per_s)
    row = {name: found[name] for name in ("principal", "requests_per_s", "bytes_per_s")}
    if output is Format.JSON:
        show_json(row)
    else:
        show_rows([row], tuple(row), output)


def _change(
    principal: str, make: Callable[[list[Grant]], list[Grant]], endpoint: str, output: Format, *, is_creating: bool
) -> None:
    """Replace the grants of *principal* by the result of *make*.
    When another client changes them meanwhile, they are read again and the change is repeated.
    """
    with administration(endpoint) as admin:
        for attempt in range(_ATTEMPTS):
            before = _find(admin, principal, is_creating=is_creating)
            try:
                after = admin.put_principal(principal, grants=make(grants_in(before)), version=before["version"])
                break
            except PrincipalChanged:
                if attempt == _ATTEMPTS - 1:
                    raise
    if output is Format.JSON:
        show_json(after)
        return
    if not before["version"]:
        typer.echo(f"{principal} is a new principal. It needs a key: ternmq key create {principal} --out FILE")
    show_rows([_row({"principal": principal, **line}) for line in after["grants"]], _COLUMNS, output)


def _find(admin: BlockingAdmin, principal: str, *, is_creating: bool) -> dict[str, Any]:
    try:
        return admin.principal(principal)
    except PrincipalNotFound:
        if not is_creating:
            raise
        return {"principal": principal, "version": 0, "grants": []}


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "actions": ",".join(row["actions"])}
