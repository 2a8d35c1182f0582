"""The result of a job as one HTML page: no script, no network, dark or light."""

from html import escape

from tern_jobs.frame.outcome import Outcome, Table
from tern_jobs.frame.plots import plot_svg
from tern_jobs.frame.text import head, shown

# Readers scroll no further; the JSON has all rows.
ROWS_MAX = 500
_COLOURS = ("#2f6fb3", "#c8681c", "#2f8a57", "#a3427f", "#7a6a12", "#5b5bc0")
_COLOURS_DARK = ("#6aa9e9", "#f0a35e", "#6cc592", "#e088bd", "#cdbb55", "#a3a3f5")
_STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --pale: #6a737d; --paper: #fff; --rule: #d9dee3; --bad: #b3261e;
  --good: #1a7f37 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --pale: #98a2ad; --paper: #14171a; --rule: #343a40;
  --bad: #ff8a80; --good: #6cc592 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem }
.verdict { font-weight: 600; margin: .3rem 0 } .bad { color: var(--bad) } .good { color: var(--good) }
.note, figcaption, .legend { color: var(--pale) } figure { margin: 1.5rem 0 .3rem } svg { width: 100%; height: auto }
svg text { font-size: 12px; fill: var(--ink) } .label { text-anchor: end } .axis { fill: var(--pale) }
.grid { stroke: var(--rule) } polyline { fill: none; stroke-width: 2 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums } .wide { overflow-x: auto }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--rule) }
th { color: var(--pale); font-weight: 500 } .figure { text-align: right }
.key { margin-right: 1rem } .key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em }
"""


def html_page(job: str, outcome: Outcome, *, note: str) -> str:
    """Return the page: the headline, the plots, the faults, the facts, and the tables."""
    verdict = "bad" if outcome.faults else "good"
    parts = [
        f"<h1>{escape(job)}</h1>",
        f'<p class="verdict {verdict}">{escape(outcome.headline)}</p>',
        f'<p class="note">{escape(note)}</p>',
    ]
    parts += [plot_svg(plot) for plot in outcome.plots]
    if outcome.faults:
        faults = "".join(f"<li>{escape(fault)}</li>" for fault in outcome.faults[:ROWS_MAX])
        parts.append(f'<h2>{len(outcome.faults)} faults</h2><ul class="bad">{faults}</ul>')
    if outcome.facts:
        rows = [(head(name), shown(name, value)) for name, value in outcome.facts.items()]
        parts.append(_table(Table(title="Facts", columns=("fact", "value"), rows=rows)))
    parts += [_table(table) for table in outcome.tables if table.rows]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>TernMQ: {escape(job)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}{_colours()}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _table(table: Table) -> str:
    is_figure = [all(isinstance(row[at], int | float | None) for row in table.rows) for at in range(len(table.columns))]

    def cells(tag: str, texts: list[str]) -> str:
        made = (
            f"<{tag} class=figure>{escape(text)}</{tag}>" if figure else f"<{tag}>{escape(text)}</{tag}>"
            for text, figure in zip(texts, is_figure, strict=True)
        )
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(
        cells("td", [shown(name, value) for name, value in zip(table.columns, row, strict=True)])
        for row in table.rows[:ROWS_MAX]
    )
    more = f"<p class=note>and {len(table.rows) - ROWS_MAX:,} more</p>" if len(table.rows) > ROWS_MAX else ""
    heads = cells("th", [head(name) for name in table.columns])
    return f"<h2>{escape(table.title)}</h2><div class=wide><table>{heads}{body}</table></div>{more}"


def _colours() -> str:
    def rules(colours: tuple[str, ...]) -> str:
        return "".join(
            f".c{at} {{ fill: {colour} }} .s{at} {{ stroke: {colour} }} .b{at} {{ background: {colour} }} "
            for at, colour in enumerate(colours)
        )

    return f"{rules(_COLOURS)}@media (prefers-color-scheme: dark) {{ {rules(_COLOURS_DARK)} }}"
