"""The manners of the code itself: who may import whom, what is pure, what no file may hold, what every file must say.

Read from the syntax trees, so nothing of ours runs here but the table of errors.
"""

import ast
import asyncio
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tern_wire.errors import TernError

ROOT = Path(__file__).resolve().parents[1]
# And any other .dot folder but .ci.
SKIPPED = {"__pycache__", "build", "dist", "spark-warehouse", ".git", ".hypothesis"}

WAITING = {"asyncio", "anyio", "threading", "concurrent", "multiprocessing", "selectors", "subprocess", "uvloop"}
SERVING = {"fastapi", "starlette", "uvicorn"}
NETWORK = SERVING | {"httpx", "socket", "ssl", "http", "urllib", "pysyncobj"}
CHANCE = {"time", "datetime", "random", "uuid", "secrets"}
FILES = {"os", "pathlib", "io", "shutil", "tempfile", "mmap", "fcntl", "logging"}
PURE = WAITING | NETWORK | CHANCE | FILES
SERVICES = {"tern_namesrv", "tern_broker", "tern_proxy", "tern_txn_checker"}
BELOW_SERVICES = {"tern_wire", "tern_tasks", "tern_service", "tern_security", "tern_remoting"}
# Not services: one measures parts of them, one puts them together in a process. Nothing imports either.
ABOVE_SERVICES = {"loadtest", "tern_testing"}
SEVERAL = {"tern_wire", "tern_client", "tern_store", "tern_raft", "tern_service", "tern_broker", "tern_proxy"}

# package: (ours that it may import, roots that it must not import)
RULES: dict[str, tuple[set[str], set[str]]] = {
    "tern_wire": (set(), PURE),
    "tern_store": ({"tern_wire"}, WAITING | NETWORK | CHANCE),
    "tern_security": ({"tern_wire"}, SERVING | {"asyncio", "uvloop", "httpx", "pysyncobj"}),
    "tern_tasks": (set(), SERVING | {"uvloop", "httpx", "pysyncobj"}),
    "tern_accept": ({"tern_wire"}, SERVING | {"uvloop", "httpx", "pysyncobj"}),
    "tern_http": ({"tern_wire"}, SERVING | {"uvloop", "httpx", "pysyncobj"}),
    "tern_remoting": ({"tern_wire", "tern_tasks", "tern_accept", "tern_security"}, SERVING | {"httpx", "pysyncobj"}),
    "tern_routing": ({"tern_wire", "tern_http", "tern_tasks", "tern_remoting"}, SERVING | {"httpx", "pysyncobj"}),
    "tern_client": ({"tern_wire", "tern_http"}, SERVING | {"pysyncobj"}),
    "tern_service": ({"tern_wire", "tern_tasks", "tern_accept", "tern_security"}, {"pysyncobj"}),
    "tern_raft": ({"tern_wire", "tern_store", "tern_remoting"}, SERVING | {"httpx"}),
    "tern_cli": (
        {"tern_wire", "tern_http", "tern_client", "tern_service", "tern_store", "tern_security"},
        {"pysyncobj"},
    ),
    "tern_testing": (SEVERAL | {"tern_remoting", "tern_routing"}, {"httpx", "pysyncobj"}),
    "tern_namesrv": ({"tern_wire", "tern_tasks", "tern_service", "tern_security"}, {"pysyncobj"}),
    "tern_broker": (BELOW_SERVICES | {"tern_http", "tern_store", "tern_raft"}, {"httpx", "pysyncobj"}),
    "tern_proxy": (BELOW_SERVICES | {"tern_routing"}, {"httpx", "pysyncobj"}),
    "tern_txn_checker": (BELOW_SERVICES | {"tern_http", "tern_routing"}, SERVING | {"httpx", "pysyncobj"}),
    "tern_spark": ({"tern_wire", "tern_client"}, SERVING | {"asyncio", "pysyncobj"}),
    "tern_jobs": ({"tern_wire", "tern_client", "tern_spark"}, SERVING | {"asyncio", "pysyncobj"}),
    "jobs": ({"tern_wire", "tern_client", "tern_spark", "tern_jobs"}, SERVING | {"pysyncobj"}),
    "loadtest": (SEVERAL | {"tern_spark", "tern_jobs"}, SERVING | {"pysyncobj"}),
}
NOT_PACKAGES = {"jobs": "spark/jobs", "loadtest": "loadtest"}  # scripts: nothing imports them

UNSAFE_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"}
VAGUE = {"util", "utils", "helper", "helpers", "common", "manager", "base", "misc"}
SIZE_MAX_LINES, SIZE_WITH_REASON_MAX_LINES, REASON = 400, 600, "one thing"
# Spelled in pieces, so that this file does not hold what it forbids.
FORBIDDEN_TEXT = {
    "an unfinished thought": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b"),
    "the address of a registry": re.compile(
        r"py" + r"pi\.org|python" + r"hosted|registry\.npm|repo1\.maven|docker\.io|--index-" + r"url"
    ),
    "a path of one machine": re.compile(r"(?<![\w.}])/(work|root|home|Users)/\w"),
}


@cache
def everything() -> tuple[Path, ...]:
    """All files of the repository but what tools leave behind."""

    def walk(folder: Path) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if path.name in SKIPPED or path.name.endswith(".egg-info"):
                continue
            if not path.is_dir():
                yield path
            elif not path.name.startswith(".") or path.name == ".ci":
                yield from walk(path)

    return tuple(walk(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of *path*."""
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of that tree; walking it takes longer than parsing."""
    return tuple(ast.walk(tree(path)))


@pytest.fixture(autouse=True, scope="module")
def forgotten() -> Iterator[None]:
    """The trees of all files, a gigabyte, are no burden of later tests: each collection of garbage would walk through them."""
    yield
    for kept in (tree, nodes, imports):
        kept.cache_clear()


def sources(top: str = "") -> list[Path]:
    """All Python files below *top*."""
    return [path for path in everything() if path.suffix == ".py" and path.is_relative_to(ROOT / top)]


def name_of(path: Path) -> str:
    """*path* as a reader of a failure wants it."""
    return str(path.relative_to(ROOT))


def packages() -> dict[str, Path]:
    """Every package of ours, and the two folders of scripts, by name."""
    inits = [path for path in sources() if path.name == "__init__.py" and path.parent.name.startswith("tern_")]
    return {path.parent.name: path.parent for path in inits} | {name: ROOT / at for name, at in NOT_PACKAGES.items()}


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules that *path* imports, anywhere in it, dotted."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name_of(path)}:{node.lineno}: imports are absolute"
            found.add(node.module or "")
    return frozenset(found)


def called(node: ast.AST) -> str:
    """`eval`, `os.system`: what a call names; empty for anything else."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions and classes of a body, and the public methods of such classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from definitions(node.body)


def names_everything(kind: ast.expr | None) -> bool:
    """Whether an `except` of this kind catches our own bugs too."""
    return kind is None or bool(set(re.findall(r"\w+", ast.unparse(kind))) & {"Exception", "BaseException"})


def of_each(paths: Iterable[Path]) -> Callable[[Callable[[Path], None]], Callable[[], None]]:
    """One test of every path, which names all that fail: as thousands of tests they would cost more than what they look at."""

    def decorate(check: Callable[[Path], None]) -> Callable[[], None]:
        def test() -> None:
            found = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    found.append(str(error).splitlines()[0])
            assert not found, "\n".join(found)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def test_every_package_has_a_rule() -> None:
    """A new package must say in RULES what it may import before it can be green."""
    assert packages().keys() == RULES.keys()


def test_no_rule_lets_one_service_import_another() -> None:
    """Services meet on the wire only, whatever someone writes into the table."""
    for package, (allowed, _) in RULES.items():
        assert not allowed & ABOVE_SERVICES, f"{package} may import {sorted(allowed & ABOVE_SERVICES)}"
        if package not in ABOVE_SERVICES:
            assert not allowed & SERVICES, f"{package} may import {sorted(allowed & SERVICES)}"


@pytest.mark.parametrize("package", RULES)
def test_imports_point_down(package: str) -> None:
    """Each file of the package imports of ours what RULES allows, and no module that RULES forbids."""
    allowed, banned = RULES[package]
    for path in sorted(packages()[package].rglob("*.py")):
        roots = {module.split(".")[0] for module in imports(path)}
        ours = roots & (RULES.keys() - {package})
        assert ours <= allowed, f"{name_of(path)}: may not import {sorted(ours - allowed)}"
        assert not roots & banned, f"{name_of(path)}: may not import {sorted(roots & banned)}"


@of_each([path for path in sources() if "core" in path.parent.parts and not path.is_relative_to(ROOT / "tests")])
def test_a_core_is_pure(path: Path) -> None:
    """A core imports tern_wire and itself: nothing that waits, reads a clock, draws a number or touches a file."""
    service = path.relative_to(ROOT).parts[2]
    for module in imports(path):
        root = module.split(".")[0]
        assert root not in PURE or module == "urllib.parse", f"{name_of(path)}: may not import {module}"
        if root in RULES:
            assert root == "tern_wire" or f"{module}.".startswith(f"{service}.core."), f"{name_of(path)}: {module}"
    for node in nodes(path):
        assert called(node) not in {"open", "input", "print"}, f"{name_of(path)}:{node.lineno}: a core does no IO"  # type: ignore[attr-defined]
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), f"{name_of(path)}: a core does not wait"


def test_only_tern_raft_knows_pysyncobj() -> None:
    """The consensus library is replaceable because one package, and the tests that convict it, import it."""
    for path in sources():
        if not path.is_relative_to(ROOT / "libs/tern_raft") and not path.is_relative_to(ROOT / "tests"):
            assert "pysyncobj" not in {module.split(".")[0] for module in imports(path)}, name_of(path)


@of_each(sources())
def test_nothing_executes_data(path: Path) -> None:
    """No pickle, no eval, no shell: what a port or a file holds is data. Tests may pickle, as Spark does and attackers do."""
    if not path.is_relative_to(ROOT / "tests"):
        assert not {module.split(".")[0] for module in imports(path)} & UNSAFE_MODULES, name_of(path)
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = called(node)
            where = f"{name_of(path)}:{node.lineno}: {name}"
            assert name not in {
                "eval",
                "exec",
                "compile",
                "__import__",
                "yaml.load",
                "os.system",
                "os.popen",
            }, where
            assert not any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords), where


@of_each(sources())
def test_every_file_says_what_it_owns_and_stays_readable(path: Path) -> None:
    """A docstring first; 400 lines, or up to 600 where the docstring says why the file is one thing."""
    docstring = ast.get_docstring(tree(path)) or ""
    size_lines = len(path.read_text("utf-8").splitlines())
    assert docstring, f"{name_of(path)}: begins with a docstring that says what it owns"
    limit = SIZE_WITH_REASON_MAX_LINES if REASON in docstring else SIZE_MAX_LINES
    assert size_lines <= limit, f"{name_of(path)}: {size_lines} lines; look for the seam"


@of_each(sources())
def test_names_mean_something(path: Path) -> None:
    """No file and no class is called after a drawer that holds anything."""
    parts = {part for piece in path.relative_to(ROOT).with_suffix("").parts for part in piece.split("_")}
    assert not parts & VAGUE, f"{name_of(path)}: {sorted(parts & VAGUE)}"
    for node in nodes(path):
        if isinstance(node, ast.ClassDef):
            words = {word.lower() for word in re.findall(r"[A-Z][a-z]+", node.name)}
            assert not words & VAGUE, f"{name_of(path)}:{node.lineno}: class {node.name}"


@of_each([path for path in everything() if path.name != "LICENSE"])
def test_no_file_holds_what_does_not_belong_in_a_repository(path: Path) -> None:
    """Unfinished thoughts, addresses of registries, paths of one machine, placeholders."""
    if path.stat().st_size == 0:
        assert path.name == "py.typed", f"{name_of(path)}: an empty placeholder"
    if path.suffix in {".png", ".parquet", ".bin", ".gz"}:
        return
    text = path.read_bytes().decode("utf-8", "replace")
    for what, pattern in FORBIDDEN_TEXT.items():
        hit = pattern.search(text)
        assert hit is None, f"{name_of(path)}: holds {what}: {hit.group() if hit else ''}"


def test_no_folder_is_an_empty_promise() -> None:
    """A folder appears with its first content."""
    for folder in ROOT.rglob("*"):
        if folder.is_dir() and not any(
            part in SKIPPED or part.startswith(".") for part in folder.relative_to(ROOT).parts
        ):
            assert any(folder.iterdir()), f"{name_of(folder)}: an empty folder"


@of_each(sources("libs"))
def test_public_names_of_the_libraries_are_explained(path: Path) -> None:
    """Every public function, class and method has a docstring, but for what is described elsewhere: errors by their title and
    fix, callbacks of asyncio, overrides that call what they override, lines of a Protocol."""
    classes = [node for node in tree(path).body if isinstance(node, ast.ClassDef)]
    protocols = [node for node in classes if "Protocol" in {ast.unparse(base) for base in node.bases}]
    described = {method.name for protocol in protocols for method in definitions(protocol.body)} | set(
        dir(asyncio.Protocol)
    )
    for node in definitions(tree(path).body):
        is_error_table = path.name == "errors.py" or path.parent.name == "error_classes"
        if isinstance(node, ast.ClassDef) and is_error_table:
            continue
        is_override = node.name in described or f"super().{node.name}(" in ast.unparse(node)
        assert ast.get_docstring(node) or is_override, f"{name_of(path)}:{node.lineno}: {node.name}"


@of_each(sources())
def test_no_error_is_swallowed_into_a_log(path: Path) -> None:
    """`except Exception` that only logs or passes hides our own bugs: handle it, or say why in a comment there."""
    for node in nodes(path):
        if isinstance(node, ast.ExceptHandler) and names_everything(node.type):
            idle = [
                isinstance(step, ast.Pass | ast.Continue)
                or (
                    isinstance(step, ast.Expr)
                    and called(step.value).startswith(("log.", "logger.", "logging.", "print"))
                )
                for step in node.body
            ]
            lines = path.read_text("utf-8").splitlines()[node.lineno : node.end_lineno]
            has_reason = any(line.lstrip().startswith("#") for line in lines)
            assert not all(idle) or has_reason, f"{name_of(path)}:{node.lineno}: an error ends here unseen"


@cache
def sized_classes() -> frozenset[str]:
    """Our classes whose objects can be empty, and then count as false."""
    found = (step for path in sources() for step in nodes(path) if isinstance(step, ast.ClassDef))
    return frozenset(
        step.name
        for step in found
        if any(isinstance(part, ast.FunctionDef) and part.name in {"__len__", "__bool__"} for part in step.body)
    )


@of_each(sources())
def test_what_is_empty_is_not_taken_for_what_is_missing(path: Path) -> None:
    """`given or ConnectionTable()` makes another one of an empty table: ask whether it is None."""
    for node in nodes(path):
        made = node.values[-1] if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) else None
        if isinstance(made, ast.Call):
            assert called(made) not in sized_classes(), f"{name_of(path)}:{made.lineno}: `or` forgets an empty one"


@of_each(sources("tests"))
def test_every_test_says_its_goal_and_none_sleeps(path: Path) -> None:
    """A docstring for each test; waiting is a poll (a `while` under a deadline), never a guess how long things take."""
    polls = {id(step) for loop in nodes(path) if isinstance(loop, ast.While) for step in ast.walk(loop)}
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            assert ast.get_docstring(node), f"{name_of(path)}:{node.lineno}: {node.name} says nothing"
        if isinstance(node, ast.Call) and id(node) not in polls and [ast.unparse(wait) for wait in node.args] != ["0"]:
            assert called(node) not in {"time.sleep", "asyncio.sleep", "anyio.sleep"}, (
                f"{name_of(path)}:{node.lineno}: sleeps"
            )


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_every_service_has_the_same_files(service: str) -> None:
    """Who knows one service finds their way in the next."""
    folder = packages()[service]
    expected = ("__main__.py", "config.py", "app.py", "routes/__init__.py", "core/__init__.py")
    assert not [part for part in expected if not (folder / part).is_file()], f"{name_of(folder)} lacks these"


def test_dependencies_are_pinned_and_argued() -> None:
    """Each dependency of a pyproject.toml has one line in constraints.txt and one, saying why, in CONTRIBUTING.md."""
    files = (ROOT / "pyproject.toml", ROOT / "libs/pyproject.toml")
    projects = [tomllib.loads(path.read_text("utf-8"))["project"] for path in files]
    wanted = [
        name
        for each in projects
        for group in ([each["dependencies"]], each["optional-dependencies"].values())
        for names in group
        for name in names
    ]
    names = {match.group() for name in wanted if (match := re.match(r"[\w-]+", name))} - {"ternmq", "ternmq-client"}
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert not [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin)], (
        "a pin is `name==version`"
    )
    pinned = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    assert len(pinned) == len(pins), "a package is pinned twice"
    assert names <= pinned, f"not pinned: {sorted(names - pinned)}"
    argued = set(re.findall(r"^- `([\w-]+)`: \S", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE))
    assert argued == names, f"argued and not used, or used and not argued: {sorted(argued ^ names)}"


def test_every_error_is_complete_and_unique() -> None:
    """Code, status, title and fix in each class itself; retryable exactly when a repeat can help: of limits only some go by themselves."""
    errors = TernError.__subclasses__()
    assert len({error.code for error in errors}) == len(errors), "two errors share a code"
    for error in errors:
        assert {"code", "status", "title", "fix"} <= vars(error).keys(), error.__name__
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code), error.code
        if error.status != 429:
            assert error.retryable is (error.status in {408, 503, 504}), f"{error.code}: {error.status}"
