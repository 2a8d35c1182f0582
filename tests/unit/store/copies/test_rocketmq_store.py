"""Writing RocketMQ's files: the same bytes as a real broker wrote for the same records, and the order of many queues."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tern_store.errors import StoreError
from tern_store.rocketmq.order import EntryMerge
from tern_store.rocketmq.queues import RocketQueue
from tern_store.rocketmq.store import RocketSettings, RocketStoreWriter, RocketTopic
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import read_columns
from tern_wire.records.write import encode_record
from tests.support.files.rocketmq_golden import NOT_ORDINARY, PARTS, GoldenPart, golden_part

SEGMENT_SIZE_BYTES = 4096


def settings_of(part: GoldenPart) -> RocketSettings:
    """The sizes that the real broker was told."""
    return RocketSettings(
        segment_size_bytes=part.described["commitLogFileSize"],
        queue_entries=part.described["consumeQueueFileSize"] // 20,
        index_slots=part.described["maxHashSlotNum"],
        index_entries=part.described["maxIndexNum"],
    )


def written_again(part: GoldenPart, directory: Path, *, batch: int) -> None:
    """The records of *part*, *batch* at a time, through our writer, places filled in anew."""
    records = part.records
    keys = list(dict.fromkeys((record.topic_name, record.queue) for record in records))
    writer = RocketStoreWriter(directory, [RocketQueue(*key) for key in keys], settings_of(part))
    for at in range(0, len(records), batch):
        data = bytearray(b"".join(part.raw[at : at + batch]))
        columns = read_columns(data)
        sources = np.array([keys.index((record.topic_name, record.queue)) for record in records[at : at + batch]])
        offsets = columns.heads["queue_offset"].astype(np.int64)
        blank = np.frombuffer(data, np.uint8)
        for start in columns.starts:  # the writer must fill them in
            blank[start + 20 : start + 36] = 0xEE
        writer.add(data, columns, sources, offsets)
    writer.finish([RocketTopic("T", 1)])


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_our_files_equal_those_of_a_real_broker(name: str, batch: int, tmp_path: Path) -> None:
    """Commit log with its blank, consume queues and index files come out byte for byte, however the records arrive."""
    part = golden_part(name)
    written_again(part, tmp_path, batch=batch)
    for kind in ("commitlog", "consumequeue"):
        theirs = {path.relative_to(part.folder): path for path in (part.folder / kind).rglob("*") if path.is_file()}
        ours = {path.relative_to(tmp_path) for path in (tmp_path / kind).rglob("*") if path.is_file()}
        assert ours == set(theirs)
        for relative, path in theirs.items():
            if relative.parts[1] in NOT_ORDINARY:  # tag codes are times there
                continue
            found = (tmp_path / relative).read_bytes()
            assert found.rstrip(b"\0") == path.read_bytes().rstrip(b"\0"), relative
    theirs_index = [path.read_bytes() for path in sorted((part.folder / "index").iterdir())]
    assert [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())] == theirs_index


def test_files_have_their_whole_size(tmp_path: Path) -> None:
    """A broker refuses a commit log or a consume queue of another size, and stretches an index file."""
    part = golden_part(".")
    written_again(part, tmp_path, batch=50)
    settings = settings_of(part)
    sizes = {
        "commitlog": settings.segment_size_bytes,
        "consumequeue": settings.queue_entries * 20,
        "index": 40 + 4 * settings.index_slots + 20 * settings.index_entries,
    }
    for kind, size_bytes in sizes.items():
        assert {path.stat().st_size for path in (tmp_path / kind).rglob("*") if path.is_file()} == {size_bytes}
    assert (tmp_path / "checkpoint").stat().st_size == 4096
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("room", range(12))
@pytest.mark.parametrize("batch", [1, 3])
def test_eight_bytes_stay_free_at_the_end_of_a_file(room: int, batch: int, tmp_path: Path) -> None:
    """A record that would leave less goes into the next file; without the blank a broker does not find that."""
    fixed = len(encode_record(b"t", 0, b"", b"", born_ms=1))
    sizes = [100, SEGMENT_SIZE_BYTES - 2 * fixed - 100 - room, 4]
    records = [encode_record(b"t", 0, bytes(size), b"", born_ms=1) for size in sizes]
    settings = RocketSettings(segment_size_bytes=SEGMENT_SIZE_BYTES, index_slots=1, index_entries=4)
    writer = RocketStoreWriter(tmp_path, [RocketQueue("t", 0)], settings)
    for first in range(0, 3, batch):
        data = bytearray(b"".join(records[first : first + batch]))
        columns = read_columns(data)
        writer.add(data, columns, np.zeros(len(columns), np.int64), np.arange(first, first + len(columns)))
    writer.finish([])
    log = [path.read_bytes() for path in sorted((tmp_path / "commitlog").iterdir())]
    kept = sum(map(len, records[: 2 if room >= 8 else 1]))
    left = SEGMENT_SIZE_BYTES - kept
    assert log[0][kept : kept + 8] == left.to_bytes(4, "big") + bytes.fromhex("cbd43194")
    assert len(log) == 2
    behind = [len(record) for record in records[2 if room >= 8 else 1 :]]
    assert int.from_bytes(log[1][:4], "big") == behind[0]


def test_a_record_that_fits_no_file_is_refused(tmp_path: Path) -> None:
    """With its blank it must fit; the error says what helps."""
    record = encode_record(b"t", 0, bytes(SEGMENT_SIZE_BYTES - 97), b"", born_ms=1)
    assert SEGMENT_SIZE_BYTES - 8 < len(record) <= SEGMENT_SIZE_BYTES
    settings = RocketSettings(segment_size_bytes=SEGMENT_SIZE_BYTES, index_slots=1, index_entries=4)
    writer = RocketStoreWriter(tmp_path, [RocketQueue("t", 0)], settings)
    data = bytearray(record)
    with pytest.raises(StoreError, match="use larger files"):
        writer.add(data, read_columns(data), np.zeros(1, np.int64), np.zeros(1, np.int64))
    writer.close()


def test_a_queue_must_go_on_where_it_ends(tmp_path: Path) -> None:
    """A gap or a repeat would shift everything behind it, for good."""
    settings = RocketSettings(segment_size_bytes=SEGMENT_SIZE_BYTES, index_slots=1, index_entries=4)
    writer = RocketStoreWriter(tmp_path, [RocketQueue("t", 0, 5)], settings)
    record = encode_record(b"t", 0, b"x", b"", born_ms=1)
    for offset in (4, 6):
        data = bytearray(record)
        with pytest.raises(StoreError, match="goes on at 5"):
            writer.add(data, read_columns(data), np.zeros(1, np.int64), np.array([offset]))
    writer.close()


# The order of many queues ----------------------------------------------------------------------------------------
def random_queues(rng: random.Random) -> list[tuple[int, npt.NDArray[Any]]]:
    """Queues of a log: mostly rising positions, now and then one that points back, or the one before again."""
    queues: list[tuple[int, list[tuple[int, int, int]]]] = [
        (rng.choice([0, 0, 3]), []) for _ in range(rng.randint(1, 12))
    ]
    seen = [(0, 100, 0)]
    for position in range(0, 100 * rng.randint(1, 400), 100):
        _, entries = rng.choice(queues) if rng.random() < 0.5 else queues[0]
        entry = rng.choice(seen) if rng.random() < 0.1 else (position, 100, rng.randint(-9, 9))
        seen.append(entry)
        entries.append(entry)
    return [(first, np.array(entries, QUEUE_ENTRIES)) for first, entries in queues]


@pytest.mark.parametrize("seed", range(40))
def test_a_merge_keeps_every_queues_order_and_otherwise_that_of_the_log(seed: int) -> None:
    """All entries once; offsets rise in each queue; positions rise but where an entry points back; chunks of any size."""
    rng = random.Random(seed)
    queues = random_queues(rng)
    rows_max = rng.choice([1, 7, 64, 100_000])
    largest = 0

    def read(source: int, offset: int, count: int) -> npt.NDArray[Any]:
        nonlocal largest
        largest = max(largest, count)
        first, entries = queues[source]
        return entries[offset - first : offset - first + count]

    ranges = [(first, first + len(entries)) for first, entries in queues]
    rows = np.concatenate(list(EntryMerge(ranges, read, rows_max=rows_max)))
    for source, (first, entries) in enumerate(queues):
        mine = rows[rows["source"] == source]
        assert mine["offset"].tolist() == list(range(first, first + len(entries)))
        assert mine["position"].tolist() == entries["position"].tolist()
        assert mine["tag"].tolist() == entries["tag"].tolist()
    highest = dict.fromkeys(range(len(queues)), -1)
    keys = []
    for source, position in zip(rows["source"].tolist(), rows["position"].tolist(), strict=True):
        highest[source] = max(highest[source], position)
        keys.append(highest[source])
    assert keys == sorted(keys)
    assert largest <= max(1, rows_max)
