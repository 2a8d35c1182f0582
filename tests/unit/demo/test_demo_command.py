"""`ternmq demo` as a command: where it sends, and what it says of a damaged mesh."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.mesh.files import MeshFiles
from tern_wire.errors import TopicNotFound
from tests.support.client.scripted_proxy import blocking_proxy, refused
from tests.support.mesh.stand_in_mesh import mesh_document


def test_the_demo_goes_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TERNMQ_ENDPOINT is stronger than the mesh in .tern, whose addresses nobody may ask here."""
    monkeypatch.chdir(tmp_path)
    files = MeshFiles(tmp_path / ".tern")
    files.make_folders()
    with (
        blocking_proxy(lambda _: refused(TopicNotFound(topic="asked"))) as other,
        blocking_proxy(lambda _: refused(TopicNotFound(topic="demo"))) as made,
    ):
        monkeypatch.setenv("TERNMQ_ENDPOINT", made.url)
        files.write_mesh(mesh_document(proxies=[other.url], namesrvs=[other.url]))
        done = CliRunner().invoke(app, ["demo", "flights", "--no-spark", "--messages", "100"])
        assert other.asked == []
        assert made.asked, done.output
    assert done.exit_code == 1
    assert "The topic does not exist" in done.stderr


@pytest.mark.parametrize(("text", "why"), [("{", "not JSON"), ("{}", "'version' is missing")])
def test_the_demo_names_a_damaged_mesh_json(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other command that reads it."""
    monkeypatch.setenv("TERNMQ_DATA_DIR", str(tmp_path))
    path = tmp_path / "mesh.json"
    path.write_text(text)
    failed = CliRunner().invoke(app, ["demo", "flights", "--no-spark"])
    assert failed.exit_code == 1
    assert str(path) in failed.stderr
    assert why in failed.stderr
