"""The tables of options and views in docs/spark.md, made from the code: `python -m tests.support.documents.spark_options` writes them anew.

They are not among those of `tables`, since the data source needs its extra to be imported.
"""

from tern_spark.options import ROWS
from tern_spark.views.tables import VIEWS
from tests.support.documents.pages import ROOT

PAGE = ROOT / "docs" / "spark.md"
_END = "<!-- end of table -->"


def options() -> str:
    """Every option, with the kind of read that it is of."""
    rows = ["| option | of | default | meaning |", "|---|---|---|---|"]
    rows += [f"| `{row.name}` | {row.reads} | {row.default} | {row.meaning} |" for row in ROWS]
    return "\n".join(rows)


def views() -> str:
    """Every view with its columns."""
    rows = ["| view | columns |", "|---|---|"]
    return "\n".join(rows + [f"| `{name}` | `{view.ddl}` |" for name, view in VIEWS.items()])


def written() -> str:
    """The text of the page with its tables made anew."""
    text = PAGE.read_text("utf-8")
    for name, make in (("options", options), ("views", views)):
        begin = f"<!-- table: {name} -->"
        before, _, rest = text.partition(begin)
        _, end, after = rest.partition(_END)
        assert end, f"{PAGE.name} has no place for the table of {name}"
        text = f"{before}{begin}\n{make()}\n{_END}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
