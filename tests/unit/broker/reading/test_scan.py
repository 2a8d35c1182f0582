"""Reading a queue with a filter, over a real store: what is found agrees with looking at every message; bounds hold; nothing twice."""

import random
from typing import Any

import numpy as np
import pytest

from tern_broker.reading.reader import Reader
from tern_broker.reading.scan import QueueScan
from tern_wire.errors import OffsetExpired
from tern_wire.filters import compile_filter
from tern_wire.records.columns import heads_of, record_starts
from tern_wire.records.layout import HEAD_ROWS, HEAD_SIZE_BYTES
from tern_wire.records.properties import TAGS
from tern_wire.records.read import decode_record
from tests.support.broker.single_broker import SingleBroker
from tests.support.files.faulty_files import FaultyFiles
from tests.support.filtering import matches_properties


def filled(count: int, *, seed: int = 0) -> SingleBroker:
    """Messages 0 to *count* - 1 in queue 0, with tags of which two have the same hash; some in queue 1 between them."""
    broker = SingleBroker(FaultyFiles())
    broker.create()
    rng = random.Random(seed)
    number = 0
    while number < count:
        batch = rng.randrange(1, 9)
        tag = rng.choice(["Aa", "BB", "C", ""])
        broker.send("t", *((0, b"%d" % n) for n in range(number, min(count, number + batch))), tag=tag)
        broker.send("t", (1, b"other"), tag="Aa")
        number += batch
    return broker


def scan(broker: SingleBroker, offset: int, tags: str | None, sql: str | None, **bounds: Any) -> QueueScan:
    """A scan of queue 0."""
    limits = {"end": None, "messages_max": 1_000, "size_max_bytes": 1 << 20, **bounds}
    topic = broker.state.names.topics["t"]
    return QueueScan(Reader(broker.store), topic, 0, offset, compile_filter(tags, sql), **limits)


def found_by(looked: QueueScan) -> list[int]:
    """Offsets that a scan finds, run to its end."""
    while not looked.is_over:
        before = looked.offset
        looked.step()
        assert looked.offset > before or looked.is_over
    return [decode_record(data, int(start)).offset for data in looked.found for start in record_starts(data).tolist()]


@pytest.mark.parametrize(
    ("tags", "sql"), [("Aa", None), ("BB||C", None), (None, "TAGS = 'C'"), (None, "TAGS IS NULL"), (None, None)]
)
def test_a_scan_finds_what_the_filter_says_of_each_message(tags: str | None, sql: str | None) -> None:
    """All of it, in order, and `offset` is then the queue's end."""
    broker = filled(300)
    wanted = compile_filter(tags, sql)
    topic = broker.state.names.topics["t"]
    records = Reader(broker.store).pull_records(topic, 0, 0, 1_000)
    looked = scan(broker, 0, tags, sql)
    assert found_by(looked) == [record.offset for record in records if matches_properties(wanted, record.properties)]
    assert (looked.offset, looked.messages) == (300, len(found_by(looked)))
    assert {record.properties.get(TAGS) for record in records} == {"Aa", "BB", "C", None}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("tags", "sql"), [("Aa", None), (None, "TAGS = 'Aa'"), (None, None)])
def test_pages_of_any_size_put_together_are_the_whole(seed: int, tags: str | None, sql: str | None) -> None:
    """However few messages or bytes fit: every page goes on behind the one before, nothing is twice, nothing is left out."""
    broker = filled(120, seed=seed)
    rng = random.Random(seed)
    whole = found_by(scan(broker, 0, tags, sql))
    seen: list[int] = []
    offset = 0
    while offset < 120:
        page = scan(
            broker, offset, tags, sql, messages_max=rng.randrange(1, 7), size_max_bytes=rng.choice([1, 300, 5_000])
        )
        seen += found_by(page)
        assert page.offset > offset
        offset = page.offset
    assert seen == whole


def test_a_closed_range_ends_where_it_was_asked_to() -> None:
    """Also where nothing in it is wanted, and before the queue's own end."""
    broker = filled(50)
    looked = scan(broker, 10, "none-has-this", None, end=20)
    assert found_by(looked) == []
    assert (looked.offset, looked.is_closed) == (20, True)
    beyond = scan(broker, 40, None, None, end=99)
    assert found_by(beyond) == list(range(40, 50))
    assert not beyond.is_closed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("tags", "sql"), [("Aa", None), (None, "TAGS = 'C'"), (None, None)])
def test_heads_are_those_of_the_records_that_a_scan_finds(seed: int, tags: str | None, sql: str | None) -> None:
    """Whole, and in pages of any size, which the bytes of the heads count; a page has as many as fit, and one at least."""
    broker = filled(150, seed=seed)
    rng = random.Random(seed)
    records = scan(broker, 0, tags, sql)
    found_by(records)
    wanted = b"".join(heads_of(data) for data in records.found)
    seen, offset = b"", 0
    while offset < 150:
        fitting = rng.randrange(0, 9)
        page = scan(broker, offset, tags, sql, size_max_bytes=fitting * HEAD_SIZE_BYTES + 1, heads_only=True)
        while not page.is_over:
            page.step()
        heads = b"".join(page.found)
        assert len(heads) == page.messages * HEAD_SIZE_BYTES <= max(1, fitting) * HEAD_SIZE_BYTES
        assert page.messages == max(1, fitting) or page.offset == 150
        seen, offset = seen + heads, page.offset
    assert seen == wanted


def test_a_page_of_heads_is_limited_by_the_records_that_it_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 heads in one answer, though their records would not fit into it: no page passes more of the log than it may."""
    broker = filled(300)
    monkeypatch.setattr("tern_broker.reading.scan.PAGE_SIZE_MAX_BYTES", 2_000)
    looked = scan(broker, 0, None, None, size_max_bytes=300 * HEAD_SIZE_BYTES, heads_only=True)
    while not looked.is_over:
        looked.step()
    assert (looked.messages, looked.offset) == (300, 300)
    sizes = [int(np.frombuffer(page, HEAD_ROWS)["size"].sum()) for page in looked.found]
    assert len(sizes) > 10
    assert max(sizes) <= 2_000


def test_what_retention_has_dropped_cannot_be_looked_at() -> None:
    """410, also when the queue's begin passes a scan that is under way."""
    broker = filled(30)
    looked = scan(broker, 5, "Aa", None)
    broker.state.names.topics["t"].mins[0] = 6
    with pytest.raises(OffsetExpired):
        looked.step()
    with pytest.raises(OffsetExpired):
        scan(broker, 5, None, None, heads_only=True).step()
