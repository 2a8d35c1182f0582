"""The plot of the demo: mean delay of each carrier in each month. Imports matplotlib on demand."""

from pathlib import Path
from typing import Any

SMALL_CELL_FLIGHTS = 30


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
