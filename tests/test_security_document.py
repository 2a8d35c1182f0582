"""SECURITY.md keeps its word: each test that it names is there, and its table of requirements is that of the code.

`python -m tests.test_security_document` writes the table anew.
"""

import ast
import re
from pathlib import Path

import pytest

from tern_proxy.routes.table import RULES

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "SECURITY.md"
BEGIN = "<!-- requirements: written by tests/test_security_document.py, which also says when they differ -->\n"
END = "<!-- end of requirements -->\n"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", DOCUMENT.read_text())))


def table() -> str:
    """The requirements, as SECURITY.md has them."""
    lines = ["| route | needs |", "|---|---|"]
    for rule in RULES:
        needs = "; ".join(map(str, rule.requirements)) or (
            "nothing, not even credentials" if rule.is_anonymous else "credentials"
        )
        lines.append(f"| `{rule.method} {rule.path}` | {needs} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_requirements_is_the_codes() -> None:
    """Written, not remembered."""
    text = DOCUMENT.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table()


@pytest.mark.parametrize(("file", "name"), NAMED, ids=["::".join(each) for each in NAMED])
def test_every_test_that_is_named_is_there(file: str, name: str) -> None:
    """A threat without its test is a hope."""
    tree = ast.parse((ROOT / file).read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not name or name in names


def test_threats_name_tests() -> None:
    """Every row of the table of threats has one."""
    rows = [
        line
        for line in DOCUMENT.read_text().partition("## Threats")[2].partition("## What")[0].splitlines()
        if line.startswith("|")
    ]
    assert len(rows) > 20
    assert all("`tests/" in row for row in rows[2:])


if __name__ == "__main__":
    whole = DOCUMENT.read_text()
    head, tail = whole[: whole.index(BEGIN) + len(BEGIN)], whole[whole.index(END) :]
    DOCUMENT.write_text(head + table() + tail)
