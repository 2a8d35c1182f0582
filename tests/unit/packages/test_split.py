"""Two distributions from one tree: which packages and which dependencies each has, read from the files alone. `make packages-test` installs them."""

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tern_wire.extras import EXTRAS
from tern_wire.version import VERSION
from tests.support.imports import imports

ROOT = Path(__file__).resolve().parents[3]
# By distribution, the folder of its pyproject.toml.
FOLDERS = {"ternmq-client": ROOT / "libs", "ternmq": ROOT}
# Modules of a dependency that have another name, or are its own dependency's and part of its interface.
INTERFACES = {"fastapi": {"starlette"}, "http-message-signatures": {"http_sf"}, "pyyaml": {"yaml"}}
# Extras for work on TernMQ itself, which no sentence of the product names.
WORKSHOP = {"dev", "load", "connect"}


@cache
def project(name: str) -> dict[str, Any]:
    """The whole pyproject.toml of the distribution *name*."""
    return tomllib.loads((FOLDERS[name] / "pyproject.toml").read_text("utf-8"))


def packages(name: str) -> dict[str, Path]:
    """The packages in the wheel of *name*, and where each lies."""
    listed = project(name)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return {Path(each).name: FOLDERS[name] / each for each in listed}


def modules_of(requirements: list[str]) -> set[str]:
    """Top-level modules that *requirements* bring, ours aside."""
    names = {each.partition("=")[0] for each in requirements if not each.startswith("ternmq")}
    return {name.replace("-", "_") for name in names} | {
        module for name in names for module in INTERFACES.get(name, ())
    }


@cache
def file_of(module: str) -> Path | None:
    """Where *module*, dotted, of ours lies; None for any other."""
    top, *parts = module.split(".")
    folder = next((here[top] for here in map(packages, FOLDERS) if top in here), None)
    if folder is None:
        return None
    path = folder.joinpath(*parts)
    found = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return found if found.is_file() else None


def closure(*first: str) -> set[str]:
    """*first* and all modules that they import, at once or through others, in functions too; the packages of ours that these are in."""
    seen: set[str] = set()
    ahead = list(first)
    while ahead:
        module = ahead.pop()
        if module in seen:
            continue
        seen.add(module)
        if (path := file_of(module)) is not None:
            ahead += [*imports(path), *([module.rpartition(".")[0]] if "." in module else [])]
    return seen


def foreign(modules: set[str]) -> set[str]:
    """The top-level modules among *modules* that are neither ours nor of the standard library."""
    ours = {name for each in FOLDERS for name in packages(each)}
    return {module.partition(".")[0] for module in modules} - ours - set(sys.stdlib_module_names)


def every_module(name: str) -> Iterator[str]:
    """All modules in the wheel of *name*, dotted."""
    for package, folder in packages(name).items():
        for path in folder.rglob("*.py"):
            yield ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")


def test_the_sdk_imports_nothing_of_the_servers() -> None:
    """All of ours that any module of tern_client imports is in the wheel of the SDK."""
    ours = {module for module in closure(*_modules_of_the_sdk()) if module.startswith("tern_")}
    assert len(ours) > 90, "the search finds too little"
    assert {module.partition(".")[0] for module in ours} == packages("ternmq-client").keys()


def test_the_sdk_needs_what_its_distribution_names_and_no_more() -> None:
    """Its dependencies and its extras are exactly the foreign modules in the closure of its imports."""
    table = project("ternmq-client")["project"]
    extras = [each for group in table["optional-dependencies"].values() for each in group]
    assert foreign(closure(*_modules_of_the_sdk())) == modules_of([*table["dependencies"], *extras])


def test_everything_needs_what_its_distribution_names() -> None:
    """What any module of either wheel imports is a dependency of ternmq or of one of its extras."""
    table = project("ternmq")["project"]
    extras = [each for name, group in table["optional-dependencies"].items() if name not in WORKSHOP for each in group]
    named = modules_of([*table["dependencies"], *extras]) | {
        module for extra, modules in EXTRAS.items() if extra.startswith("ternmq-client") for module in modules
    }
    needed = foreign(closure(*(module for each in FOLDERS for module in every_module(each))))
    assert {"numpy", "rich", "starlette"} <= needed, "the search finds too little"
    assert needed <= named


def _modules_of_the_sdk() -> list[str]:
    return [module for module in every_module("ternmq-client") if module.split(".")[0] == "tern_client"]


def test_the_search_finds_an_import_that_breaks_the_split() -> None:
    """A check that cannot fail would be none: the command line needs both distributions, and more than the SDK."""
    found = closure("tern_cli.app")
    assert {"tern_client", "tern_store"} <= {module.partition(".")[0] for module in found}
    assert {"typer", "httptools"} <= foreign(found)


def test_every_package_is_in_one_wheel_and_is_typed() -> None:
    """No file is in both wheels, no package in neither, and each has the mark that lets mypy read its types."""
    homes = [ROOT / "libs", *sorted((ROOT / "services").iterdir()), ROOT / "spark"]
    all_packages = sorted(path for home in homes for path in home.glob("tern_*") if path.is_dir())
    shipped = sorted(path for name in FOLDERS for path in packages(name).values())
    assert shipped == all_packages
    assert [path.name for path in shipped if not (path / "py.typed").is_file()] == []


def test_the_table_of_extras_is_that_of_the_projects() -> None:
    """What an extra brings, and no more: a sentence that names the wrong extra does not help."""

    def brought(name: str, extra: str) -> set[str]:
        found: set[str] = set()
        for each in project(name)["project"]["optional-dependencies"][extra]:
            if within := re.fullmatch(rf"{name}\[([\w,-]+)\]", each):
                found |= {module for inner in within[1].split(",") for module in brought(name, inner)}
            else:
                found |= modules_of([each])
        return found

    assert {extra: set(modules) for extra, modules in EXTRAS.items()} == {
        f"{name}[{extra}]": brought(name, extra)
        for name in FOLDERS
        for extra in project(name)["project"]["optional-dependencies"].keys() - WORKSHOP
    }


def test_everything_has_the_sdk_of_its_own_release_with_all_of_its_extras() -> None:
    """So what a command line or a service raises never says that an extra of the SDK is missing."""
    table = project("ternmq")["project"]
    extras = ",".join(project("ternmq-client")["project"]["optional-dependencies"])
    assert f"ternmq-client[{extras}]=={VERSION}" in table["dependencies"]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CHANGELOG.md", r"^## (\S+)"),
        ("deploy/docker-compose.yml", r"TERNMQ_VERSION:-([^}]+)\}"),
        ("deploy/Dockerfile", r"-t ternmq/mesh:(\S+)"),
    ],
)
def test_a_place_that_cannot_take_the_version_from_the_code_has_the_same(file: str, pattern: str) -> None:
    """Names of images, and the newest heading of the changes; the two projects take it from tern_wire/version.py."""
    found = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert found[0] == VERSION
    assert file == "CHANGELOG.md" or set(found) == {VERSION}


def test_the_two_projects_tell_the_same_of_themselves() -> None:
    """Licence, authors and the Python that they need; neither says a version."""
    both = [project(name)["project"] for name in FOLDERS]
    for field in ("license", "license-files", "authors", "requires-python", "dynamic"):
        assert both[0][field] == both[1][field]
    assert (ROOT / "libs/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
