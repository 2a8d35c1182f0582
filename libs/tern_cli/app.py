"""The `ternmq` command line: its groups, and the one place where failures become exit codes (0 done, 1 failed, 2 asked wrongly)."""

import os
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tern_cli.admin_commands import group_app, show_offsets, topic_app
from tern_cli.demo import demo_app
from tern_cli.failures import CommandFailed
from tern_cli.mesh_commands import down, status, up
from tern_cli.message_commands import recv, send
from tern_cli.output import show_failure
from tern_cli.store import store_app
from tern_wire.errors import TernError


class FailureGroup(TyperGroup):
    """Turns failures of commands into two lines on stderr and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; no exception of ours or of the network leaves as a traceback."""
        try:
            return super().invoke(ctx)
        except CommandFailed as failure:
            show_failure(failure.title, failure.detail, failure.lines)
            raise typer.Exit(failure.exit_code) from failure
        except TernError as error:
            show_failure(error.title, error.detail)
            raise typer.Exit(2 if error.status in {400, 405, 406, 415} else 1) from error
        except OSError as error:
            show_failure("The operating system refused", str(error))
            raise typer.Exit(1) from error
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
    ternmq down""",
)


class Service(StrEnum):
    """What `ternmq serve` can become."""

    NAMESRV = "namesrv"
    BROKER = "broker"
    PROXY = "proxy"


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    rich_help_panel="Mesh",
)
def serve(
    context: typer.Context, service: Annotated[Service, typer.Argument(help="namesrv, broker or proxy.")]
) -> None:
    """Become one service of the mesh; everything behind its name is passed on.

    [bold]Examples[/bold]

    ternmq serve namesrv --listen 127.0.0.1 --port 9876
    ternmq serve broker --help
    """
    os.execv(sys.executable, [sys.executable, "-m", f"tern_{service.value}", *context.args])  # noqa: S606 - ours


app.command(rich_help_panel="Mesh")(up)
app.command(rich_help_panel="Mesh")(down)
app.command(rich_help_panel="Mesh")(status)
app.command(rich_help_panel="Messages")(send)
app.command(rich_help_panel="Messages")(recv)
app.add_typer(topic_app, name="topic", rich_help_panel="Admin")
app.add_typer(demo_app, name="demo", rich_help_panel="Mesh")
app.add_typer(group_app, name="group", rich_help_panel="Admin")
app.add_typer(store_app, name="store", rich_help_panel="Files")
app.command(name="offsets", rich_help_panel="Admin")(show_offsets)
