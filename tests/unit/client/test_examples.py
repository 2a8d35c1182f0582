"""What the documents show of Python is a file that Python takes; tests/procs runs the programs among it."""

import py_compile
import re
from pathlib import Path

import pytest

import tern_client

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]
SNIPPETS = [
    pytest.param(snippet, id=f"{path.relative_to(ROOT)}-{number}")
    for path in sorted(DOCUMENTS)
    for number, snippet in enumerate(re.findall(r"^```python.*?\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_snippet_is_a_file_that_python_takes(snippet: str, tmp_path: Path) -> None:
    """Not `async with` outside a function, and no name of the SDK that is not there."""
    path = tmp_path / "snippet.py"
    path.write_text(snippet)
    py_compile.compile(str(path), doraise=True)
    for names in re.findall(r"^from tern_client import (.*)$", snippet, re.M):
        for name in names.split(", "):
            assert name in tern_client.__all__


def test_the_documents_show_the_sdk() -> None:
    """So that the table above is not empty."""
    assert len(SNIPPETS) >= 4


def test_the_help_begins_with_an_example_and_lists_nothing_that_is_not_for_users() -> None:
    """What is public is what somebody calls, catches, makes or gets."""
    assert tern_client.__doc__ is not None
    assert "run(main())" in tern_client.__doc__[:1_000]
    assert sorted(tern_client.__all__) == tern_client.__all__
    assert not {"Request", "Response", "Transport", "HttpxTransport"} & set(tern_client.__all__)
