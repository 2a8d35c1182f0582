"""Spark job: copies a topic of flights to Parquet and reports departure delay by carrier and month.

    python spark/jobs/flights_report.py --endpoint http://127.0.0.1:8080 --topic flights
      --out .tern/demo
      [--starting JSON] [--ending JSON]  offset documents of the `ternmq` source; default: all
      [--carriers FILE]                  JSON of carrier code to name, for the plot

Into --out it writes `flights/` (Parquet, a row per message), `report.parquet`, `report.json` and
`delay_by_carrier_and_month.png`. The last line on stdout is one JSON object: spark_rows,
read_seconds, seconds and the paths.

Law: NULL is "not known", as in pandas. A cancelled flight has no departure delay: it counts in
`flights`, but not in `departed`, `mean_delay_min` and `median_delay_min`. A cell without any
departure has neither mean nor median.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import functions as F

from tern_spark.session import open_session

CONF_DIR = Path(__file__).resolve().parents[1] / "conf"
FLIGHT = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
SOURCE_COLUMNS = (
    "queue_id int, queue_offset bigint, message_id string, tags string, keys string, body binary, broker string"
)
SMALL_CELL_FLIGHTS = 30


def main() -> None:
    """Run the job of the arguments; any failure is a traceback and exit code 1."""
    options = _arguments()
    began = time.monotonic()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    spark = open_session("flights report", conf_dir=CONF_DIR)
    try:
        reading = time.monotonic()
        flights_path = out / "flights"
        read_flights(spark, options).write.mode("overwrite").parquet(str(flights_path))
        read_seconds = time.monotonic() - reading
        table = [row.asDict() for row in delay_report(spark.read.parquet(str(flights_path))).collect()]
    finally:
        spark.stop()
    # Every row is in exactly one cell, so the sum of the cells saves a second count.
    rows = sum(row["flights"] for row in table)
    report_path, table_path, plot_path = (
        out / "report.parquet",
        out / "report.json",
        out / "delay_by_carrier_and_month.png",
    )
    _write_parquet(table, report_path)
    table_path.write_bytes(orjson.dumps(table, option=orjson.OPT_INDENT_2))
    if table:
        names = orjson.loads(options.carriers.read_bytes()) if options.carriers else {}
        draw_heat_map(table, names, rows, plot_path)
    summary = {
        "spark_rows": rows,
        "read_seconds": round(read_seconds, 3),
        "seconds": round(time.monotonic() - began, 3),
        "flights_parquet": str(flights_path),
        "report_parquet": str(report_path),
        "report_json": str(table_path),
        "plot_png": str(plot_path) if table else "",
    }
    sys.stdout.write(orjson.dumps(summary).decode() + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--endpoint", required=True, help="proxy URLs, comma separated")
    parser.add_argument("--topic", default="flights")
    parser.add_argument("--starting", default="earliest", help="startingOffsets of the source")
    parser.add_argument("--ending", default="latest", help="endingOffsets of the source")
    parser.add_argument("--carriers", type=Path, help="JSON of carrier code to name, for the plot")
    parser.add_argument("--out", type=Path, required=True, help="directory for Parquet, table and plot")
    return parser.parse_args()


def read_flights(spark: Any, options: argparse.Namespace) -> Any:
    """Return the topic's messages as flights: a column for each field, and queue, offset and id."""
    source = (
        spark.read.format("ternmq")
        .schema(SOURCE_COLUMNS)
        .option("endpoint", options.endpoint)
        .option("subscribe", options.topic)
        .option("startingOffsets", options.starting)
        .option("endingOffsets", options.ending)
    )
    # FAILFAST: a body that is no flight is an error with its text, never a row of NULLs.
    body = F.from_json(F.col("body").cast("string"), FLIGHT, {"mode": "FAILFAST"})
    return (
        source.load()
        .select("broker", "queue_id", "queue_offset", "message_id", body.alias("flight"))
        .select("broker", "queue_id", "queue_offset", "message_id", "flight.*")
    )


def delay_report(flights: Any) -> Any:
    """Return a row for each carrier and month, in order.

    Flights, departed, mean and median delay in minutes; the median is exact and interpolated.
    """
    return (
        flights.groupBy("carrier", "month")
        .agg(
            F.count(F.lit(1)).alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("mean_delay_min"),
            F.percentile("dep_delay", F.lit(0.5)).alias("median_delay_min"),
        )
        .orderBy("carrier", "month")
    )


def _write_parquet(table: list[dict[str, Any]], path: Path) -> None:
    """Write one small file, not a directory of part files: 185 rows."""
    import pyarrow as pa  # noqa: PLC0415 - only here
    import pyarrow.parquet as pq  # noqa: PLC0415 - only here

    kinds = [("carrier", pa.string()), ("month", pa.int32()), ("flights", pa.int64()), ("departed", pa.int64())]
    kinds += [("mean_delay_min", pa.float64()), ("median_delay_min", pa.float64())]
    pq.write_table(pa.Table.from_pylist(table, schema=pa.schema(kinds)), path)


def draw_heat_map(table: list[dict[str, Any]], names: dict[str, str], rows: int, path: Path) -> None:
    """Draw the mean delay of each carrier in each month as a heat map, worst year first (PNG)."""
    import matplotlib as mpl  # noqa: PLC0415 - only here, and it takes a second to load

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415 - the backend has to be chosen first
    import numpy as np  # noqa: PLC0415 - only here

    carriers, means, flights = _grid(table)
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    ink, pale = "#22272e", "#7c858f"
    plt.rcParams.update({"font.size": 10, "text.color": ink, "xtick.color": ink, "ytick.color": ink})
    figure = plt.figure(figsize=(12.5, 2.3 + 0.4 * len(carriers)), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.06, w_pad=0.03)
    cells, totals = figure.subplots(1, 2, width_ratios=[12, 2.4], sharey=True)
    # The colours turn at zero, between early and late, and one extreme cell must not bleach the
    # others.
    limit = float(np.nanpercentile(np.abs(means), 97)) if np.isfinite(means).any() else 1.0
    colours = mpl.colormaps["RdBu_r"].with_extremes(bad="#f1f2f4")
    image = cells.imshow(np.ma.masked_invalid(means), cmap=colours, vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), mean in np.ndenumerate(means):
        if not flights[row, column]:
            continue
        text = f"{mean:.0f}".replace("-0", "0").replace("-", "\u2212") if np.isfinite(mean) else "\u2013"
        small = flights[row, column] < SMALL_CELL_FLIGHTS
        shade = "white" if np.isfinite(mean) and abs(mean) > 0.62 * limit else ink
        cells.text(column, row, text + ("*" if small else ""), ha="center", va="center", fontsize=9, color=shade)
    cells.set_xticks(range(12), months)
    cells.set_yticks(range(len(carriers)), [f"{names[code]}  {code}" if code in names else code for code in carriers])
    cells.set_xticks(np.arange(-0.5, 12), minor=True)
    cells.set_yticks(np.arange(-0.5, len(carriers)), minor=True)
    cells.grid(which="minor", color="white", linewidth=1.5)
    per_carrier = flights.sum(axis=1)
    totals.barh(range(len(carriers)), per_carrier, color="#b9c0c9", height=0.62)
    for row, count in enumerate(per_carrier):
        totals.text(count, row, f" {count:,.0f}", va="center", fontsize=8.5, color=pale)
    totals.set_xlim(0, max(per_carrier.max(), 1) * 1.5)
    totals.set_title("flights", fontsize=9.5, color=pale, loc="left")
    cells.tick_params(which="both", length=0)
    totals.tick_params(which="both", length=0, labelleft=False, labelbottom=False)
    for side in (*cells.spines.values(), *totals.spines.values()):
        side.set_visible(False)
    figure.suptitle(
        "Departure delay of flights from New York, 2013", x=0.008, ha="left", fontsize=16, fontweight="bold"
    )
    cells.set_title("mean minutes by carrier and month, the worst year first", loc="left", fontsize=9.5, color=pale)
    bar = figure.colorbar(
        image, ax=[cells, totals], location="bottom", shrink=0.32, aspect=32, anchor=(0.0, 1.0), extend="both"
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5, length=0, colors=pale)
    bar.set_label("minutes early (blue) or late (red)", fontsize=8.5, color=pale)
    note = f"* fewer than {SMALL_CELL_FLIGHTS} flights. Cancelled flights have no delay.\n{rows:,} messages read from TernMQ by Spark"
    figure.text(0.992, 0.02, note, ha="right", fontsize=8.5, color=pale, linespacing=1.6)
    figure.savefig(path, dpi=150, facecolor="white", bbox_inches="tight", pad_inches=0.3)
    plt.close(figure)


def _grid(table: list[dict[str, Any]]) -> tuple[list[str], Any, Any]:
    """Return carriers, worst first, and two arrays of shape (carriers, 12): mean delay and flights.

    A mean delay that is not known is NaN.
    """
    import numpy as np  # noqa: PLC0415 - only here

    minutes: dict[str, float] = {}
    departed: dict[str, int] = {}
    for row in table:
        carrier = row["carrier"]
        minutes[carrier] = minutes.get(carrier, 0.0) + (row["mean_delay_min"] or 0.0) * row["departed"]
        departed[carrier] = departed.get(carrier, 0) + row["departed"]
    carriers = sorted(minutes, key=lambda carrier: -minutes[carrier] / max(departed[carrier], 1))
    means = np.full((len(carriers), 12), np.nan)
    flights = np.zeros((len(carriers), 12), np.int64)
    for row in table:
        at = carriers.index(row["carrier"]), row["month"] - 1
        flights[at] = row["flights"]
        if row["mean_delay_min"] is not None:
            means[at] = row["mean_delay_min"]
    return carriers, means, flights


if __name__ == "__main__":
    main()
