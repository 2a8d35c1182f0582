"""What README.md, docs/ and the other documents promise about themselves: links lead somewhere, every page is in the
index, every block runs or says why not, prose has 100 columns, tables that are made from the code are the code's."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.documents.pages import NOT_RUN, OTHERS, PAGES, ROOT, anchors, blocks, links, without_blocks
from tests.support.documents.tables import TABLES, written
from tests.test_tidy import everything

INDEX, NOTES = ROOT / "docs" / "README.md", ROOT / "docs" / "design-notes.md"
DOCUMENTS = [*PAGES, *(ROOT / name for name in OTHERS)]
NAMES = [str(page.relative_to(ROOT)) for page in DOCUMENTS]
WIDTH_MAX, TABLE_OR_LINK = 100, re.compile(r"^\s*\||^<!--|^\S*\[[^\]]*\]\([^)]*\)\S*$")
# How many blocks of each page do not run here, by the key of NOT_RUN. A new one is added here, or runs.
NOT_RUN_BLOCKS = {
    "README.md": {"make": 1},
    "deploy/README.md": {"docker": 9},
    "docs/adding-a-feature.md": {"excerpt": 5},
    "docs/operations.md": {"docker": 2, "mesh": 4},
    "docs/security.md": {"secure": 3},
    "docs/spark.md": {"spark": 8},
    "docs/testing.md": {"install": 1, "pytest": 1},
}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_of_a_document_leads_to_a_file_and_a_heading_that_are_there(name: str) -> None:
    """Relative links, with or without an anchor."""
    page = ROOT / name
    broken = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        is_there = place.exists() and place.is_relative_to(ROOT)
        if not is_there or (anchor and place.suffix == ".md" and anchor not in anchors(place)):
            broken.append(target)
    assert not broken, broken


def test_every_page_is_in_the_index() -> None:
    """docs/README.md links every page of docs/; its design notes link every DESIGN.md of the repository."""
    shown = {(INDEX.parent / target.partition("#")[0]).resolve() for target in links(INDEX)}
    assert not {page for page in (ROOT / "docs").glob("*.md") if page != INDEX} - shown
    noted = {(NOTES.parent / target.partition("#")[0]).resolve() for target in links(NOTES)}
    assert not {path for path in everything() if path.name == "DESIGN.md"} - noted


@pytest.mark.parametrize("name", [name for name in NAMES if name != "SECURITY.md"])
def test_every_block_of_a_page_runs_or_says_why_not(name: str) -> None:
    """Commands and programs are marked, and those that do not run here are counted."""
    found: Counter[str] = Counter()
    for block in blocks(ROOT / name):
        if block.language in {"sh", "python"} and "run" not in block.marks:
            assert block.reason in NOT_RUN, f"{block.place}: neither `run` nor a reason of NOT_RUN"
            found[block.reason] += 1
        if "answer" in block.marks:
            assert block.text.strip() not in {"", "?"}, f"{block.place}: an answer that shows nothing"
    assert found == NOT_RUN_BLOCKS.get(name, {})


def test_excerpts_are_what_stands_in_the_sources() -> None:
    """The first line of an excerpt names the file, the others stand there as they are."""
    quoted = [block for page in PAGES for block in blocks(page) if block.reason == "excerpt"]
    for block in quoted:
        file, _, text = block.text.removeprefix("# ").partition("\n")
        assert text in (ROOT / file).read_text("utf-8"), block.place


@pytest.mark.parametrize("name", [name for name in NAMES if name != "SECURITY.md"])
def test_prose_has_at_most_100_columns(name: str) -> None:
    """Tables, drawings and blocks are as wide as they must be."""
    wide = [
        number
        for number, line in without_blocks(ROOT / name)
        if len(line) > WIDTH_MAX and not TABLE_OR_LINK.search(line) and not line.startswith("    ")
    ]
    assert not wide, f"lines {wide}"


def test_the_readme_fits_on_two_screens() -> None:
    """Details are in docs/."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 130


@pytest.mark.parametrize("page", sorted({page for page, _ in TABLES}, key=str))
def test_tables_that_are_made_from_the_code_are_the_codes(page: Path) -> None:
    """`python -m tests.support.documents.tables` writes them anew."""
    assert page.read_text("utf-8") == written(page)
