"""Keys of a few records are indexed one by one, those of many with arrays: the files are the same."""

import random
from pathlib import Path

import pytest

from tern_store.index.key_index import KeyIndex
from tests.support.files.indexed_records import batches


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of the index."""
    return {path.name: path.read_bytes() for path in (directory / "index").iterdir()}


@pytest.mark.parametrize("tags", [False, True])
def test_a_few_keys_are_written_one_by_one_as_with_arrays(tags: bool, tmp_path: Path) -> None:
    """The same batches through `add_few` and `add`, over several files: marks and files are equal to the byte."""
    places = tmp_path / "one", tmp_path / "arrays"
    one_by_one, arrays = (KeyIndex.open(place, slots=7, entries_per_file=200, tags=tags) for place in places)
    for batch in batches(random.Random(7), 60, size_max=30):
        topic, begin = batch.topic.encode(), int(batch.positions[0] - batch.starts[0])
        one_by_one.add_few(batch.data, [(topic, batch.positions.tolist())], begin, batch.stored_ms)
        batch.add_to(arrays)
    for index in (one_by_one, arrays):
        index.flush().run()
        index.complete()
    assert one_by_one.marks() == arrays.marks()
    assert contents(places[0]) == contents(places[1])
    assert len(contents(places[0])) > 4
