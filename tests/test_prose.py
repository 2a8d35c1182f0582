"""The width of prose: docstrings and comments of the product wrap at 100 columns, code at 120."""

import ast
import io
import tokenize
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, name_of, sources

COLUMNS_MAX = 100
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def wide_lines(path: Path) -> list[int]:
    """Numbers of lines of docstrings and of comments alone on their line that are too wide."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    prose = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#")
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            prose.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return sorted(number for number in prose if len(lines[number - 1]) > COLUMNS_MAX)


@pytest.mark.parametrize("top", ["libs", "services", "spark", "loadtest", "deploy"])
def test_prose_is_no_wider_than_a_hundred_columns(top: str) -> None:
    """No line of a docstring or a comment of the product is."""
    wide = [f"{name_of(path)}:{number}" for path in sources(top) for number in wide_lines(path)]
    assert wide == []


def test_a_wide_comment_and_a_wide_docstring_are_seen(tmp_path: Path) -> None:
    """A comment behind code is code; a long string that is no docstring is none."""
    path = tmp_path / "wide.py"
    long = "x" * COLUMNS_MAX
    path.write_text(f'"""Short."""\n# {long}\nname = "{long}"  # {long}\n\n\ndef f():\n    """{long}"""\n')
    assert wide_lines(path) == [2, 7]
    assert ROOT.is_dir()
