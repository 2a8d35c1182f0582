"""What is imported when: the plugin of pytest loads no server, and the SDK names what it lacks."""

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import tern_client.testing
import tern_testing
from tern_wire.extras import ExtraMissing

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def anyio_backend() -> str:
    """asyncio only."""
    return "asyncio"


async def test_the_fixture_is_a_mesh(tern_mesh: tern_testing.TestMesh, anyio_backend: str) -> None:
    """Which runs, and is empty."""
    async with tern_mesh.producer() as producer:
        await producer.send("orders", b"1")
    assert [each.body for each in tern_mesh.sent("orders")] == [b"1"]


def test_no_service_and_no_library_imports_the_package() -> None:
    """But the SDK's door to it, by name."""
    named = [
        path.relative_to(ROOT).as_posix()
        for top in ("libs", "services", "spark")
        for path in sorted((ROOT / top).rglob("*.py"))
        if "tern_testing" in path.read_text("utf-8") and path.parent.name != "tern_testing"
    ]
    assert named == ["libs/tern_client/testing.py"]


def test_the_plugin_loads_no_server() -> None:
    """Every run of pytest in an environment with ternmq imports it."""
    program = (
        "import sys, tern_testing.pytest_plugin\n"
        "found = {name.partition('.')[0] for name in sys.modules if name.startswith('tern_')}\n"
        "assert found == {'tern_testing'}, found\n"
        "assert not {'asyncio', 'numpy', 'fastapi'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_entry_point_names_the_plugin() -> None:
    """As pyproject.toml writes it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    ((name, value),) = project["entry-points"]["pytest11"].items()
    plugin = EntryPoint(name, value, "pytest11").load()
    assert name == plugin.__name__, "or a run that names the module as well would register it twice"
    assert hasattr(plugin, "tern_mesh")


@pytest.mark.parametrize("name", tern_testing.__all__)
def test_the_sdk_has_all_names_of_the_package(name: str) -> None:
    """The very same objects, in its stub too."""
    assert getattr(tern_client.testing, name) is getattr(tern_testing, name)
    stub = Path(tern_client.testing.__file__).with_suffix(".pyi").read_text("utf-8")
    assert f"from tern_testing import {name} as {name}\n" in stub


def test_without_the_servers_the_sdk_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """ternmq-client alone has no TestMesh."""
    monkeypatch.setitem(sys.modules, "tern_testing", None)
    with pytest.raises(ExtraMissing, match="pip install 'ternmq'"):
        _ = tern_client.testing.TestMesh
    for module in (tern_client.testing, tern_testing):
        with pytest.raises(AttributeError, match="NoSuchName"):
            _ = module.NoSuchName
