"""`ternmq worker`: runs a program's Worker, in this process or in several."""

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from tern_cli.commands.admin import duration_ms
from tern_cli.failures import CommandFailed

GRACE_MAX_MS = 3_600_000
PROCESSES_MAX = 64
_LOG_FORMAT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


def worker(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:NAME", help="The Worker to run, such as app:worker.", show_default=False)
    ],
    *,
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, max=PROCESSES_MAX, help="Number of processes; one that dies is restarted."),
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a .py file of this folder changes, for development.")
    ] = False,
    grace: Annotated[
        str,
        typer.Option(
            "--grace", help="Time for handlers to finish after a stop, instead of the Worker's.", show_default=False
        ),
    ] = "",
    health_port: Annotated[
        int | None,
        typer.Option(
            "--health-port",
            min=1,
            max=65_535,
            help="Port of /health and /metrics; the second process takes the next one, and so on.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run the handlers of a Worker until SIGTERM or Ctrl-C.

    The module is imported from the folder in which the command runs. The first
    signal stops in order and gives back what no handler has begun, exit code 0;
    the second one ends at once.

    [bold]Examples[/bold]

    ternmq worker app:worker
    ternmq worker app:worker --processes 4 --grace 1m --health-port 9100
    ternmq worker shop.workers:billing --reload
    """
    grace_ms = duration_ms("--grace", grace, 0, GRACE_MAX_MS) if grace else None
    if processes > 1 or reload:
        _run_processes(target, processes, reload, grace, grace_ms, health_port)
        return
    from tern_cli.worker.loading import load_worker  # noqa: PLC0415 - help must not wait for the SDK

    logging.basicConfig(level=logging.INFO, format=_LOG_FORMAT)
    found = load_worker(target)
    if grace_ms is not None:
        found.grace_ms = grace_ms
    if health_port is not None:
        found.health_port = health_port
    try:
        found.run()
    except ValueError as error:
        raise CommandFailed("The worker cannot run", f"{target}: {error}.", exit_code=2) from error
    except OSError as error:
        place = f"{found.health_host}:{found.health_port}"
        raise CommandFailed("The health port cannot be opened", f"{place}: {error.strerror or error}.") from error


def _run_processes(
    target: str, processes: int, reload: bool, grace: str, grace_ms: int | None, health_port: int | None
) -> None:
    from tern_cli.worker.processes import WorkerProcesses  # noqa: PLC0415
    from tern_cli.worker.source_changes import SourceChanges  # noqa: PLC0415

    command = [sys.executable, "-m", "tern_cli", "worker", target, *(["--grace", grace] if grace else [])]
    commands = [
        [*command, *([] if health_port is None else ["--health-port", str(health_port + number)])]
        for number in range(processes)
    ]
    grace_s = (GRACE_MAX_MS if grace_ms is None else grace_ms) / 1_000
    changes = SourceChanges(Path.cwd()) if reload else None
    if code := WorkerProcesses(commands, grace_s, changes).run():
        raise typer.Exit(code)
