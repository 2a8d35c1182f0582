"""The bench of the store, made tiny: its entries are those of a broker, every figure comes out, nothing is left behind."""

from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from loadtest.bench.store.__main__ import BENCHES, run
from loadtest.bench.store.entries import TAG, EntryMaker, Shape, id_of, key_of
from loadtest.bench.store.figures import Bar, in_turns, judged
from loadtest.bench.store.node import BenchNode
from loadtest.bench.store.restart import grow, kill_while_writing, look_up, restart
from loadtest.bench.store.sizes import MIB, Sizes
from tern_wire.link.commands import SEND_HEAD, CommandKind, read_entry
from tern_wire.link.rows import SEND_ROWS
from tern_wire.records.columns import record_starts
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.read import decode_record

TINY = Sizes(
    segment_size_bytes=4 * MIB,
    append_size_bytes=MIB,
    append_rounds=1,
    scan_size_bytes=2 * MIB,
    rounds=1,
    apply_messages=400,
    written_messages=1_000,
    pull_size_bytes=MIB,
    queues=50,
    queue_messages=400,
    large_messages=1_500,
    memory_sizes_bytes=(MIB, 2 * MIB),
    unsaved_size_bytes=MIB,
    restarts=1,
    lookups=20,
)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(queues=8, has_key=True),
        Shape(queues=2_500, run=1, has_key=True, has_tag=True, properties=2),
        Shape(queues=3, run=100, body_size_bytes=64, entry_size_bytes=8 << 10),
    ],
    ids=str,
)
def test_entries_are_what_a_broker_would_have_proposed(shape: Shape, tmp_path: Path) -> None:
    """Rows describe their records, records decode to different messages, and apply stores every one of them in its queue."""
    maker = EntryMaker(shape)
    number = 0
    with BenchNode(tmp_path, 4 * MIB, shape) as node:
        for _ in range(3):
            body = b"".join(maker.take())
            _, (command,) = read_entry(memoryview(body))
            (count, _), payload = SEND_HEAD.unpack_from(command.payload), command.payload[SEND_HEAD.size :]
            assert (command.kind, count) == (CommandKind.SEND, maker.count)
            rows, records = np.frombuffer(payload, SEND_ROWS, count), bytes(payload[count * SEND_ROWS.itemsize :])
            starts = record_starts(records)
            for row, start in zip(rows, starts.tolist(), strict=True):
                record = decode_record(records, start)
                assert (record.size_bytes, record.body_crc, record.queue) == (row["size"], row["crc"], row["queue"])
                assert record.body_crc == crc32(record.body) & 0x7FFFFFFF
                assert (record.topic, record.properties["UNIQ_KEY"]) == (f"bench-{row['topic'] - 1:03d}", id_of(number))
                assert record.properties.get("KEYS") == (key_of(number) if shape.has_key else None)
                assert row["tag"] == tag_hash(record.properties.get("TAGS", ""))
                assert record.properties.get("TAGS") == (TAG if shape.has_tag else None)
                number += 1
            node.apply(node.append([body]))
        assert len(body) <= shape.entry_size_bytes
        wanted = np.bincount(np.arange(number) // (shape.run or maker.count) % shape.queues, minlength=shape.queues)
        found = [end for topic in node.state.names.topics.values() for end in topic.ends]
        assert found == wanted.tolist()
        key = key_of(number - 1) if shape.has_key else id_of(number - 1)
        last = (number - 1) // (shape.run or maker.count) % shape.queues
        assert len(node.store.find(f"bench-{last // 1_000:03d}", key)) == 1


def test_every_bench_gives_its_figures_and_leaves_nothing(tmp_path: Path) -> None:
    """All but the large one, which the next test takes apart: each figure positive, each as a line of JSON."""
    names = [name for name in BENCHES if name != "large"]
    work, output = tmp_path / "work", tmp_path / "figures.json"
    work.mkdir()
    figures = run(work, TINY, names, output)
    assert len({figure.figure for figure in figures}) == len(figures) == 18
    assert all(figure.value > 0 for figure in figures if not figure.figure.endswith("growth"))
    assert output.read_text("utf-8").splitlines() == [figure.line() for figure in figures]
    assert list(work.iterdir()) == []


def test_a_large_store_survives_its_restarts_and_its_killing(tmp_path: Path) -> None:
    """Every message is there after a clean stop and after SIGKILL, and every key is found."""
    memory, per_s = grow(tmp_path, TINY)
    assert len(memory) == 2
    assert per_s > 0
    _, applied, _ = restart(tmp_path, TINY)
    assert applied == 0
    kill_while_writing(tmp_path, TINY)
    _, applied, _ = restart(tmp_path, TINY)
    assert applied >= TINY.unsaved_size_bytes
    assert len(look_up(tmp_path, TINY)) == TINY.lookups


def test_bars_are_judged_by_the_median_and_beside_it_by_the_best() -> None:
    """More or less is better; a ratio or a value is enough; the first turn is not counted."""
    turns = iter(range(100))
    assert in_turns(2, lambda: float(next(turns)), lambda: -1.0) == [[1.0, 2.0], [-1.0, -1.0]]
    figure = judged("f", [1.0, 2.0, 9.0], "MB/s", Bar(ratio=0.5), bare=[4.0, 8.0, 10.0]).document()
    assert (figure["value"], figure["pairwise_ratio"], figure["met"]) == (2.0, 0.25, False)
    assert (figure["best_ratio"], figure["best_met"]) == (0.9, True)
    less = judged("f", [3.0, 1.0, 2.0], "s", Bar(value=2, more_is_better=False)).document()
    assert (less["best"], less["met"]) == (1.0, True)
    either = Bar(ratio=0.5, value=600)
    assert [either.is_met(700, 0.1), either.is_met(1, 0.6), either.is_met(599, 0.4)] == [True, True, False]
