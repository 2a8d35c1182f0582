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

from tern_cli import command_tree
from tern_cli.command_words import asks_for_json, credentials_first, not_text
from tern_cli.failures import CommandFailed
from tern_cli.file_failures import file_failure
from tern_cli.output import show_failure
from tern_cli.variables import NAMESPACE_VARIABLE, use_context, use_namespace
from tern_client.settings.contexts import CONTEXT
from tern_client.transport.credentials import CA_FILE, KEY_FILE
from tern_wire.errors import TernError
from tern_wire.extras import damage
from tern_wire.version import VERSION

_AS_JSON = "tern_cli.as_json"
ANYWHERE = ("--key-file", "--ca-file", "--context")


class FailureGroup(TyperGroup):
    """Turn failures of commands into an exit code and text or JSON on stderr."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Check the encoding of the arguments and find the format of failures, before parsing."""
        as_json = asks_for_json(args)
        with _failures_told(as_json):
            if sentence := not_text(args, os.environ):
                raise CommandFailed("Not a text", sentence, exit_code=2)
            context = super().make_context(info_name, credentials_first(args, ANYWHERE), parent, **extra)
        context.meta[_AS_JSON] = as_json
        return context

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order in which they are shown."""
        later = command_tree.names()
        return [*(name for name in super().list_commands(ctx) if name not in later), *later]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, None if there is none."""
        if cmd_name not in self.commands and (found := command_tree.load(cmd_name)) is not None:
            self.commands[cmd_name] = found
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that *args* begin with; the error for an unknown one names the nearest."""
        if args and self.get_command(ctx, args[0]) is None:
            for name in command_tree.names():
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

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
    typed: typer.Context,
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
    context: Annotated[
        str,
        typer.Option(
            "--context",
            metavar="NAME",
            envvar=CONTEXT,
            help="Mesh with its namespace and credentials (see `ternmq context`); also allowed after any command.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Options that every command takes, before its name."""
    is_option = bool(context) and _is_typed(typed, "context")
    use_context(context, is_option=is_option)

    def given(name: str, text: str) -> str:
        # A context on the command line precedes all variables.
        return text if _is_typed(typed, name) or not is_option else ""

    use_namespace(given("namespace", namespace))
    # Clients read these variables, in this process and in processes that it starts.
    for name, variable, file in (("key_file", KEY_FILE, key_file), ("ca_file", CA_FILE, ca_file)):
        if path := given(name, file):
            os.environ[variable] = path
        elif is_option:
            os.environ.pop(variable, None)


def _is_typed(typed: typer.Context, name: str) -> bool:
    """Whether the option *name* stands on the command line, and not in a variable."""
    source = typed.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


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
