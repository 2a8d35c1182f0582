"""The examples in the SDK's docstrings, each run as a program against the mesh: they work, and print what they show."""

from pathlib import Path

import pytest

import tern_client
from tern_client import BlockingAdmin
from tests.support.client.examples import NAMES, examples_of, placed, printed, public_classes, shown
from tests.support.mesh.mesh import Mesh

# Examples are about the SDK; a leader's death is a matter of the tests beside this folder.
pytestmark = pytest.mark.calm
PROGRAMS = [
    pytest.param(program, f"-{kind.__name__}-{number}", id=f"{kind.__name__}-{number}")
    for kind in public_classes()
    for number, program in enumerate(examples_of(kind.__doc__))
]


def prepare(mesh: Mesh, suffix: str) -> None:
    """Make the topic, the consumer group and the producer group that examples use."""
    with BlockingAdmin(mesh.endpoint) as admin:
        admin.create_topic(NAMES["topic"] + suffix, queues=1)
        admin.create_group(NAMES["group"] + suffix)
        admin.create_producer_group(NAMES["producer_group"] + suffix)


def check(mesh: Mesh, program: str, suffix: str, directory: Path) -> None:
    """*program* prints what it shows, as a file in *directory*."""
    file = directory / "example.py"
    file.write_text(placed(program, mesh.endpoint, suffix), "utf-8")
    assert printed(file) == shown(file.read_text("utf-8"))


@pytest.mark.parametrize("program, suffix", PROGRAMS)
def test_the_example_of_a_class_prints_what_it_shows(
    mesh: Mesh, program: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of it works as the docstring shows. Files that it writes are in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    prepare(mesh, suffix)
    check(mesh, program, suffix, tmp_path)


def test_the_programs_of_the_help_print_what_they_show(mesh: Mesh, tmp_path: Path) -> None:
    """One after the other: the second one receives what the first one sends."""
    prepare(mesh, "-help")
    programs = examples_of(tern_client.__doc__)
    assert len(programs) == 4
    for program in programs:
        check(mesh, program, "-help", tmp_path)
