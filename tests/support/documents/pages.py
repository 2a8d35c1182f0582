"""Markdown pages of the repository as tests see them: their blocks, links, headings and prose.

A fence says after its language what the tests do with the block:

    ```sh {run}              run in one shell with all such blocks of the page, in order
    ```sh {run, fails}       the same, and its last command must fail
    ```python {run}          run as a file, which must end by itself with 0
    ```python {run, Ctrl-C}  run as a file until it has printed as many lines as its answer has, then Ctrl-C
    ```json {answer}         the last line that the block before printed, in JSON (`answers.py` compares)
    ```text {answer}         all that the block before printed
    ```sh {not run: docker}  not run by tests/procs; the reason is a key of NOT_RUN
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Pages whose blocks tests/procs/test_documents.py runs.
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
# Further documents, which are checked for links and width only.
OTHERS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "loadtest/README.md")
# Reasons for which tests/procs does not run a block.
NOT_RUN = {
    "install": "it downloads packages",
    "make": "it starts the mesh, the tests or a measurement of this very checkout",
    "docker": "it needs Docker; tests/compose runs the deployment",
    "spark": "it needs Java and PySpark; tests/spark runs it",
    "secure": "it needs a mesh with TLS and keys; tests/secure runs such meshes",
    "mesh": "it starts, stops or replaces processes of the mesh that all pages share",
    "pytest": "it is a test; tests/unit/testing runs it",
    "excerpt": "it quotes a source file",
}
_FENCE = re.compile(r"^```(\w+)(?: \{([^}]+)\})?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; *marks*: what its braces hold, cut at commas; *line*: where its text begins, from 1."""

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        """The page and line for the messages of tests."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def reason(self) -> str:
        """The key of NOT_RUN, "" for a block without one."""
        return next((mark.removeprefix("not run: ") for mark in self.marks if mark.startswith("not run: ")), "")


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of *page* that name a language."""
    text = page.read_text("utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found[1], tuple((found[2] or "").split(", ")), found[3])
        for found in _FENCE.finditer(text)
    ]


def without_blocks(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of *page* outside fences, with their numbers from 1."""
    is_inside = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        is_fence = line.startswith("```")
        if not is_fence and not is_inside:
            yield number, line
        is_inside ^= is_fence


def links(page: Path) -> list[str]:
    """The targets of all links of *page* that lead to a file of the repository or to a heading."""
    text = "\n".join(line for _, line in without_blocks(page))
    text = re.sub(r"`[^`]*`", "`code`", text)
    return [target for target in _LINK.findall(text) if not re.match(r"\w+:", target)]


def anchors(page: Path) -> set[str]:
    """The anchors of the headings of *page*, as GitHub makes them."""
    found: set[str] = set()
    for _, line in without_blocks(page):
        if re.match(r"#{1,6} ", line):
            plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", line.lstrip("#").strip())
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            number = 0
            while (anchor := slug if not number else f"{slug}-{number}") in found:
                number += 1
            found.add(anchor)
    return found
