"""The commands of `ternmq` by name, each imported when it is run or shown.

Importing all of them costs a third of a second, most of it for what one command does not use.
"""

# ruff: noqa: PLC0415 - that is what this file is for

from collections.abc import Callable
from functools import cache
from typing import Any

import typer
from typer.main import get_group

# In the order in which `ternmq --help` shows panels and commands.
PANELS: dict[str, tuple[str, ...]] = {
    "Mesh": ("up", "down", "status", "init-cluster", "demo"),
    "Messages": ("send", "recv", "tail", "worker", "request", "reply", "msg", "scheduled", "dlq", "tx"),
    "Files": ("backup", "restore", "spark", "store"),
    "Admin": (
        "context",
        "definitions",
        "offsets",
        "topic",
        "lease",
        "publication",
        "group",
        "producer-group",
        "key",
        "acl",
        "namesrv",
        "broker-group",
        "raft",
    ),
}
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


def names() -> list[str]:
    """The names of all commands."""
    return list(_PANEL_OF)


def load(name: str) -> Any:
    """The click command *name*, or None if there is none. ImportError if the installation lacks
    something.
    """
    panel = _PANEL_OF.get(name)
    if panel is None:
        return None
    holder, found = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False), _import(name)
    # With a callback even one command is a group's.
    holder.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, rich_help_panel=panel)
    else:
        holder.command(name=name, rich_help_panel=panel)(found)
    return get_group(holder).commands[name]


def _import(name: str) -> typer.Typer | Callable[..., Any]:
    """The function or the group of commands *name*."""
    match name:
        case "up" | "down" | "status":
            from tern_cli.commands import mesh

            return mesh.up if name == "up" else mesh.down if name == "down" else mesh.status
        case "init-cluster":
            from tern_cli.operating.cluster import init_cluster

            return init_cluster
        case "send" | "recv":
            from tern_cli.commands import message

            return message.send if name == "send" else message.recv
        case "tail":
            from tern_cli.live.tail import tail

            return tail
        case "worker":
            from tern_cli.worker.command import worker

            return worker
        case "request" | "reply":
            from tern_cli.commands import request

            return request.request if name == "request" else request.reply
        case "backup" | "restore":
            from tern_cli import backup

            return backup.backup if name == "backup" else backup.restore
        case "offsets":
            from tern_cli.commands.admin import show_offsets

            return show_offsets
        case _:
            return _import_group(name)


@cache
def _import_group(name: str) -> typer.Typer:
    """A group of commands, with those that other subjects add to it."""
    match name:
        case "context":
            from tern_cli.commands.context import context_app as group
        case "definitions":
            from tern_cli.definitions.commands import definitions_app as group
        case "demo":
            from tern_cli.demo.commands import demo_app as group
        case "msg":
            from tern_cli.commands.query import msg_app as group
        case "scheduled":
            from tern_cli.commands.scheduled import scheduled_app as group
        case "dlq":
            from tern_cli.commands.dlq import dlq_app as group
        case "tx":
            from tern_cli.commands.tx import tx_app as group
        case "spark":
            from tern_cli.commands.spark import spark_app as group
        case "store":
            from tern_cli.store import store_app as group
        case "topic":
            from tern_cli.commands.placement import place_topic, show_placement
            from tern_cli.commands.query import show_topic_stats
            from tern_cli.commands.topic import topic_app as group

            group.command(name="stats")(show_topic_stats)
            group.command(name="placement")(show_placement)
            group.command(name="place")(place_topic)
        case "lease":
            from tern_cli.commands.lease import lease_app as group
        case "publication":
            from tern_cli.commands.publication import publication_app as group
        case "group":
            from tern_cli.commands.group import group_app as group
            from tern_cli.commands.member import list_assignments, list_locks, list_members
            from tern_cli.commands.query import seek_group, show_lag

            group.command(name="lag")(show_lag)
            group.command(name="seek")(seek_group)
            group.command(name="members")(list_members)
            group.command(name="assignments")(list_assignments)
            group.command(name="locks")(list_locks)
        case "producer-group":
            from tern_cli.commands.producer_group import producer_group_app as group
        case "key":
            from tern_cli.commands.key import key_app as group
        case "acl":
            from tern_cli.commands.acl import acl_app as group
        case "namesrv":
            from tern_cli.operating.namesrv import namesrv_app as group
        case "broker-group":
            from tern_cli.operating.broker_group import broker_group_app as group
            from tern_cli.operating.broker_group_drain import drain_broker_group

            group.command("drain")(drain_broker_group)
        case "raft":
            from tern_cli.operating.pass_over import raft_app as group
        case _:
            raise AssertionError(f"{name} is in PANELS and not here")
    return group
