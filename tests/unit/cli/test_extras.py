"""What an installation lacks is said in one sentence, at once, by every command: the extra to install, and never a ModuleNotFoundError."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

import pytest

from tern_wire.extras import EXTRAS, ExtraMissing, damage, need_extra
from tests.support.imports import imported, tree_of

ROOT = Path(__file__).resolve().parents[3]
# What may be missing there, by the begin of an extra's name: the SDK's own extras and, in the code that it shares with servers, theirs.
SDK, SDK_PACKAGES = "ternmq", {"tern_client", "tern_http", "tern_wire"}
# Which commands need more than a plain installation has, and the extra that each names.
NEEDS = {
    "demo flights": "ternmq[demo]",
    "demo flights --no-spark": "ternmq[demo]",
    "import tern_spark": "ternmq[spark]",
    "spark run": "ternmq[spark]",
}
ASKS = {"need_extra", "is_installed", "not_installed"}


def test_the_sentence_names_what_for_what_and_how() -> None:
    """Some of what is missing by name; all of it is what the extra brings."""
    with pytest.raises(ExtraMissing) as failed:
        need_extra("ternmq[spark]", "The Spark source", "no_such_a", "json", "no_such_b")
    assert failed.value.detail == "The Spark source needs no_such_a, no_such_b: pip install 'ternmq[spark]'."
    with pytest.raises(ExtraMissing, match="needs no_a, no_b, no_c and 2 more: pip"):
        need_extra("ternmq[spark]", "The Spark source", *(f"no_{letter}" for letter in "abcde"))
    need_extra("ternmq[spark]", "The Spark source", "json")
    assert "ternmq-client[compression]" in damage(ModuleNotFoundError("No module named 'lz4.frame'", name="lz4.frame"))
    assert "'ternmq'" in damage(ModuleNotFoundError("No module named 'rich'", name="rich"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What every command says where nothing is installed but what `pip install ternmq` brings."""
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
        extra = NEEDS.get(words, "")
        names = re.findall(r"pip install '([^']+)'", " ".join(said.split()))
        if words.endswith("--help") and code:
            wrong.append(f"{words}: {code} {said}")
        if not is_told or names != ([extra] if extra else []) or (extra and code != 2):
            wrong.append(f"{words}: {code} {said}")
    assert not wrong, "\n".join(wrong)


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


@cache
def _lacking_modules(distribution: str) -> frozenset[str]:
    """Modules that cannot be imported without an extra: those that it brings, and ours that import one of them at once or through others.

    In `ternmq-client` the extras of both distributions may be missing, in `ternmq` its own: the SDK's are its dependencies.
    """
    lacking = {module for extra, modules in EXTRAS.items() if extra.startswith(distribution) for module in modules}
    imports: dict[str, set[str]] = {}
    for path in (ROOT / "libs").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT / "libs").with_suffix("").parts).removesuffix(".__init__")
        imports[name] = {each for node in _top(tree_of(path).body) for each in imported(node)}
    before = 0
    while len(lacking) > before:
        before = len(lacking)
        lacking |= {name for name, asked in imports.items() if any(_is_of(each, lacking) for each in asked)}
    return frozenset(lacking)


def _is_of(module: str, lacking: Set[str]) -> bool:
    """Whether importing *module*, and so each package that it is in, imports one of *lacking*."""
    parts = module.split(".")
    return any(".".join(parts[:end]) in lacking for end in range(1, len(parts) + 1))


def bare_imports(tree: ast.Module, distribution: str) -> list[str]:
    """Imports in *tree* of what an extra brings, at once or through modules of ours, without `need_extra` before in their function."""
    lacking = _lacking_modules(distribution)
    found = [f"{name} at the top" for node in _top(tree.body) for name in imported(node) if _is_of(name, lacking)]
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        asked = [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ASKS
        ]
        for node in ast.walk(function):
            for name in imported(node):
                if _is_of(name, lacking) and not any(line <= node.lineno for line in asked):  # type: ignore[attr-defined]
                    found.append(f"{name} in {function.name}")
    return found


# Modules that `tern_client/outbox/__init__.py` imports behind `need_extra`, and that only import each other.
BEHIND_THEIR_PACKAGE = {f"libs/tern_client/outbox/{name}.py" for name in ("engines", "inboxes", "outboxes", "tables")}


def test_no_import_of_an_extra_is_bare() -> None:
    """Each is behind `need_extra` in its function, or in the package that imports its module."""
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "libs").rglob("*.py"))
        if path.name != "pytest_plugin.py"  # which pytest alone imports
        and path.relative_to(ROOT).as_posix() not in BEHIND_THEIR_PACKAGE
        for name in bare_imports(tree_of(path), SDK if path.parts[len(ROOT.parts) + 1] in SDK_PACKAGES else "ternmq[")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "import cryptography",
        "def f():\n    from standardwebhooks import Webhook",
        "def f():\n    from lz4 import frame",
        "class A:\n    def f(self):\n        import httpx\n        need_extra('ternmq-client[forward-proxy]', 'x')",
    ],
)
def test_the_search_for_bare_imports_finds_them(source: str) -> None:
    """A check that cannot fail would be none."""
    assert bare_imports(ast.parse(source), SDK)
    fine = "def f():\n    need_extra('ternmq-client[forward-proxy]', 'x')\n    import httpx\n    import orjson"
    assert not bare_imports(ast.parse(fine), SDK)
    assert bare_imports(ast.parse("import pyspark"), "ternmq[") and not bare_imports(
        ast.parse("import httpx"), "ternmq["
    )


def test_the_documents_name_every_extra_that_somebody_may_need() -> None:
    """With what it is for."""
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {each for path in documents for each in re.findall(r"pip install '([^'.]+\])'", path.read_text("utf-8"))}
    assert named == EXTRAS.keys()
