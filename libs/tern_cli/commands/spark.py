"""`ternmq spark`: the jobs of `tern_jobs`, each in the process of its command; a zip of them."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tern_cli.endpoint import endpoints
from tern_cli.spark_bundle import LIBRARIES, write_bundle
from tern_cli.variables import ENDPOINT_VARIABLE
from tern_wire.extras import need_extra

spark_app = typer.Typer(
    no_args_is_help=True,
    help="""Run jobs over topics: archive, verify, and reports.

    Jobs run on Spark, in a local session or on a cluster, and need ternmq[spark]
    and Java 17. `zip` packs them for executors.""",
)


@spark_app.command(
    "run", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def run_job(context: typer.Context) -> None:
    """Run the job of the first argument.

    All arguments behind its name are passed to the job. Without a name, the jobs
    are listed. Each job prints a table or, with -o json, JSON; with --html FILE it
    also writes a page with plots. Exit code 1: what the job proves is not so.

    [bold]Examples[/bold]

    ternmq spark run --help
    ternmq spark run archive --topics orders --to archive
    ternmq spark run verify --archive archive --html verify.html
    ternmq spark run verify --archive archive --master spark://127.0.0.1:7077
    """
    need_extra("ternmq[spark]", "A job", "pyspark", "pyarrow")
    os.environ[ENDPOINT_VARIABLE] = ",".join(endpoints(os.environ.get(ENDPOINT_VARIABLE, "")))
    os.execv(sys.executable, [sys.executable, "-m", "tern_jobs", *context.args])  # noqa: S606 - ours


@spark_app.command("zip")
def write_zip(
    file: Annotated[Path, typer.Argument(help="Where to write it; an older one is replaced.")],
) -> None:
    """Write the packages of the source, the sink and the jobs as one zip.

    For clusters whose machines have no TernMQ: `--py-files` takes it to all
    executors. They need Python with pyspark, pyarrow, numpy, msgspec, orjson
    and httptools.

    [bold]Examples[/bold]

    ternmq spark zip ternmq-spark.zip
    spark-submit --py-files ternmq-spark.zip spark/jobs/archive.py --help
    """
    count = write_bundle(file)
    typer.echo(f"{file}: {count} files, {file.stat().st_size:,} bytes. Executors need {', '.join(LIBRARIES)}.")
