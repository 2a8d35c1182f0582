"""Reading records by position: every byte is covered by its entry's checksum, wherever it comes from."""

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tern_store import CommitLog, EntryKind, Genesis, LogRot, StoredEntry, StoreError
from tern_store.log.log_reader import GATHER_ROWS_MIN
from tests.support.files.faulty_files import FaultyFiles

GROUP = Genesis(b"g" * 16, ("a", "b", "c"), 4096)
DIRECTORY = Path("/data")
Spans = list[tuple[int, int]]


def opened(files: FaultyFiles, recent_max_bytes: int = 0) -> CommitLog:
    return CommitLog.open(DIRECTORY, group=GROUP, recent_max_bytes=recent_max_bytes, files=files)


def filled(files: FaultyFiles, recent_max_bytes: int = 0) -> tuple[CommitLog, list[StoredEntry]]:
    log = opened(files, recent_max_bytes)
    rng = random.Random(5)
    entries = [
        log.append(EntryKind.COMMANDS, log.end_index + 1, 1, (rng.randbytes(rng.choice([50, 300, 900])),), 1)
        for _ in range(40)
    ]
    job = log.take_sync()
    assert job is not None
    job.run()
    log.mark_synced(job)
    return log, entries


def read(log: CommitLog, spans: Spans) -> bytes:
    positions, sizes = np.array(spans, np.int64).reshape(-1, 2).T
    return bytes(log.read_records(positions, sizes))


def expected(entries: list[StoredEntry], spans: Spans) -> bytes:
    parts = []
    for position, size in spans:
        (entry,) = [entry for entry in entries if entry.position <= position < entry.position + len(entry)]
        parts.append(entry.raw[position - entry.position :][:size])
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("recent", [0, 3000, 1 << 20])
def test_records_come_back_in_the_order_asked_for(seed: int, recent: int) -> None:
    """Neighbours, gaps, steps back and repeats; from memory, from files, and again when their entries are known to be good."""
    log, entries = filled(FaultyFiles(), recent)
    rng = random.Random(seed)
    spans = []
    for entry in rng.choices(entries, k=30) if seed % 2 else entries[seed : seed + 10]:
        at = 48
        while at < len(entry):
            size = min(rng.choice([1, 7, 50]), len(entry) - at)
            if rng.random() < 0.8:
                spans.append((entry.position + at, size))
            at += size
    for _ in range(3):
        assert read(log, spans) == expected(entries, spans)


@pytest.mark.parametrize("where", ["head", "record", "elsewhere", "tail"])
@pytest.mark.parametrize("together", [True, False])
def test_damage_anywhere_in_an_entry_keeps_its_records_from_readers(where: str, together: bool) -> None:
    """Also when the record that was asked for is intact; other entries are still read."""
    files = FaultyFiles()
    log, entries = filled(files)
    entry = next(entry for entry in entries[10:] if len(entry) > 400)
    spans = [(entry.position + 100, 50), (entry.position + (150 if together else 180), 50)]
    at = {"head": 20, "record": 120, "elsewhere": 300, "tail": len(entry) - 1}[where]
    log.close()
    content = files.content(DIRECTORY / "commitlog" / f"{entry.position // 4096 * 4096:020d}")
    content[entry.position % 4096 + at] ^= 1
    log = CommitLog.open(DIRECTORY, group=GROUP, recent_max_bytes=0, start=entries[-1].mark, files=files)
    with pytest.raises(LogRot, match=f"position {entry.position}"):
        read(log, spans)
    good = [(entries[3].position + 60, 20)]
    assert read(log, good) == expected(entries, good)


def test_what_is_in_no_entry_is_refused() -> None:
    """Behind the end, over the end of an entry, in the filler of a segment."""
    log, entries = filled(FaultyFiles())
    last = entries[-1]
    rolled = next(b for a, b in pairwise(entries) if b.position != a.position + len(a))
    for position, size in ((last.position + len(last), 1), (entries[2].position - 1, 2), (rolled.position - 1, 1)):
        with pytest.raises(StoreError, match=r"not in one entry|in no entry"):
            read(log, [(position, size)])


def test_after_a_cut_the_new_entries_are_read() -> None:
    """The reader's memory of the old ones is gone."""
    log, entries = filled(FaultyFiles())
    spans = [(entry.position + 48, 40) for entry in entries]
    read(log, spans)
    log.truncate_from(entries[20].index)
    new = [log.append(EntryKind.COMMANDS, log.end_index + 1, 2, (bytes([n]) * 333,), 1) for n in range(20)]
    spans = [(entry.position + 48, 40) for entry in [*entries[:20], *new]]
    assert read(log, spans) == expected([*entries[:20], *new], spans)


@pytest.mark.parametrize("count", [GATHER_ROWS_MIN - 1, GATHER_ROWS_MIN, GATHER_ROWS_MIN + 1, 80])
@pytest.mark.parametrize("recent", [0, 1 << 20])
@pytest.mark.parametrize(("size", "step"), [(5, 9), (1, 2), (8, 10), (3, 3)])
def test_pieces_of_one_size_come_back_however_many_there_are(count: int, recent: int, size: int, step: int) -> None:
    """Such as the heads of records: from memory, from files, and again when the entry is known to be good; at its very end, too."""
    log, entries = filled(FaultyFiles(), recent)
    entry = next(entry for entry in entries if len(entry) > 900)
    for begin in (48, len(entry) - (count - 1) * step - size):
        spans = [(entry.position + begin + number * step, size) for number in range(count)]
        for _ in range(3):
            assert read(log, spans) == expected(entries, spans)


def test_what_was_read_stays_as_it_is_when_more_is_read() -> None:
    """Records with gaps, of entries that are known to be good: no later read changes an earlier answer."""
    log, entries = filled(FaultyFiles())
    spans = [[(entry.position + 48 + at, 4) for at in range(0, len(entry) - 52, 7)] for entry in entries]
    for of_entry in spans:
        read(log, of_entry)
    answers = [log.read_records(*np.array(of_entry, np.int64).T) for of_entry in spans]
    assert [bytes(answer) for answer in answers] == [expected(entries, of_entry) for of_entry in spans]
