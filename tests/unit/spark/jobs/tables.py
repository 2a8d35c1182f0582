"""What tests of Delta tables share: the table of an archive, its rows and its log."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from tern_jobs.archive.manifests import archived_files
from tests.support.client.job_runs import Ended, run, two_days
from tests.support.client.record_server import Script


def two_queues() -> Script:
    """Two queues with 100 and 60 messages of two days."""
    return Script(queues={"broker-a:0": two_days(0, 100), "broker-a:1": two_days(1, 60)}, page_rows_max=16)


def table_of(at: Path, topic: str = "orders") -> DeltaTable:
    """The table, opened anew."""
    return DeltaTable(str(at / "data" / topic))


def asked(table: DeltaTable, query: str = "SELECT * FROM found") -> list[dict[str, Any]]:
    """The rows of a query, by the engine of the library, whose Parquet reader is another than Arrow's for Python.

    Arrow's threads read through the library's files in Python, and then often abort at the end of the process.
    """
    return list(pa.table(QueryBuilder().register("found", table).execute(query).read_all()).to_pylist())


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows by queue and offset."""
    return sorted(rows, key=lambda row: (row["queue_id"], row["queue_offset"]))


def table_rows(at: Path, topic: str = "orders") -> list[dict[str, Any]]:
    """What a reader of the table gets."""
    return in_order(asked(table_of(at, topic)))


def archived_rows(at: Path) -> list[dict[str, Any]]:
    """What the files have that the manifests name."""
    return in_order(
        [row for path in archived_files(str(at), ["orders"]) for row in pq.read_table(at / path).to_pylist()]
    )


def actions(at: Path, version: int, kind: str) -> list[dict[str, Any]]:
    """The actions of a kind in a version of the table's log."""
    text = (at / f"data/orders/_delta_log/{version:020}.json").read_text("utf-8")
    return [found[kind] for found in map(json.loads, text.splitlines()) if kind in found]


def compact(script: Script, at: Path, *arguments: str) -> Ended:
    """Compact the archive."""
    return run("compact", script, "--archive", str(at), *arguments)


class KilledHere(BaseException):
    """Stands for SIGKILL: no handler of the product stops it."""
