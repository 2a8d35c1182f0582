"""What Python files import, read from their text."""

import ast
from functools import cache
from pathlib import Path


def imported(node: ast.AST) -> list[str]:
    """What an import statement names: modules, and names that may be modules."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of *path*, parsed once in a process."""
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path: Path) -> frozenset[str]:
    """All that *path* imports, in functions too."""
    return frozenset(name for node in ast.walk(tree_of(path)) for name in imported(node))
