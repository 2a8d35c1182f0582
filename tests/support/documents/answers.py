"""Comparison of what a page shows with what a mesh answers.

JSON: the same keys, types and lengths; values are equal except where two runs differ (times, offsets, ids). A shown
string that ends in "..." is the beginning of the real one. Text: the same lines; numbers, ids and widths of columns may
differ.
"""

import json
import re
from typing import Any

# Members whose numbers differ from run to run; so do all that end in `_at`, `_until` and `_ms`.
_VOLATILE = {"offset", "next_offset", "min_offset", "max_offset", "size", "body_size", "term"}
_TIMES = ("_at", "_until", "_ms", "_per_s")
_ID = re.compile(r"\b(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}\b")
_NUMBER = re.compile(r"\d+([.,:]\d+)*")
_RULE = re.compile("─+")


def _plain(text: str) -> str:
    """*text* without what differs from run to run."""
    return _RULE.sub("─", _NUMBER.sub("#", _ID.sub("ID", text)))


def _lines(text: str) -> list[str]:
    """The lines of *text* without what differs from run to run, empty ones left out."""
    plain = (" ".join(_plain(line).split()) for line in text.splitlines())
    return [line for line in plain if line]


def same_text(shown: str, real: str) -> bool:
    """Whether *real* has the lines of *shown*; a line "..." stands for any number of lines."""
    wanted, found = _lines(shown), _lines(real)
    reached = {0}  # numbers of found lines that the wanted lines so far may have used up
    for line in wanted:
        if line == "...":
            reached = set(range(min(reached), len(found) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(found) and found[at] == line}
        if not reached:
            return False
    return len(found) in reached


def difference(shown: Any, real: Any, place: str = "answer") -> str:
    """Where *real* is not what is *shown*; "" if it is."""
    if isinstance(shown, str) and isinstance(real, str):
        if shown.endswith("..."):
            return "" if real and real.startswith(shown[:-3]) else f"{place}: {real!r} and not {shown!r}"
        return "" if _plain(shown) == _plain(real) else f"{place}: {real!r} and not {shown!r}"
    if type(shown) is not type(real):
        return f"{place}: {real!r} and not {shown!r}"
    if isinstance(shown, dict):
        if shown.keys() != real.keys():
            return f"{place}: its members are {sorted(real)} and not {sorted(shown)}"
        members = (difference(shown[key], real[key], f"{place}.{key}") for key in shown if not _is_volatile(key, real))
        return next((each for each in members if each), "")
    if isinstance(shown, list):
        if len(shown) != len(real):
            return f"{place}: {len(real)} elements and not {len(shown)}"
        elements = (difference(each, real[at], f"{place}[{at}]") for at, each in enumerate(shown))
        return next((each for each in elements if each), "")
    return "" if shown == real else f"{place}: {real!r} and not {shown!r}"


def _is_volatile(key: str, document: dict[str, Any]) -> bool:
    value = document[key]
    return isinstance(value, int | float) and not isinstance(value, bool) and (key in _VOLATILE or key.endswith(_TIMES))


def mismatch(language: str, shown: str, printed: str) -> str:
    """What is wrong with *printed*, the output of a block, beside the answer that its page shows; "" if nothing is."""
    if language != "json":
        return "" if same_text(shown, printed) else f"printed:\n{printed}\nshown:\n{shown}"
    lines = [line for line in printed.splitlines() if line.strip()]
    if not lines:
        return "nothing was printed"
    try:
        return difference(json.loads(shown), json.loads(lines[-1]))
    except json.JSONDecodeError as error:
        return f"{error}: {lines[-1]}"
