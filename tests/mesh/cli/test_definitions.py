"""`ternmq definitions` against a real mesh: applied, applied again, exported, and refused."""

import json
from pathlib import Path

from typer.testing import CliRunner

from tern_cli.app import app
from tern_client import BlockingAdmin
from tests.support.mesh.mesh import Mesh

RUNNER = CliRunner()
FILE = """
version: 1
topics:
  defined-orders: {queues: 4, type: FIFO, when_full: drop-oldest, attributes: {owner: shop}}
groups:
  defined-billing: {invisible: 45s, max_attempts: 3, fifo: true, retry: {policy: exponential, initial: 1s, multiplier: 2, max: 10s}}
  defined-audit: {broadcast: true, retry: {policy: custom, delays: [1s, 5m]}}
producer_groups:
  defined-shop: {check_after: 9s, max_checks: 4}
"""


def run(mesh: Mesh, *words: str) -> tuple[int, str]:
    """The exit code and all output of a command at the mesh."""
    done = RUNNER.invoke(app, ["definitions", *words, "--endpoint", mesh.endpoint])
    return done.exit_code, done.output


def test_a_file_is_applied_once_and_then_agrees(mesh: Mesh, tmp_path: Path) -> None:
    """A dry run changes nothing; a second run finds nothing; the export of the mesh agrees, too."""
    file = tmp_path / "mesh.yaml"
    file.write_text(FILE)
    with BlockingAdmin(mesh.endpoint) as admin:
        code, output = run(mesh, "apply", str(file), "--dry-run", "--fail-on-change")
        assert code == 1, output
        assert "+ topic defined-orders" in output
        assert admin.topics("defined-") == []
        code, output = run(mesh, "apply", str(file))
        assert code == 2, output  # nobody to ask
        code, output = run(mesh, "apply", str(file), "--yes")
        assert code == 0, output
        assert output.endswith("4 changes made.\n")
        assert admin.topic("defined-orders")["when_full"] == "drop-oldest"
        assert admin.group("defined-billing")["invisible_ms"] == 45_000
        assert run(mesh, "apply", str(file), "--dry-run", "--fail-on-change") == (0, "The mesh agrees with the file.\n")
        exported = tmp_path / "exported.yaml"
        assert run(mesh, "export", str(exported))[0] == 0
        assert run(mesh, "apply", str(exported), "--dry-run", "--fail-on-change")[0] == 0
        # What is drawn back by a file that names one field.
        admin.alter_group("defined-billing", max_attempts=5)
        code, output = run(mesh, "apply", str(file), "--yes", "-o", "json")
        found = json.loads(output)
        assert found["changes"] == [
            {
                "kind": "groups",
                "name": "defined-billing",
                "new": False,
                "fields": {"max_attempts": {"before": 5, "after": 3}},
            }
        ]
        assert (found["applied"], admin.group("defined-billing")["max_attempts"]) == (True, 3)


def test_a_change_that_the_mesh_refuses_is_named_with_what_was_made(mesh: Mesh, tmp_path: Path) -> None:
    """So that it can be repeated after the repair."""
    file = tmp_path / "mesh.yaml"
    file.write_text("version: 1\ntopics: {defined-first: {queues: 4}, defined-second: {type: ROUND}}\n")
    code, output = run(mesh, "apply", str(file), "--yes")
    assert code == 1
    assert "1 of 2 changes were made" in output
    assert "topics.defined-second" in output
    with BlockingAdmin(mesh.endpoint) as admin:
        assert [row["topic"] for row in admin.topics("defined-first")] == ["defined-first"]
