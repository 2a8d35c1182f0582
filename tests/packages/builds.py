"""The wheels and source distributions of both distributions, built as a release would be."""

import zipfile
from pathlib import Path

from tests.packages.environment import Environment, run

ROOT = Path(__file__).resolve().parents[2]
# By distribution, the folder of its pyproject.toml and the begin of its files' names.
PROJECTS = {"ternmq-client": (ROOT / "libs", "ternmq_client-"), "ternmq": (ROOT, "ternmq-")}
_BUILD_TIMEOUT_S = 300


class BuildDiffers(Exception):
    """Two builds that must agree do not."""


def build_wheels(builder: Environment, into: Path) -> dict[str, Path]:
    """A wheel of each distribution from the tree, as `pip wheel` makes it; by distribution."""
    return _wheels(builder, [str(folder) for folder, _ in PROJECTS.values()], into)


def build_from_sources(builder: Environment, into: Path) -> dict[str, Path]:
    """A source distribution of each, and of each of those a wheel; by distribution."""
    builder.install("hatchling")
    for folder, _ in PROJECTS.values():
        run([builder.python, "-m", "hatchling", "build", "-t", "sdist", "-d", into], folder, within_s=_BUILD_TIMEOUT_S)
    return _wheels(builder, [str(path) for path in sorted(into.glob("*.tar.gz"))], into)


def _wheels(builder: Environment, sources: list[str], into: Path) -> dict[str, Path]:
    into.mkdir(exist_ok=True)
    command = [builder.python, "-m", "pip", "wheel", "-q", "--no-deps", "--retries", "10", "-w", str(into), *sources]
    run(command, into, within_s=_BUILD_TIMEOUT_S, PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
    return {name: next(into.glob(f"{begin}*.whl")) for name, (_, begin) in PROJECTS.items()}


def compare(one: dict[str, Path], other: dict[str, Path]) -> int:
    """How many files all wheels of *one* hold; BuildDiffers unless those of *other* hold the same bytes, and no file is in two wheels."""
    total = 0
    for name, path in one.items():
        files, others = contents(path), contents(other[name])
        if files != others:
            differing = sorted(each for each in files | others if files.get(each) != others.get(each))
            raise BuildDiffers(f"{name}: the wheel from its source distribution differs in {differing[:5]}")
        total += len(files)
    shared = set.intersection(*(set(contents(path)) for path in one.values()))
    if shared:
        raise BuildDiffers(f"in both wheels: {sorted(shared)[:5]}")
    return total


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of *wheel* by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(wheel: Path) -> str:
    """What *wheel* says of itself."""
    return next(text.decode() for name, text in contents(wheel).items() if name.endswith(".dist-info/METADATA"))
