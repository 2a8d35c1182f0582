"""`python deploy/requirements_of.py [EXTRA]`: what ternmq, with EXTRA, needs beside our own packages, one a line. The Dockerfile installs
these before it sees our sources, so that a change of ours does not make it download them again. Standard library only.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (ROOT / "pyproject.toml", ROOT / "libs/pyproject.toml")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?")
# By distribution of ours and extra, what it needs; by "" what it always needs.
Projects = Mapping[str, Mapping[str, Sequence[str]]]


def read_projects() -> Projects:
    """What the two pyproject.toml say."""
    projects = [tomllib.loads(path.read_text("utf-8"))["project"] for path in FILES]
    return {each["name"]: {"": each["dependencies"], **each["optional-dependencies"]} for each in projects}


def requirements_of(name: str, extras: Sequence[str], projects: Projects) -> list[str]:
    """What *name* with *extras* needs, requirements of ours replaced by what they need; each once, in the order of their first mention."""

    def needed(name: str, extras: Sequence[str]) -> Iterator[str]:
        for each in (one for extra in ("", *extras) for one in projects[name][extra]):
            found = _REQUIREMENT.match(each)
            if found is None or found[1] not in projects:
                yield each
            else:
                yield from needed(found[1], found[2].split(",") if found[2] else ())

    return list(dict.fromkeys(needed(name, extras)))


def main() -> None:
    """Print them; KeyError for an extra that is not there."""
    print("\n".join(requirements_of("ternmq", sys.argv[1:], read_projects())))


if __name__ == "__main__":
    main()
