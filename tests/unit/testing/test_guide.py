"""The programs of docs/testing.md and of the docstrings work, and print what they show."""

from itertools import pairwise
from pathlib import Path

import pytest

from tern_testing import DeadLetter, SentMessage, TestMesh
from tests.support.client.examples import examples_of, printed, shown
from tests.support.documents.pages import Block, blocks

ROOT = Path(__file__).resolve().parents[3]
BLOCKS = blocks(ROOT / "docs/testing.md")
PROGRAMS = [
    pytest.param(block, answer, id=f"line {block.line}") for block, answer in pairwise(BLOCKS) if "run" in block.marks
]


@pytest.mark.parametrize(("program", "answer"), PROGRAMS)
def test_a_program_of_the_guide_prints_what_it_shows(program: Block, answer: Block, tmp_path: Path) -> None:
    """As a file."""
    assert answer.marks == ("answer",)
    file = tmp_path / "program.py"
    file.write_text(program.text, "utf-8")
    assert printed(file) == answer.text.splitlines()


class Outcomes:
    """What became of the tests of a run of pytest."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """pytest calls this at each step of a test."""
        if report.when == "call" or report.failed:
            self.calls.append(report.outcome)


def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    """With the fixture of the plugin, in a run of pytest of its own, where every warning is an error."""
    (test,) = [block for block in BLOCKS if block.reason == "pytest"]
    file = tmp_path / "test_orders.py"
    file.write_text(test.text, "utf-8")
    outcomes = Outcomes()
    # This process has imported the plugin already, of which a run of its own would know nothing.
    warnings = ["-W", "error", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options = ["-q", *warnings, "-p", "no:cacheprovider"]
    code = pytest.main([*options, "--rootdir", str(tmp_path), str(file)], plugins=[outcomes])
    assert (code, outcomes.calls) == (0, ["passed"])


@pytest.mark.parametrize("kind", [TestMesh, SentMessage, DeadLetter])
def test_the_example_of_a_class_prints_what_it_shows(kind: type, tmp_path: Path) -> None:
    """One each."""
    (program,) = examples_of(kind.__doc__)
    file = tmp_path / "example.py"
    file.write_text(program, "utf-8")
    assert printed(file) == shown(program)
