"""Tables and figures of a job as text."""

from tern_jobs.frame.outcome import Cell, Outcome, Table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def shown(column: str, value: Cell) -> str:
    """Return *value* for people; the unit of *column* decides how."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if column.endswith("bytes"):
        return size_text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size_text(size_bytes: float) -> str:
    """Return a size with the largest unit of which there is one: `1.5 MiB`."""
    for unit in _UNITS:
        if abs(size_bytes) < 1024 or unit == _UNITS[-1]:
            break
        size_bytes /= 1024
    return f"{size_bytes:,.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"


def head(column: str) -> str:
    """Return the heading of *column*."""
    return column.removesuffix("_bytes").replace("_", " ")


def table_text(table: Table) -> str:
    """Return *table* in columns of even width, figures to the right."""
    cells = [[shown(name, value) for name, value in zip(table.columns, row, strict=True)] for row in table.rows]
    heads = [head(name) for name in table.columns]
    widths = [max(len(line[at]) for line in [heads, *cells]) for at in range(len(heads))]
    is_figure = [
        bool(table.rows) and all(isinstance(row[at], int | float | None) for row in table.rows)
        for at in range(len(heads))
    ]

    def line(values: list[str]) -> str:
        padded = (
            value.rjust(width) if figure else value.ljust(width)
            for value, width, figure in zip(values, widths, is_figure, strict=True)
        )
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([table.title, line(heads), rule, *(line(values) for values in cells)])


def outcome_text(outcome: Outcome) -> str:
    """Return the whole result as text: tables, facts, the headline, and a line for each fault."""
    parts = [table_text(table) for table in outcome.tables if table.rows]
    if outcome.facts:
        width = max(len(head(name)) for name in outcome.facts)
        parts.append("\n".join(f"{head(name):{width}}  {shown(name, value)}" for name, value in outcome.facts.items()))
    parts.append("\n".join([outcome.headline, *(f"fault: {fault}" for fault in outcome.faults)]))
    return "\n\n".join(parts) + "\n"
