"""Plots as inline SVG: bars and lines. Colours are classes that the page defines."""

from datetime import UTC, datetime
from html import escape

from tern_jobs.frame.outcome import Bars, Lines, Plot
from tern_jobs.frame.text import shown

_WIDTH, _BAR_HEIGHT, _LABEL_WIDTH, _VALUE_WIDTH = 720, 22, 220, 110
_LINE_HEIGHT, _LEFT, _BOTTOM = 240, 70, 26
# As many as have a colour of their own.
BARS_MAX, LINES_MAX = 20, 6


def plot_svg(plot: Plot) -> str:
    """Return *plot* as an SVG element."""
    return _bars(plot) if isinstance(plot, Bars) else _lines(plot)


def _bars(plot: Bars) -> str:
    pairs = list(zip(plot.labels, plot.values, strict=True))[:BARS_MAX]
    top = max((value for _, value in pairs), default=0) or 1
    room = _WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    parts = []
    for at, (label, value) in enumerate(pairs):
        y, width = at * _BAR_HEIGHT, max(room * value / top, 1 if value else 0)
        text = shown(plot.unit, value if value % 1 else int(value))
        parts.append(
            f'<text class="label" x="{_LABEL_WIDTH - 8}" y="{y + 15}">{escape(_short(label))}'
            f"<title>{escape(label)}</title></text>"
            f'<rect class="c0" x="{_LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="{_BAR_HEIGHT - 7}" rx="2"/>'
            f'<text class="value" x="{_LABEL_WIDTH + width + 6:.1f}" y="{y + 15}">{escape(text)}</text>'
        )
    return _svg(plot.title, len(pairs) * _BAR_HEIGHT, "".join(parts))


def _lines(plot: Lines) -> str:
    lines = dict(list(plot.lines.items())[:LINES_MAX])
    top = max((value for values in lines.values() for value in values), default=0) or 1
    first, last = (min(plot.xs), max(plot.xs)) if plot.xs else (0, 1)
    width, height = _WIDTH - _LEFT - 10, _LINE_HEIGHT - _BOTTOM - 10
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = 10 + height * (1 - share)
        value = top * share
        text = shown(plot.unit, value if value % 1 else int(value))
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="label" x="{_LEFT - 8}" y="{y + 4:.1f}">{escape(text)}</text>'
        )
    for at, values in enumerate(lines.values()):
        points = [
            (_LEFT + width * (x - first) / max(last - first, 1), 10 + height * (1 - value / top))
            for x, value in zip(plot.xs, values, strict=True)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="s{at}" points="{path}"/>')
        parts += [f'<circle class="c{at}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in points[:200]]
    for x, time_ms, anchor in ((_LEFT, first, "start"), (_WIDTH - 10, last, "end")):
        stamp = datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        parts.append(f'<text class="axis" x="{x}" y="{_LINE_HEIGHT - 6}" text-anchor="{anchor}">{stamp}Z</text>')
    legend = "".join(f'<span class="key"><i class="b{at}"></i>{escape(name)}</span>' for at, name in enumerate(lines))
    return _svg(plot.title, _LINE_HEIGHT, "".join(parts)) + f'<p class="legend">{legend}</p>'


def _svg(title: str, height: int, inner: str) -> str:
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {_WIDTH} {max(height, 1)}">{inner}</svg></figure>'
    )


def _short(label: str) -> str:
    return label if len(label) <= 30 else label[:29] + "\u2026"
