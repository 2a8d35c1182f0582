"""Work without an end is kept running by one helper. Read from the syntax trees, as tests/test_tidy.py does."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.test_tidy import called, nodes, sources

MAKERS = {"create_task", "ensure_future"}
# The SDK is its caller's, and the command line a person's; the helper itself may.
ELSEWHERE = {"tern_client", "tern_cli", "tern_tasks"}


def package_of(path: Path) -> str:
    """The name of the package that *path* is in."""
    return next((part for part in reversed(path.parts[:-1]) if part.startswith("tern_")), "")


def is_endless(function: ast.AsyncFunctionDef) -> bool:
    """Whether it has a loop that an exception alone leaves."""
    return any(
        isinstance(loop, ast.While)
        and isinstance(loop.test, ast.Constant)
        and not any(isinstance(step, ast.Return | ast.Break) for step in ast.walk(loop))
        for loop in ast.walk(function)
    )


@cache
def coroutines(path: Path) -> dict[str, bool]:
    """Those that *path* defines, by name, and whether they are endless."""
    return {node.name: is_endless(node) for node in nodes(path) if isinstance(node, ast.AsyncFunctionDef)}


def bare_tasks(path: Path, package: tuple[Path, ...]) -> list[str]:
    """Tasks of endless work that *path* makes by itself; what it does not define may be anywhere in its *package*."""
    found = []
    for node in nodes(path):
        if isinstance(node, ast.Call) and called(node).rpartition(".")[2] in MAKERS:
            for name in re.findall(r"(\w+)\(", ast.unparse(node)):
                homes = [path] if name in coroutines(path) else package
                if any(coroutines(home).get(name) for home in homes):
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_no_work_without_an_end_is_a_bare_task() -> None:
    """Nobody hears of a task that died: such work is given to `keep_running`, which begins it anew and tells /readyz."""
    files = [path for top in ("libs", "services") for path in sources(top) if package_of(path) not in ELSEWHERE]
    bare = [
        task
        for path in files
        for task in bare_tasks(path, tuple(one for one in files if package_of(one) == package_of(path)))
    ]
    assert not bare, "\n".join(bare)


def test_the_rule_finds_what_it_is_for(tmp_path: Path) -> None:
    """A loop without an end in a bare task; and neither one that returns, nor one that is kept."""
    path = tmp_path / "tern_example" / "example.py"
    path.parent.mkdir()
    path.write_text(
        "async def watch():\n    while True:\n        await look()\n"
        "async def search():\n    while True:\n        if await look():\n            return\n"
        "first = asyncio.create_task(watch())\n"
        "second = asyncio.create_task(search())\n"
        "third = keep_running('watch', watch)\n"
    )
    assert coroutines(path) == {"watch": True, "search": False}
    assert bare_tasks(path, (path,)) == ["example.py:8: asyncio.create_task(watch())"]
