"""`python deploy/requirements_of.py [EXTRA]`: print the third-party requirements of ternmq.

One requirement on a line, those of EXTRA included. The Dockerfile installs them before it copies
our sources, so that a change of our code does not cause a new download. Standard library only.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (ROOT / "pyproject.toml", ROOT / "libs/pyproject.toml")
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?")
# Requirements by our distribution and extra; "" has those without an extra.
Projects = Mapping[str, Mapping[str, Sequence[str]]]


def read_projects() -> Projects:
    """Read the two pyproject.toml."""
    projects = [tomllib.loads(path.read_text("utf-8"))["project"] for path in FILES]
    return {each["name"]: {"": each["dependencies"], **each["optional-dependencies"]} for each in projects}


def requirements_of(name: str, extras: Sequence[str], projects: Projects) -> list[str]:
    """Return the requirements of *name* with *extras*, each once, in the order of first mention.

    Our own distributions are replaced by their requirements.
    """

    def needed(name: str, extras: Sequence[str]) -> Iterator[str]:
        for each in (one for extra in ("", *extras) for one in projects[name][extra]):
            found = _REQUIREMENT.match(each)
            if found is None or found[1] not in projects:
                yield each
            else:
                yield from needed(found[1], found[2].split(",") if found[2] else ())

    return list(dict.fromkeys(needed(name, extras)))


def main() -> None:
    """Print the requirements; KeyError for an unknown extra."""
    print("\n".join(requirements_of("ternmq", sys.argv[1:], read_projects())))


if __name__ == "__main__":
    main()
