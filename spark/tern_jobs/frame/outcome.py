"""The result of a job: a sentence, facts, tables, plots, and the faults that were found.

Law: a job without faults has proved what its headline says, and ends with exit code 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

Cell = str | int | float | None


class JobFailed(Exception):
    """A job cannot go on: *title* says what happened, *detail* what to do.

    Exit code 2 is wrong usage.
    """

    def __init__(self, title: str, detail: str, *, exit_code: int = 1) -> None:
        super().__init__(f"{title}: {detail}")
        self.title, self.detail, self.exit_code = title, detail, exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under *columns*; the unit of a column is the last word of its name."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A plot: one horizontal bar for each label."""

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A plot over time: one line for each name; *xs* are times in ms since 1970."""

    title: str
    xs: Sequence[int]
    lines: dict[str, Sequence[float]]
    unit: str


Plot = Bars | Lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job returns. *facts* are its figures by name."""

    headline: str
    facts: dict[str, Cell] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    faults: Sequence[str] = ()


class TableDocument(msgspec.Struct, frozen=True):
    """A table in the JSON of a job."""

    title: str
    rows: list[dict[str, Cell]]


class OutcomeDocument(msgspec.Struct, frozen=True):
    """The JSON of a job (`-o json`), one document on stdout."""

    job: str
    holds: bool
    headline: str
    facts: dict[str, Cell]
    faults: list[str]
    tables: list[TableDocument]


def document_of(job: str, outcome: Outcome) -> OutcomeDocument:
    """Return *outcome* as programs get it."""
    tables = [
        TableDocument(table.title, [dict(zip(table.columns, row, strict=True)) for row in table.rows])
        for table in outcome.tables
    ]
    return OutcomeDocument(job, not outcome.faults, outcome.headline, dict(outcome.facts), list(outcome.faults), tables)
