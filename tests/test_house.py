"""The house: folders are subjects and stay small, modules do not import each other in circles, and documents name what is there."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_tidy import ROOT, everything, forgotten, imports, name_of, packages, sources  # noqa: F401 (a fixture)

FILES_MAX = 25
# Folders with more files than that. Each number may only fall; `routes` have one file a subject.
FULL_FOLDERS: dict[str, int] = {}
FULL_TEST_FOLDERS = {"tests/mesh": 28, "tests/unit/raft": 26}
DOCUMENTS = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "deploy/README.md", "loadtest/README.md"]
# A path as documents write it: with a folder, in backticks, a file or a folder of ours.
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w*.-]+\.(?:py|md|json|yml))?)(?:::\w+)?`")
# A file of Python as docstrings and comments write it, with or without its folders; and those of pysyncobj that we speak of.
SOURCE = re.compile(r"(?<![\w./-])((?:[\w-]+/)*[a-z_]+\.py)\b")
NOT_OURS_SOURCES = {"syncobj.py", "tcp_connection.py", "serializer.py"}
# What is made at run time, or is a part of a path of the HTTP API.
NOT_OURS = re.compile(
    r"^(data|demo|bench|load|logs|certs|\.tern|commitlog|entryindex|consumequeue|index|timers|sentkeys|state|times|v1)/"
)


def product() -> list[Path]:
    """Every Python file of the packages, scripts left out."""
    return [path for folder in packages().values() for path in sorted(folder.rglob("*.py"))]


def test_no_folder_is_a_street() -> None:
    """At most FILES_MAX files of Python in a folder, `__init__.py` left out."""
    counts = Counter(name_of(path.parent) for path in product() if path.name != "__init__.py")
    full = {folder: count for folder, count in counts.items() if count > FULL_FOLDERS.get(folder, FILES_MAX)}
    assert not full, f"look for the subjects: {full}"
    assert not [folder for folder in FULL_FOLDERS if counts[folder] <= FILES_MAX], "no exception any more"


def test_no_folder_of_tests_is_a_street() -> None:
    """As above; those with meshes of real processes have one file a subject, side by side."""
    counts = Counter(name_of(path.parent) for path in sources("tests") if path.name != "conftest.py")
    full = {folder: count for folder, count in counts.items() if count > FULL_TEST_FOLDERS.get(folder, FILES_MAX)}
    assert not full, f"look for the subjects: {full}"


def test_every_folder_says_what_its_subject_is() -> None:
    """Its `__init__.py` is there and has one sentence, or more."""
    for folder in {path.parent for path in product() if "tern_" in str(path.parent)}:
        text = (folder / "__init__.py").read_text("utf-8")
        assert re.match(r'"""\S[^"]{15,}', text), name_of(folder)


def module_of(path: Path, package: str, folder: Path) -> str:
    """*path* as imports write it."""
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((package, *parts)).removesuffix(".__init__")


def circles(arrows: dict[str, set[str]]) -> Iterator[set[str]]:
    """The sets of modules that reach each other (Tarjan's strongly connected components of more than one)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in arrows[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    for name in arrows:
        if name not in order:
            visit(name)
    return (circle for circle in found if len(circle) > 1)


@pytest.mark.parametrize("package", sorted(packages()))
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    """Imports for types count: who needs the type of another is bound to it."""
    folder = packages()[package]
    modules = {module_of(path, package, folder): path for path in sorted(folder.rglob("*.py"))}
    arrows = {
        name: {other for other in imports(path) if other in modules and other != name}
        for name, path in modules.items()
        if path.name != "__init__.py"
    }
    arrows = {name: {other for other in others if other in arrows} for name, others in arrows.items()}
    found = sorted(map(sorted, circles(arrows)))
    assert not found, found


def documents() -> list[Path]:
    """Those that name files."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    return [*(ROOT / name for name in DOCUMENTS), *pages, *(path for path in everything() if path.name == "DESIGN.md")]


@pytest.mark.parametrize("document", [name_of(path) for path in documents()])
def test_documents_name_what_is_there(document: str) -> None:
    """A path in backticks is the end of the path of a file or folder of the repository."""
    have = ["/" + name_of(path) for path in everything()]
    folders = {str(Path(name).parent) + "/" for name in have} | {
        "/".join(name.split("/")[:at]) + "/" for name in have for at in range(2, name.count("/") + 1)
    }
    missing = []
    for place in PATH.findall((ROOT / document).read_text("utf-8")):
        if NOT_OURS.match(place):
            continue
        wanted = re.compile(".*/" + re.escape(place).replace(r"\*", r"[\w.-]*") + "$")
        if not any(wanted.match(name) for name in (folders if place.endswith("/") else have)):
            missing.append(place)
    assert not missing, missing


def test_sources_name_what_is_there() -> None:
    """As above, for the files that docstrings and comments of the product speak of."""
    have = {"/".join(path.parts[at:]) for path in everything() for at in range(1, len(path.parts))} | NOT_OURS_SOURCES
    missing = {
        f"{name_of(path)}: {place}"
        for path in product()
        for place in SOURCE.findall(path.read_text("utf-8"))
        if place not in have
    }
    assert not missing, "\n".join(sorted(missing))
