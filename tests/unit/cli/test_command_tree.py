"""The tree of commands: complete, and imported one command at a time."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tern_cli import command_tree
from tern_cli.app import app


@pytest.mark.parametrize("name", command_tree.names())
def test_every_command_can_be_loaded_and_says_what_it_does(name: str) -> None:
    """Twice, as help and run do: a group's commands are there once."""
    for _ in range(2):
        found = command_tree.load(name)
        assert found.name == name
        assert found.get_short_help_str()
        assert found.rich_help_panel in command_tree.PANELS


def test_help_shows_all_of_them() -> None:
    """In the panels of the tree."""
    shown = CliRunner().invoke(app, ["--help"]).output
    for panel, names in command_tree.PANELS.items():
        assert f" {panel} " in shown
        for name in names:
            assert f"│ {name} " in shown


def test_a_misspelt_command_names_the_nearest() -> None:
    """As if all had been imported."""
    result = CliRunner().invoke(app, ["topik"])
    assert result.exit_code == 2
    assert "Did you mean 'topic'?" in result.output
    assert command_tree.load("topik") is None


@pytest.mark.parametrize("words", [["--version"], ["status", "--data-dir", "no-such-mesh"]])
def test_a_command_imports_no_other_and_no_client_that_it_does_not_use(words: list[str]) -> None:
    """Most of a short command's time would be imports."""
    code = f"""
import sys
from tern_cli.app import app
sys.argv = ["ternmq", *{words!r}]
try:
    app()
except SystemExit:
    pass
print("\\n".join(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    modules = set(done.stdout.split())
    assert "tern_cli.app" in modules
    assert modules.isdisjoint({"tern_cli.commands.topic", "tern_cli.demo.commands", "tern_cli.store.commands"})
    assert modules.isdisjoint({"tern_client.blocking.admin", "tern_client.asynchronous.client", "httpx", "numpy"})
