"""The Spark job of `ternmq demo flights`: copies a topic of flights to Parquet, reports departure
delays by carrier and month, and streams daily delays into the topic `flight-delays`.

    python -m tern_jobs.flights --endpoint http://127.0.0.1:8080 --topic flights --out .tern/demo
      [--starting JSON] [--ending JSON]  offset documents of the `ternmq` source; default: all
      [--carriers FILE]                  JSON of carrier code to name, for the plot
      [--rows-per-trigger N]             size of the stream's micro-batches
      [--no-stream]                      the report alone

Into --out it writes `flights/` (Parquet, a row per message), `report.parquet`, `report.json`,
`delay_by_carrier_and_month.png` and `daily_delays.json`. The last line on stdout is one JSON
object: counts, seconds and the paths.
"""

import argparse
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from tern_client import BlockingAdmin
from tern_jobs.flights.daily_delays import ROWS_PER_TRIGGER, TOPIC, read_written, run_stream
from tern_jobs.flights.heat_map import draw_heat_map
from tern_jobs.flights.report import delay_report, read_flights, write_table
from tern_jobs.frame.tasks import conf_directory
from tern_spark.session import open_session
from tern_wire.errors import TopicConflict

_QUEUES = 4


def main() -> None:
    """Run the job of the arguments; any failure is a traceback and exit code 1."""
    options = _arguments()
    began_s = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    spark = open_session("flights report", conf_dir=conf_directory())
    try:
        summary = _report(spark, options)
        if options.stream:
            summary |= _stream(spark, options)
    finally:
        spark.stop()
    summary["seconds"] = round(time.monotonic() - began_s, 3)
    sys.stdout.write(orjson.dumps(summary).decode() + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--endpoint", required=True, help="proxy URLs, comma separated")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--starting", default="earliest", help="startingOffsets of the source")
    parser.add_argument("--ending", default="latest", help="endingOffsets of the report")
    parser.add_argument("--carriers", type=Path, help="JSON of carrier code to name, for the plot")
    parser.add_argument(
        "--rows-per-trigger", type=int, default=ROWS_PER_TRIGGER, help="of the stream (default: %(default)s)"
    )
    parser.add_argument("--no-stream", dest="stream", action="store_false", help="the report alone")
    parser.add_argument("--out", type=Path, required=True, help="directory for Parquet, tables and plot")
    return parser.parse_args()


def _report(spark: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Write the report; return its part of the summary."""
    reading_s = time.monotonic()
    out, ranges = options.out, {"starting": options.starting, "ending": options.ending}
    flights_path = out / "flights"
    read_flights(spark, options.endpoint, options.topic, **ranges).write.mode("overwrite").parquet(str(flights_path))
    read_s = time.monotonic() - reading_s
    table = [row.asDict() for row in delay_report(spark.read.parquet(str(flights_path))).collect()]
    # Every row is in exactly one cell, so the sum of the cells saves a second count.
    rows = sum(row["flights"] for row in table)
    report_path, table_path, plot_path = (
        out / "report.parquet",
        out / "report.json",
        out / "delay_by_carrier_and_month.png",
    )
    write_table(table, report_path)
    table_path.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2))
    if table:
        names = orjson.loads(options.carriers.read_bytes()) if options.carriers else {}
        draw_heat_map(table, names, rows, plot_path)
    return {
        "spark_rows": rows,
        "read_seconds": round(read_s, 3),
        "flights_parquet": str(flights_path),
        "report_parquet": str(report_path),
        "report_json": str(table_path),
        "plot_png": str(plot_path) if table else "",
    }


def _stream(spark: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Run the stream, and read again what it has written; return its part of the summary."""
    began_s = time.monotonic()
    with BlockingAdmin([url.strip() for url in options.endpoint.split(",")]) as admin:
        # A topic that has more queues by now serves as well.
        with suppress(TopicConflict):
            admin.create_topic(TOPIC, _QUEUES)
        written_from = {queue.queue: queue.max_offset for queue in admin.offsets(TOPIC)}
    checkpoint = options.out / "daily-delays-checkpoint"
    batches = run_stream(
        spark, options.endpoint, options.topic, options.starting, checkpoint, rows_per_trigger=options.rows_per_trigger
    )
    written = read_written(spark, options.endpoint, written_from)
    path = options.out / "daily_delays.json"
    path.write_bytes(orjson.dumps(written.table, option=orjson.OPT_INDENT_2))
    return {
        "stream_batches": batches,
        "stream_repeated": written.repeated,
        "stream_seconds": round(time.monotonic() - began_s, 3),
        "daily_delays_json": str(path),
    }


if __name__ == "__main__":
    main()
