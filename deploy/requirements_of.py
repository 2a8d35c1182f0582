"""`python deploy/requirements_of.py EXTRA`: what an extra of ternmq needs beside ternmq itself, one a line. The Dockerfile installs
these before it sees our sources, so that a change of ours does not make it download them again. Standard library only.
"""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_OWN = re.compile(r"ternmq\[([a-z,-]+)\]")


def requirements_of(extra: str, extras: Mapping[str, Sequence[str]]) -> list[str]:
    """The requirements of *extra*, those of our own extras in it included; each once, in the order of their first mention."""
    found: dict[str, None] = {}
    for each in extras[extra]:
        own = _OWN.fullmatch(each)
        found |= dict.fromkeys(
            [each] if own is None else [one for name in own[1].split(",") for one in requirements_of(name, extras)]
        )
    return list(found)


def main() -> None:
    """Print them; KeyError for an extra that is not there."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *requirements_of(sys.argv[1], project["optional-dependencies"])]
    print("\n".join(dict.fromkeys(wanted)))


if __name__ == "__main__":
    main()
