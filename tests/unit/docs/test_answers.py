"""The comparison of shown and real answers, and the reading of pages: what they let pass, and what they find."""

from pathlib import Path

import pytest

from tests.support.documents.answers import mismatch
from tests.support.documents.pages import PAGES, anchors, blocks, links
from tests.support.documents.runs import PageRun, Ran, runnable

PAGE = """# A page

See [there](other.md#a-heading) and `[no](link.md)` in code.

## The second: a *heading*

```sh {run}
echo '{"a": 1}'
```

```json {answer}
{"a": 1}
```

```sh {not run: docker}
docker ps
```
"""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ('{"queue": "broker-a:1", "born_at": 1}', '{"queue":"broker-a:7","born_at":1795630376732}'),
        ('{"message_id": "E2FD659878D23F4765EF000000000001"}', '{"message_id": "F3FD659878D23F4765EF0000000000A1"}'),
        ('{"handle": "AQAB..."}', 'first line\n\n{"handle": "AQABAAAAAgAA"}\n'),
        ('{"rows": [{"offset": 1}, true, null]}', '{"rows": [{"offset": 2}, true, null]}'),
    ],
)
def test_values_that_differ_from_run_to_run_pass(shown: str, printed: str) -> None:
    """Times, offsets, ids, numbers within names, and what stands behind three points."""
    assert mismatch("json", shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ('{"a": 1}', '{"a": 1, "b": 2}'),
        ('{"a": 1}', '{"a": 2}'),
        ('{"a": 1}', '{"a": true}'),
        ('{"created": true}', '{"created": false}'),
        ('{"a": "paid"}', '{"a": "open"}'),
        ('{"born_at": 1}', '{"born_at": "soon"}'),
        ('{"rows": []}', '{"rows": [1]}'),
        ('{"handle": "AQAB..."}', '{"handle": "BQAB"}'),
        ('{"a": 1}', "curl: (7) Failed to connect"),
        ('{"a": 1}', ""),
    ],
)
def test_an_answer_that_a_page_does_not_show_is_found(shown: str, printed: str) -> None:
    """Another member, value, type or length; no JSON; nothing."""
    assert mismatch("json", shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed", "is_same"),
    [
        ("3 messages\n", " 4 messages  \n\n", True),
        ("...\nlast 1", "a\nb\nlast 2", True),
        ("first\n...", "first", True),
        ("a\n...\nb\n...\nb", "a\nx\nb\nb", True),
        ("a\nb", "a", False),
        ("a", "a\nb", False),
        ("...\nlast", "last\nmore", False),
        ("3 messages", "no messages", False),
        ("...\n" * 20 + "z", "y\n" * 2_000, False),
    ],
)
def test_text_is_compared_line_by_line(shown: str, printed: str, is_same: bool) -> None:
    """Numbers and blanks may differ; three points are any number of lines; and it is quick."""
    assert (mismatch("text", shown, printed) == "") is is_same


def test_blocks_links_and_anchors_of_a_page_are_found(tmp_path: Path) -> None:
    """A block has its marks and its line; links within code are none; anchors are those of GitHub."""
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [(block.language, block.marks, block.reason) for block in blocks(page)] == [
        ("sh", ("run",), ""),
        ("json", ("answer",), ""),
        ("sh", ("not run: docker",), "docker"),
    ]
    assert [block.line for block in blocks(page)] == [8, 12, 16]
    assert links(page) == ["other.md#a-heading"]
    assert anchors(page) == {"a-page", "the-second-a-heading"}
    (found,) = runnable(page)
    assert found[1] is not None and found[1].text == '{"a": 1}\n'


def test_a_block_that_fails_or_is_not_reached_is_a_failure_of_its_page() -> None:
    """The last block that was reached is to blame for the exit code."""
    (block, answer), *_ = runnable(PAGES[0])[:1]
    second = Ran(block, None, None)
    assert PageRun((Ran(block, None, "x"),), 0, "").failures() == []
    assert len(PageRun((Ran(block, None, "x"),), 1, "no").failures()) == 1
    assert len(PageRun((Ran(block, None, "x"), second), 1, "no").failures()) == 1
    assert len(PageRun((second,), 0, "").failures()) == 1
    assert answer is None
