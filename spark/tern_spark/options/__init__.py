"""The options of `format("ternmq")`: one table of rows, and the typed options made from it."""

from tern_spark.options.places import (
    EARLIEST,
    LATEST,
    Ago,
    At,
    AtTimes,
    Offsets,
    Place,
    Shift,
)
from tern_spark.options.read import ReadOptions, read_options
from tern_spark.options.table import ALIASES, NAMES, ROWS, Row
from tern_spark.options.values import OptionError

__all__ = [
    "ALIASES",
    "EARLIEST",
    "LATEST",
    "NAMES",
    "ROWS",
    "Ago",
    "At",
    "AtTimes",
    "Offsets",
    "OptionError",
    "Place",
    "ReadOptions",
    "Row",
    "Shift",
    "read_options",
]
