"""What the documents show of Python is a file that Python takes; tests/procs runs the programs among it."""

import ast
import py_compile
import re
from pathlib import Path

import pytest

import tern_client
from tests.support.client.examples import ENDPOINT, examples_of, public_classes, shown

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
]
SNIPPETS = [
    pytest.param(snippet, id=f"{path.relative_to(ROOT)}-{number}")
    for path in sorted(DOCUMENTS)
    # Excerpts are compared with the files that they come from by tests/unit/docs.
    for number, snippet in enumerate(
        re.findall(r"^```python(?! {not run: excerpt}).*?\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S)
    )
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_snippet_is_a_file_that_python_takes(snippet: str, tmp_path: Path) -> None:
    """Not `async with` outside a function, and no name of the SDK that is not there."""
    path = tmp_path / "snippet.py"
    path.write_text(snippet)
    py_compile.compile(str(path), doraise=True)
    for names in re.findall(r"^from tern_client import (.*)$", snippet, re.M):
        for name in names.split(", "):
            assert hasattr(tern_client, name)


def test_the_documents_show_the_sdk() -> None:
    """So that the table above is not empty."""
    assert len(SNIPPETS) >= 4


@pytest.mark.parametrize("kind", public_classes(), ids=lambda kind: kind.__name__)
def test_every_public_class_has_an_example_that_shows_what_it_prints(kind: type) -> None:
    """`tests/mesh/sdk` runs them; here none is missing, uses another class alone, or shows nothing."""
    programs = examples_of(kind.__doc__)
    assert programs, f"{kind.__name__} has no `Example:` in its docstring"
    for program in programs:
        ast.parse(program)
        assert shown(program)
        assert kind.__name__ in program
        assert set(re.findall(r"https?://[\w.:]+", program)) <= {ENDPOINT, "http://127.0.0.1:9"}


def test_an_example_is_found_to_its_last_line() -> None:
    """Blank lines are part of it; what follows at the docstring's own margin is not."""
    text = """Says what it is.

    Example:

        def main() -> None:
            print(1)  # -> 1


        main()

    Something else.
    """
    assert examples_of(text) == ["def main() -> None:\n    print(1)  # -> 1\n\n\nmain()\n"]
    assert examples_of("Says what it is.") == examples_of(None) == []


def test_the_help_begins_with_what_to_import_and_lists_nothing_that_is_not_for_users() -> None:
    """What is public is what somebody calls, catches, makes or gets."""
    assert tern_client.__doc__ is not None
    assert len(examples_of(tern_client.__doc__)) == 4
    assert "except TernError" in tern_client.__doc__  # its class is at home in tern_wire
    assert sorted(tern_client.__all__) == tern_client.__all__
    assert not {"Request", "Response", "Transport", "HttpxTransport"} & set(tern_client.__all__)
