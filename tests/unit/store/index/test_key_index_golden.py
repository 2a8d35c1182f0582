"""The key index of a real broker's records: RocketMQ's own bytes and answers."""

from pathlib import Path

import numpy as np
import pytest

from tern_store.index.key_index import KeyIndex
from tests.support.files.rocketmq_golden import PARTS, GoldenPart, golden_part


def indexed_part(part: GoldenPart, directory: Path, *, tags: bool) -> KeyIndex:
    """An index of the records of *part*, one at a time, as large as the broker's own."""
    described = part.described
    slots, entries_per_file = described["maxHashSlotNum"], described["maxIndexNum"]
    index = KeyIndex.open(directory, slots=slots, entries_per_file=entries_per_file, tags=tags)
    for raw, record in zip(part.raw, part.records, strict=True):
        positions = np.array([record.position], np.int64)
        index.add(raw, np.zeros(1, np.int64), positions, record.stored_ms, topic=record.topic)
    return index


@pytest.mark.parametrize("name", PARTS)
def test_an_index_of_the_same_records_is_rocketmqs_own_byte_for_byte(name: str, tmp_path: Path) -> None:
    """With tags, as 5.5 writes it: header, slots and entries of every file; only the names are ours."""
    part = golden_part(name)
    index = indexed_part(part, tmp_path, tags=True)
    index.complete()
    index.flush().run()
    ours = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir(), reverse=True) if not path.suffix]
    assert ours == part.index_files()


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("tags", [False, True])
def test_an_index_of_the_same_records_answers_as_rocketmq_did(name: str, tags: bool, tmp_path: Path) -> None:
    """Every look-up that was recorded, from memory and from files; without tags, all but those for tags."""
    part = golden_part(name)
    index = indexed_part(part, tmp_path, tags=tags)
    asked = 0
    for _ in range(2):
        for query in part.described["index"]["queries"]:
            if tags or not query["key"].startswith("T#"):
                asked += 1
                assert index.find(query["topic"], query["key"]) == query["phyOffsets"]
        index.flush().run()
    assert asked > 40
