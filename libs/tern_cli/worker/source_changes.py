"""Whether a program's files have changed, by their modification times.

Bounded: FILES_MAX files are looked at. Hidden folders, virtual environments and caches are not.
"""

import os
from collections.abc import Iterator
from pathlib import Path

FILES_MAX = 5_000
PERIOD_S = 0.5
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


class SourceChanges:
    """The `.py` files below one folder. Owner: the command with --reload."""

    __slots__ = ("_known", "_root")

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = self._look()

    def changed(self) -> list[str]:
        """Return the files that are new, changed or gone since the last look."""
        before, now = self._known, self._look()
        self._known = now
        return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

    def _look(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in _python_files(self._root):
            try:
                found[str(path.relative_to(self._root))] = path.stat().st_mtime_ns
            except OSError:  # removed since it was listed
                continue
            if len(found) >= FILES_MAX:
                break
        return found


def _python_files(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED and not Path(folder, name, "pyvenv.cfg").exists()
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))
