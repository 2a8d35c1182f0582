"""Pages of lists: every row once and in order, whatever is created and deleted in between."""

import random

import pytest

from tern_proxy.core.listing import Place, read_page, take_page, write_cursor
from tern_wire.errors import InvalidField

SORTS: dict[str, type] = {"name": str, "queues": int}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sort", ["name", "-name", "queues", "-queues"])
def test_pages_together_are_the_sorted_list(seed: int, sort: str) -> None:
    """Any size of page; names that are equal but for their case, many equal numbers."""
    rng = random.Random(seed)
    names = [f"{rng.choice('aAbB')}{number}" for number in range(rng.randrange(40))]
    places: list[Place] = [(name if "name" in sort else rng.randrange(3), name) for name in names]
    seen: list[str] = []
    cursor = ""
    while True:
        page = read_page({"sort": sort, "limit": str(rng.randrange(1, 8)), "cursor": cursor}, SORTS)
        found, cursor = take_page(rng.sample(places, len(places)), page)
        assert len(found) <= page.limit
        seen += found
        if not cursor:
            break
    assert seen == [name for _, name in sorted(places, reverse=sort.startswith("-"))]


def test_what_is_created_and_deleted_between_two_pages_shifts_nothing() -> None:
    """The cursor names the last row, which may be gone."""
    first, cursor = take_page([(name, name) for name in "bdfh"], read_page({"limit": "2"}, SORTS))
    assert first == ["b", "d"]
    changed = [(name, name) for name in "acfgh"]
    second, _ = take_page(changed, read_page({"limit": "2", "cursor": cursor}, SORTS))
    assert second == ["f", "g"]


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "1001"},
        {"limit": "x"},
        {"sort": "size"},
        {"sort": "--name"},
        {"q": "x" * 129},
        {"cursor": "!"},
        {"cursor": "\u00e9"},
        {"cursor": "AAAA"},
        {"cursor": write_cursor((3, "a"))},
        {"cursor": write_cursor((True, "a")), "sort": "queues"},
    ],
)
def test_what_is_no_page_is_refused(query: dict[str, str]) -> None:
    """A cursor of another order, too."""
    with pytest.raises(InvalidField):
        read_page(query, SORTS)
