"""`ternmq dlq ls|show|redrive|task|cancel|purge`: the dead letters of a group."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tern_cli.commands.admin import Group
from tern_cli.endpoint import Endpoint, administration
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output, show_facts, show_json, show_rows
from tern_cli.progress import counting
from tern_cli.views.dead_letter_view import letter_row, read_list, readable_letter, show_tasks
from tern_client import BlockingAdmin
from tern_wire.limits import DEAD_LETTERS_PAGE_MAX, REDRIVE_OFFSETS_MAX, REDRIVE_RATE_MAX_PER_S
from tern_wire.paths import TO_ORIGIN

dlq_app = typer.Typer(
    no_args_is_help=True, help="Dead letters of a group: ls, show, redrive, purge; and the tasks of redrives."
)

_TIME_HELP = "Ms since 1970, or a time such as 2026-01-31T12:00:00Z."
OfTopic = Annotated[str, typer.Option("-t", "--topic", help="Only those of this topic.", show_default=False)]
OfTag = Annotated[str, typer.Option("--tag", help="Only those with this tag.", show_default=False)]
OfReason = Annotated[
    str, typer.Option("--reason", help="Only those whose reason contains this text.", show_default=False)
]
Begin = Annotated[str, typer.Option("--from", help=f"Died at this time or later. {_TIME_HELP}", show_default=False)]
End = Annotated[str, typer.Option("--to", help=f"Died before this time. {_TIME_HELP}", show_default=False)]
EndOrTarget = Annotated[
    str,
    typer.Option(
        "--to",
        help=f"Died before this time. {_TIME_HELP} Or 'origin': to their original queues, the default; alone it means --all.",
        show_default=False,
    ),
]
Task = Annotated[str, typer.Argument(help="The task's id, which `redrive` prints.", show_default=False)]
# Between two looks at a task of a list.
_POLL_S = 0.1
_COLUMNS = ("offset", "topic", "queue", "at", "attempts", "cause", "reason", "dead_at")


@dlq_app.command("ls")
def list_letters(
    group: Group,
    *,
    topic: OfTopic = "",
    tag: OfTag = "",
    reason: OfReason = "",
    begin: Begin = "",
    end: End = "",
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=DEAD_LETTERS_PAGE_MAX, help="Maximum number.")] = 32,
    cursor: Annotated[str, typer.Option("--cursor", help="Continue after a page: its next_cursor.")] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """List dead letters, oldest first: their origin, their attempts and the reason of their death.

    [bold]Examples[/bold]

    ternmq dlq ls billing
    ternmq dlq ls billing --topic orders --reason 'no such shop' -n 100
    """

    with administration(endpoint) as admin:
        page = admin.dead_letters(
            group, topic=topic, tag=tag, reason=reason, begin=begin, end=end, limit=limit, cursor=cursor
        )
    messages = [readable_letter(message) for message in page["messages"]]
    if output is Format.JSON:
        show_json({**page, "messages": messages})
        return
    show_rows([letter_row(message) for message in messages], _COLUMNS, output)
    if page.get("next_cursor"):
        typer.echo(f"There may be more: --cursor {page['next_cursor']}")
    elif not messages and not cursor:
        typer.echo(f"No dead letters of {group}.")


@dlq_app.command("show")
def show_letter(
    group: Group,
    offset: Annotated[str, typer.Argument(help="The offset that `ls` shows, such as broker-a:17.", show_default=False)],
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Show one dead letter with its body.

    [bold]Examples[/bold]

    ternmq dlq show billing broker-a:17
    """

    with administration(endpoint) as admin:
        found = admin.dead_letters(group, limit=1, cursor=offset)["messages"]
    if not found or found[0]["dlq"]["offset"] != offset:
        raise CommandFailed(
            "There is no such dead letter",
            f"{offset} was redriven, purged, or dropped by retention: see ternmq dlq ls {group}.",
        )
    message = readable_letter(found[0])
    if output is Format.JSON:
        show_json(message)
    else:
        facts = {**{name: value for name, value in message.items() if name != "dlq"}, **letter_row(message)}
        show_facts(facts)


@dlq_app.command("redrive")
def redrive_letters(
    group: Annotated[str, typer.Argument(help="The consumer group's name.", show_default=False)] = "",
    offsets: Annotated[
        list[str] | None,
        typer.Argument(help="Offsets that `ls` shows, such as broker-a:17.", show_default=False),
    ] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="The letters of a list that `ternmq spark run dlq --redrive` wrote; - for stdin."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the group.")] = False,
    topic: OfTopic = "",
    tag: OfTag = "",
    reason: OfReason = "",
    begin: Begin = "",
    end: EndOrTarget = "",
    rate: Annotated[
        int, typer.Option("--rate", min=0, max=REDRIVE_RATE_MAX_PER_S, help="Messages per second; 0: unlimited.")
    ] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the dead letters that would be redriven; redrive none.")
    ] = False,
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Deliver dead letters to their group again, with fresh delivery attempts.

    The messages come from their original queues, as if they had never been
    received. A task does the work: `ternmq dlq task` shows its progress, `ternmq
    dlq cancel` ends it.

    [bold]Examples[/bold]

    ternmq dlq redrive billing broker-a:17 broker-a:21
    ternmq dlq redrive billing --topic orders --reason 'no such shop' --rate 100
    ternmq dlq redrive billing --all --dry-run
    ternmq dlq redrive billing --to origin
    ternmq dlq redrive --file letters.ndjson --rate 100
    """

    conditions = (offsets, everything, topic, tag, reason, begin, end)
    if file is not None:
        if any(conditions):
            raise CommandFailed("Which dead letters?", "A list names them all: leave the rest out.", exit_code=2)
        with administration(endpoint) as admin:
            show_tasks(_redrive_list(admin, file, group, rate, dry_run=dry_run), output)
        return
    if not group:
        raise CommandFailed("Which dead letters?", "Name a group, or a list with --file.", exit_code=2)
    if not any(conditions):
        raise CommandFailed("Which dead letters?", "Name offsets, a condition such as --topic, or --all.", exit_code=2)
    with administration(endpoint) as admin:
        task = admin.redrive(
            group,
            offsets=offsets or (),
            everything=everything,
            topic=topic,
            tag=tag,
            reason=reason,
            begin=begin,
            end="" if end == TO_ORIGIN else end,
            to=TO_ORIGIN if end == TO_ORIGIN else "",
            rate=rate,
            dry_run=dry_run,
        )
    show_tasks([task], output)


@dlq_app.command("task")
def show_task(task: Task, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """Show the progress of a redrive, and the dead letters that it could not redrive.

    [bold]Examples[/bold]

    ternmq dlq task 5b1f0c9a7e2d4c3b8a190f6e
    """

    with administration(endpoint) as admin:
        show_tasks([admin.task(task)], output)


@dlq_app.command("cancel")
def cancel_task(task: Task, endpoint: Endpoint = "", output: Output = Format.TABLE) -> None:
    """End a redrive; messages redriven so far stay redriven.

    [bold]Examples[/bold]

    ternmq dlq cancel 5b1f0c9a7e2d4c3b8a190f6e
    """

    with administration(endpoint) as admin:
        show_tasks([admin.cancel_task(task)], output)


@dlq_app.command("purge")
def purge_letters(
    group: Group,
    confirm: Annotated[
        str, typer.Option("--confirm", help="The group's name again, as confirmation.", show_default=False)
    ] = "",
    endpoint: Endpoint = "",
    output: Output = Format.TABLE,
) -> None:
    """Drop all dead letters of a group permanently.

    [bold]Examples[/bold]

    ternmq dlq purge billing --confirm billing
    """

    if confirm != group:
        raise CommandFailed("Not confirmed", f"Nothing was dropped. Repeat with --confirm {group}.", exit_code=2)
    with administration(endpoint) as admin:
        purged = admin.purge_dead_letters(group)
    if output is Format.JSON:
        show_json({"group": group, "purged": purged})
    else:
        typer.echo(f"{purged} dead letters of {group} are dropped.")


def _redrive_list(admin: BlockingAdmin, file: Path, group: str, rate: int, *, dry_run: bool) -> list[dict[str, Any]]:
    """Redrive the letters of *file*, those of *group* alone unless it is ""; return the tasks. One
    goes on after the other, so that few are kept at a time.
    """
    with sys.stdin.buffer if str(file) == "-" else file.open("rb") as lines:
        listed = read_list(lines, str(file))
    if group:
        listed = {group: listed.get(group, [])}
    parts = [
        (name, offsets[at : at + REDRIVE_OFFSETS_MAX])
        for name, offsets in listed.items()
        for at in range(0, len(offsets), REDRIVE_OFFSETS_MAX)
    ]
    if not parts:
        raise CommandFailed(
            "There is nothing to redrive", f"{file} names no dead letters{f' of {group}' if group else ''}."
        )
    tasks = []
    with counting(len(parts), "redrives") as advance:
        for name, part in parts:
            task = admin.redrive(name, offsets=part, rate=rate, dry_run=dry_run)
            while task["state"] == "running":
                time.sleep(_POLL_S)
                task = admin.task(task["task"])
            tasks.append(task)
            advance()
    return tasks
