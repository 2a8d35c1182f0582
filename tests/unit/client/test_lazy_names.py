"""`tern_client` imports each of its names at the first use, and type checkers see the same names."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import tern_client
from tern_wire import errors
from tern_wire.errors import TernError


def seen_by_type_checkers() -> dict[str, str]:
    """Each name with its module, in the block that only they read."""
    tree = ast.parse(Path(tern_client.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {
        alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name != "*"  # the errors of the mesh
    }


def test_a_name_is_the_same_for_python_and_for_type_checkers() -> None:
    """In the list of public names, in the block for type checkers, and in the table of homes."""
    assert seen_by_type_checkers() == tern_client._HOMES
    assert sorted(tern_client._HOMES) == sorted(tern_client.__all__)
    for name, home in tern_client._HOMES.items():
        assert getattr(tern_client, name) is getattr(import_module(home), name)
        assert name in dir(tern_client)


ERRORS = [name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, TernError)]


@pytest.mark.parametrize("name", ERRORS)
def test_each_error_of_the_mesh_can_be_caught_by_its_name_here(name: str) -> None:
    """`except tern_client.TopicNotFound`, without knowing which package has it."""
    assert name in errors.__all__
    assert getattr(tern_client, name) is getattr(errors, name)


def test_every_error_that_a_call_may_raise_has_its_name_here() -> None:
    """Those that clients make themselves, too."""
    for module in walk_packages(tern_client.__path__, "tern_client."):
        for name, found in vars(import_module(module.name)).items():
            if isinstance(found, type) and issubclass(found, TernError) and not name.startswith("_"):
                assert getattr(tern_client, name) is found


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    """So that `hasattr` and a misspelt import work as everywhere."""
    assert not hasattr(tern_client, "Produser")
    with pytest.raises(AttributeError, match="'tern_client' has no attribute 'Produser'"):
        tern_client.Produser  # noqa: B018


def test_the_package_alone_imports_no_client() -> None:
    """An application that only sends imports no consumer."""
    code = "import sys, tern_client; tern_client.TernError; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not [name for name in done.stdout.split() if name.startswith("tern_client.") or name == "asyncio"]
    everything = "import sys; from tern_client import *; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", everything], capture_output=True, text=True, timeout=60, check=True)
    assert "tern_client.asynchronous.admin" in done.stdout.split()
