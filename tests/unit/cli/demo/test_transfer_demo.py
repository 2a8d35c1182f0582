"""`ternmq demo transfer` from end to end, with real processes and databases, at a stand-in for the mesh."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.demo.transfer import run
from tern_cli.mesh.files import MeshFiles
from tests.support.mesh.stand_in_mesh import mesh_document
from tests.support.mesh.transaction_stand_in import TransactionStandIn, transaction_stand_in

RUNNER = CliRunner()


def words(url: str, folder: Path, *more: str) -> list[str]:
    """A small run at *url*, by pull."""
    return [
        *("demo", "transfer", "--transfers", "150", "--seed", "11", "--checks", "pull"),
        *("--endpoint", url, "--data-dir", str(folder), *more),
    ]


def test_crashed_producers_cost_no_cent(tmp_path: Path) -> None:
    """Both producers are killed once in the middle; checks end what they left; the proof holds and is told in JSON."""
    stand_in = TransactionStandIn()
    with transaction_stand_in(stand_in) as url:
        done = RUNNER.invoke(app, words(url, tmp_path, "--crash-producer", "-o", "json"))
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["proved"], result["differences"]) == (True, [])
    assert result["producer_crashes"] == {"debited": 2}
    assert result["debited"] + result["refused"] == 150
    assert result["credited"] == result["messages"] == result["debited"] == len(stand_in.visible)
    assert result["opening_cents"] == result["closing_cents"]
    assert result["checks"] > 0
    (folder,) = (tmp_path / "demo").iterdir()
    assert json.loads((folder / "transfer.json").read_text()) == result


def test_a_message_that_was_rolled_back_and_came_all_the_same_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1, the promise that was broken, and where the banks are."""
    monkeypatch.setattr(run, "PATIENCE_S", 1.0)
    with transaction_stand_in(TransactionStandIn(ghost=True)) as url:
        done = RUNNER.invoke(app, words(url, tmp_path))
    assert done.exit_code == 1, done.output
    assert "The money does not add up" in done.stderr
    assert "rolled back, yet delivered: 1 messages" in done.stderr
    assert "Seed 11" in done.stderr
    assert "Proved" not in done.stdout


@pytest.mark.parametrize(
    ("fault", "says"), [("--kill-leader", "No leader to kill"), ("--kill-checker", "No txn-checker to kill")]
)
def test_what_cannot_be_killed_is_said_before_anything_begins(fault: str, says: str, tmp_path: Path) -> None:
    """Exit code 2; no bank is made."""
    files = MeshFiles(tmp_path)
    files.make_folders()
    files.write_mesh(mesh_document())
    done = RUNNER.invoke(app, words("http://127.0.0.1:1", tmp_path, fault))
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert not (tmp_path / "demo").exists()
