"""The `ternmq` command line: its command groups, and the one place that makes exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage.

Law: a failure ends on stderr, as two lines for people or, with `-o json`, as one line of JSON that
is the last line on stderr. Stdout carries results only.
"""

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from tern_cli.backup import backup, restore
from tern_cli.command_words import asks_for_json, credentials_first, not_text
from tern_cli.commands.acl import acl_app
from tern_cli.commands.admin import show_offsets
from tern_cli.commands.broker_group import broker_group_app
from tern_cli.commands.broker_group_drain import drain_broker_group
from tern_cli.commands.cluster import init_cluster
from tern_cli.commands.dlq import dlq_app
from tern_cli.commands.group import group_app
from tern_cli.commands.key import key_app
from tern_cli.commands.lease import lease_app
from tern_cli.commands.member import list_assignments, list_locks, list_members
from tern_cli.commands.mesh import down, status, up
from tern_cli.commands.message import recv, send
from tern_cli.commands.namesrv import namesrv_app
from tern_cli.commands.pass_over import raft_app
from tern_cli.commands.placement import place_topic, show_placement
from tern_cli.commands.producer_group import producer_group_app
from tern_cli.commands.publication import publication_app
from tern_cli.commands.query import msg_app, seek_group, show_lag, show_topic_stats
from tern_cli.commands.request import reply, request
from tern_cli.commands.scheduled import scheduled_app
from tern_cli.commands.spark import spark_app
from tern_cli.commands.topic import topic_app
from tern_cli.commands.tx import tx_app
from tern_cli.demo.commands import demo_app
from tern_cli.endpoint import NAMESPACE_VARIABLE, use_namespace
from tern_cli.failures import CommandFailed
from tern_cli.file_failures import file_failure
from tern_cli.output import show_failure
from tern_cli.store import store_app
from tern_client.transport.credentials import CA_FILE, KEY_FILE
from tern_wire.errors import TernError
from tern_wire.extras import damage
from tern_wire.version import VERSION

_AS_JSON = "tern_cli.as_json"
CREDENTIALS = ("--key-file", "--ca-file")


class FailureGroup(TyperGroup):
    """Turn failures of commands into an exit code and text or JSON on stderr."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Check the encoding of the arguments and find the format of failures, before parsing."""
        as_json = asks_for_json(args)
        with _failures_told(as_json):
            if sentence := not_text(args, os.environ):
                raise CommandFailed("Not a text", sentence, exit_code=2)
            context = super().make_context(info_name, credentials_first(args, CREDENTIALS), parent, **extra)
        context.meta[_AS_JSON] = as_json
        return context

    def invoke(self, ctx: Any) -> Any:
        """Run the command; no exception of ours or of the network leaves as a traceback."""
        with _failures_told(ctx.meta[_AS_JSON]):
            return super().invoke(ctx)


@contextmanager
def _failures_told(as_json: bool) -> Iterator[None]:
    try:
        yield
    except CommandFailed as failure:
        show_failure(failure.title, failure.detail, failure.lines, as_json=as_json)
        raise typer.Exit(failure.exit_code) from failure
    except TernError as error:
        show_failure(error.title, error.detail, code=error.code, as_json=as_json)
        raise typer.Exit(2 if error.status in {400, 405, 406, 415} else 1) from error
    except TyperException as error:
        if not as_json:
            raise
        show_failure("The command line is wrong", error.format_message(), as_json=True)
        raise typer.Exit(error.exit_code) from error
    except BrokenPipeError as stop:
        # The reader of a pipe such as `| head` has closed it. That is no failure, and nothing may
        # be flushed into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from stop
    except ImportError as error:
        show_failure("The installation is damaged", damage(error), as_json=as_json)
        raise typer.Exit(1) from error
    except OSError as error:
        refusal = file_failure(error)
        show_failure(refusal.title, refusal.detail, as_json=as_json)
        raise typer.Exit(refusal.exit_code) from error
    except KeyboardInterrupt as stop:
        raise typer.Exit(130) from stop


app = typer.Typer(
    name="ternmq",
    cls=FailureGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""TernMQ: a message queue with RocketMQ's semantics that you can reach with curl.

    [bold]Start here[/bold]

    ternmq up
    ternmq topic create demo
    ternmq group create readers
    ternmq send demo 'hello'
    ternmq recv demo readers
    ternmq down

    Exit codes: 0 done; 1 failed; 2 wrong usage. With -o json, failures are JSON
    too: the last line on stderr is

    {"error": {"title": ..., "detail": ..., "code": ...}}

    with a code if the mesh has given one.""",
)


def _tell_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"ternmq {VERSION} (Python {platform.python_version()})")
        raise typer.Exit(0)


@app.callback()
def common(
    namespace: Annotated[
        str,
        typer.Option(envvar=NAMESPACE_VARIABLE, help="Namespace of the command's topics and groups; by default none."),
    ] = "",
    key_file: Annotated[
        str,
        typer.Option(
            "--key-file",
            metavar="FILE",
            envvar=KEY_FILE,
            help="File with this client's key; also allowed after any command.",
            show_default=False,
        ),
    ] = "",
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Show the version and stop.")
    ] = False,
    ca_file: Annotated[
        str,
        typer.Option(
            "--ca-file",
            metavar="FILE",
            envvar=CA_FILE,
            help="Certificate authority that https endpoints are verified against.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Options that every command takes, before its name."""
    use_namespace(namespace)
    # Clients read these variables, in this process and in processes that it starts.
    for variable, file in ((KEY_FILE, key_file), (CA_FILE, ca_file)):
        if file:
            os.environ[variable] = file


class Service(StrEnum):
    """Services that `ternmq serve` can run."""

    NAMESRV = "namesrv"
    BROKER = "broker"
    PROXY = "proxy"
    TXN_CHECKER = "txn-checker"


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    rich_help_panel="Mesh",
)
def serve(
    context: typer.Context, service: Annotated[Service, typer.Argument(help="namesrv, broker, proxy or txn-checker.")]
) -> None:
    """Run one service of the mesh in this process.

    All arguments after the service's name are passed to the service.

    [bold]Examples[/bold]

    ternmq serve namesrv --listen 127.0.0.1 --port 9876
    ternmq serve broker --help
    """
    module = f"tern_{service.value.replace('-', '_')}"
    os.execv(sys.executable, [sys.executable, "-m", module, *context.args])  # noqa: S606 - ours


app.command(rich_help_panel="Mesh")(up)
app.command(rich_help_panel="Mesh")(down)
app.command(rich_help_panel="Mesh")(status)
app.command(name="init-cluster", rich_help_panel="Mesh")(init_cluster)
app.command(rich_help_panel="Messages")(send)
app.command(rich_help_panel="Messages")(recv)
app.command(rich_help_panel="Messages")(request)
app.command(rich_help_panel="Messages")(reply)
topic_app.command(name="stats")(show_topic_stats)
topic_app.command(name="placement")(show_placement)
topic_app.command(name="place")(place_topic)
group_app.command(name="lag")(show_lag)
group_app.command(name="seek")(seek_group)
app.add_typer(msg_app, name="msg", rich_help_panel="Messages")
app.add_typer(scheduled_app, name="scheduled", rich_help_panel="Messages")
app.add_typer(dlq_app, name="dlq", rich_help_panel="Messages")
app.add_typer(tx_app, name="tx", rich_help_panel="Messages")
app.add_typer(topic_app, name="topic", rich_help_panel="Admin")
app.add_typer(lease_app, name="lease", rich_help_panel="Admin")
app.add_typer(publication_app, name="publication", rich_help_panel="Admin")
app.add_typer(demo_app, name="demo", rich_help_panel="Mesh")
app.add_typer(spark_app, name="spark", rich_help_panel="Files")
group_app.command(name="members")(list_members)
group_app.command(name="assignments")(list_assignments)
group_app.command(name="locks")(list_locks)
app.add_typer(group_app, name="group", rich_help_panel="Admin")
app.add_typer(producer_group_app, name="producer-group", rich_help_panel="Admin")
app.add_typer(key_app, name="key", rich_help_panel="Admin")
app.add_typer(acl_app, name="acl", rich_help_panel="Admin")
app.add_typer(namesrv_app, name="namesrv", rich_help_panel="Admin")
broker_group_app.command("drain")(drain_broker_group)
app.add_typer(broker_group_app, name="broker-group", rich_help_panel="Admin")
app.add_typer(raft_app, name="raft", rich_help_panel="Admin")
app.command(rich_help_panel="Files")(backup)
app.command(rich_help_panel="Files")(restore)
app.add_typer(store_app, name="store", rich_help_panel="Files")
app.command(name="offsets", rich_help_panel="Admin")(show_offsets)
