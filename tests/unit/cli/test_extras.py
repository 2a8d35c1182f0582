"""What an installation lacks is said in one sentence, at once, by every command: the extra to install, and never a ModuleNotFoundError."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from tern_wire.extras import EXTRAS, ExtraMissing, damage, need_extra

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ("tern_wire", "tern_client", "tern_cli", "tern_security", "tern_store")
# Which commands need more than a plain installation has, and the extra that each names.
NEEDS = {
    "up": "mesh",
    "up --secure": "mesh",
    "init-cluster": "security",
    "key create x --type ed25519": "security",
    "demo flights": "demo",
    "demo flights --no-spark": "demo",
    "demo transfer": "txn-checker",
    "serve": "broker",
    "import tern_spark": "spark",
    **{f"serve {service}": service for service in ("namesrv", "broker", "proxy", "txn-checker")},
}
PROGRAMS = {
    f"python -m tern_{service.replace('-', '_')}": service for service in ("namesrv", "broker", "proxy", "txn-checker")
}
ASKS = {"need_extra", "is_installed", "not_installed"}


def test_the_table_of_extras_is_that_of_the_project() -> None:
    """What an extra brings, and no more: a sentence that names the wrong extra sends somebody in circles."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]

    def brought(extra: str) -> set[str]:
        found: set[str] = set()
        for name in project[extra]:
            if within := re.fullmatch(r"ternmq\[([\w,-]+)\]", name):
                found |= {module for each in within[1].split(",") for module in brought(each)}
            else:
                found.add(name.replace("-", "_"))
        return found

    assert {extra: set(modules) for extra, modules in EXTRAS.items()} == {
        extra: brought(extra) for extra in project if extra not in {"dev", "load"}
    }


def test_the_sentence_names_what_for_what_and_how() -> None:
    """Some of what is missing by name; all of it is what the extra brings."""
    with pytest.raises(ExtraMissing) as failed:
        need_extra("mesh", "A mesh", "no_such_a", "json", "no_such_b", otherwise=", or go without")
    assert failed.value.detail == "A mesh needs no_such_a, no_such_b: pip install 'ternmq[mesh]', or go without."
    with pytest.raises(ExtraMissing, match="needs no_a, no_b, no_c and 2 more: pip"):
        need_extra("mesh", "A mesh", *(f"no_{letter}" for letter in "abcde"))
    need_extra("mesh", "A mesh", "json")
    assert "ternmq[rocketmq]" in damage(ModuleNotFoundError("No module named 'lz4.frame'", name="lz4.frame"))
    assert "'ternmq'" in damage(ModuleNotFoundError("No module named 'rich'", name="rich"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What every command says where nothing is installed but what a client needs."""
    folder = str(tmp_path_factory.mktemp("plain"))
    command = [sys.executable, "-m", "tests.support.mesh.bare_installation", folder]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return {words: tuple(said) for words, said in json.loads(done.stdout).items()}


def test_every_command_works_without_extras_or_names_the_one_it_needs(plain: dict[str, tuple[int, str]]) -> None:
    """The table is the command line's own tree: a new command is in it."""
    assert len(plain) > 90
    wrong = []
    for words, (code, said) in plain.items():
        is_told = "Traceback" not in said and "No module named" not in said and "damaged" not in said
        extra = {**NEEDS, **PROGRAMS}.get(words, "")
        names = re.findall(r"pip install 'ternmq\[([\w-]+)\]'", " ".join(said.split()))
        expected = 78 if words in PROGRAMS else 2
        if not is_told or names != ([extra] if extra else []) or (extra and code != expected):
            wrong.append(f"{words}: {code} {said}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_behind_by_a_command_that_could_not_begin(plain: dict[str, tuple[int, str]]) -> None:
    """No folder with a key in it, no process that starts again and again."""
    assert plain["down"][1].startswith("No mesh was running")
    assert "has no running mesh" in plain["status"][1]


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when a module is imported; a `try` that catches ImportError can do without."""
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Try):
            if not any("ImportError" in ast.unparse(each.type or node) for each in node.handlers):
                yield from _top(node.body)
            continue
        yield node
        for field in ("body", "orelse"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from _top(getattr(node, field, []))


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        # A name may be a module of its own.
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def _lacking_modules() -> frozenset[str]:
    """Modules that cannot be imported without an extra: those that it brings, and ours that import one of them at once or through others."""
    lacking = {module for modules in EXTRAS.values() for module in modules}
    imports: dict[str, set[str]] = {}
    for path in (ROOT / "libs").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "libs").with_suffix("").parts).removesuffix(".__init__")
        imports[name] = {each for node in _top(_tree(path).body) for each in _imported(node)}
    before = 0
    while len(lacking) > before:
        before = len(lacking)
        lacking |= {name for name, asked in imports.items() if any(_is_of(each, lacking) for each in asked)}
    return frozenset(lacking)


def _is_of(module: str, lacking: Set[str]) -> bool:
    """Whether importing *module*, and so each package that it is in, imports one of *lacking*."""
    parts = module.split(".")
    return any(".".join(parts[:end]) in lacking for end in range(1, len(parts) + 1))


def bare_imports(tree: ast.Module) -> list[str]:
    """Imports in *tree* of what an extra brings, at once or through modules of ours, that nothing has asked for before in their function."""
    lacking = _lacking_modules()
    found = [f"{name} at the top" for node in _top(tree.body) for name in _imported(node) if _is_of(name, lacking)]
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        asked = [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ASKS
        ]
        for node in ast.walk(function):
            for name in _imported(node):
                if _is_of(name, lacking) and not any(line <= node.lineno for line in asked):  # type: ignore[attr-defined]
                    found.append(f"{name} in {function.name}")
    return found


def test_no_import_of_an_extra_is_bare() -> None:
    """Each is behind `need_extra` in its function, or in a module that is imported so only."""
    behind = {"tern_client/transport/fast_transport.py", "tern_security/authority.py"}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for library in LIBRARIES
        for path in sorted((ROOT / "libs" / library).rglob("*.py"))
        if str(path.relative_to(ROOT / "libs")) not in behind
        for name in bare_imports(_tree(path))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "import cryptography",
        "from tern_service.server import serve",
        "def f():\n    from lz4 import frame",
        "def f():\n    from tern_security import authority",
        "class A:\n    def f(self):\n        import uvicorn\n        need_extra('mesh', 'x')",
    ],
)
def test_the_search_for_bare_imports_finds_them(source: str) -> None:
    """A check that cannot fail would be none."""
    assert bare_imports(ast.parse(source))
    fine = "def f():\n    need_extra('mesh', 'x')\n    import uvicorn\n    import rich"
    assert not bare_imports(ast.parse(fine))


SERVICES = {
    "namesrv": "services/namesrv/tern_namesrv",
    "broker": "services/broker/tern_broker",
    "proxy": "services/proxy/tern_proxy",
    "txn-checker": "services/txn-checker/tern_txn_checker",
}


def _brought_by_imports(module: str, seen: set[str]) -> set[str]:
    """What of the extras importing *module* imports, at once or through our libraries."""
    known = {each for modules in EXTRAS.values() for each in modules}
    parts = module.split(".")
    if parts[0] in known:
        return {parts[0]}
    found: set[str] = set()
    for name in (".".join(parts[:end]) for end in range(1, len(parts) + 1)):
        path = (ROOT / "libs").joinpath(*name.split("."))
        for file in (path / "__init__.py", path.with_suffix(".py")):
            if name not in seen and file.is_file():
                seen.add(name)
                for node in _top(_tree(file).body):
                    for below in _imported(node):
                        found |= _brought_by_imports(below, seen)
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_needs_no_more_than_its_extra_brings(service: str) -> None:
    """Installed alone, too: what it imports anywhere, and all of tern_service, whose door imports its parts by name."""
    seen: set[str] = set()
    found: set[str] = set()
    for path in (ROOT / SERVICES[service]).rglob("*.py"):
        for node in ast.walk(_tree(path)):
            for name in _imported(node):
                found |= _brought_by_imports(name, seen)
    for path in (ROOT / "libs/tern_service").glob("*.py"):
        found |= _brought_by_imports(f"tern_service.{path.stem}", seen)
    assert found, "the search finds nothing"
    assert found <= set(EXTRAS[service])


def test_the_readme_names_every_extra_that_somebody_may_need() -> None:
    """With what it is for; the parts of a mesh come together."""
    named = set(re.findall(r"pip install 'ternmq\[([\w-]+)\]'", (ROOT / "README.md").read_text("utf-8")))
    assert named == EXTRAS.keys() - {"service", *SERVICES}
