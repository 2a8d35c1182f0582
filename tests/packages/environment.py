"""One fresh virtual environment in a folder that is no checkout, and what runs there: nothing of the repository is on any path."""

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

# Brought by the environment itself, not by what is installed into it.
_NOT_COUNTED = frozenset({"pip", "setuptools"})
# Prints the names of the installed distributions, and the size of all that they installed, bytecode included.
_INVENTORY = """
import json
from importlib.metadata import distributions
from pathlib import Path
found = {each.metadata["Name"]: each for each in distributions()}
sizes = {
    name: sum(path.stat().st_size for file in each.files or () if (path := Path(each.locate_file(file))).is_file())
    for name, each in found.items()
}
print(json.dumps(sizes))
"""


class CommandFailed(Exception):
    """A command ended otherwise than it must; the message shows the end of all that it said."""


def run(command: Sequence[str | Path], folder: Path, *, within_s: float, expected: int = 0, **environment: str) -> str:
    """What *command* writes to standard output, run in *folder*; CommandFailed unless it ends with *expected* *within_s*."""
    line = " ".join(map(str, command))
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=outside(**environment),
            capture_output=True,
            text=True,
            check=False,
            timeout=within_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{line}: runs for more than {within_s:.0f} s") from error
    if done.returncode != expected:
        said = (done.stdout + done.stderr)[-2000:]
        raise CommandFailed(f"{line}: exit code {done.returncode}, not {expected}\n{said}")
    return done.stdout


def outside(**more: str) -> dict[str, str]:
    """The variables of this process without those that could lead to the checkout or to a mesh that runs elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TERN", "VIRTUAL_ENV"))}
    return {**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


class Environment:
    """A virtual environment of its own. Owner: the run."""

    def __init__(self, folder: Path, python: str, constraints: Path) -> None:
        self.folder = folder
        self._constraints = constraints
        run([python, "-m", "venv", folder], folder.parent, within_s=120)

    @property
    def python(self) -> str:
        """Its interpreter."""
        return str(self.folder / "bin/python")

    def install(self, *requirements: str | Path) -> float:
        """Install *requirements*, of dependencies the pinned versions; how many seconds that took."""
        began_s = time.monotonic()
        command = [self.python, "-m", "pip", "install", "-q", "--retries", "10", *map(str, requirements)]
        run(command, self.folder.parent, within_s=1200, PIP_CONSTRAINT=str(self._constraints))
        return time.monotonic() - began_s

    def sizes(self) -> dict[str, int]:
        """Bytes by installed distribution."""
        told = json.loads(run([self.python, "-c", _INVENTORY], self.folder.parent, within_s=120))
        return {name: size for name, size in told.items() if name not in _NOT_COUNTED}

    def program(self, name: str) -> Path:
        """The command *name* that was installed."""
        return self.folder / "bin" / name
