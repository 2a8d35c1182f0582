"""The table of options in docs/spark.md, made from the code: `python -m tests.support.documents.spark_options` writes it anew.

It is not among those of `tables`, since the data source needs its extra to be imported.
"""

from tern_spark.options import ROWS
from tests.support.documents.pages import ROOT

PAGE = ROOT / "docs" / "spark.md"
_BEGIN, _END = "<!-- table: options -->", "<!-- end of table -->"


def options() -> str:
    """Every option, with the kind of read that it is of."""
    rows = ["| option | of | default | meaning |", "|---|---|---|---|"]
    rows += [f"| `{row.name}` | {row.reads} | {row.default} | {row.meaning} |" for row in ROWS]
    return "\n".join(rows)


def written() -> str:
    """The text of the page with its table made anew."""
    before, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
    _, end, after = rest.partition(_END)
    assert end, f"{PAGE.name} has no place for the table of options"
    return f"{before}{_BEGIN}\n{options()}\n{_END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
