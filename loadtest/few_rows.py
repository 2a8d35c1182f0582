"""`python -m loadtest.few_rows`: the cost of a SEND of a few rows, row by row and with arrays.

CPU time of a broker's apply and of its store's dispatch, the least of many turns; no assertion on
any time. The thresholds between the two ways are in `tern_wire/array_thresholds.py`.
"""

import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtest.bench.store.entries import EntryMaker, Shape
from loadtest.bench.store.node import BenchNode
from tern_broker.core.sending import sending
from tern_store import store
from tern_store.log.entry import HEADER_SIZE_BYTES
from tern_wire.records import key_hashes

_SEGMENT_SIZE_BYTES = 256 << 20
_ROWS = (1, 2, 4, 8, 16, 32)
_TURNS, _ENTRIES = 40, 25
_WAYS = {"row by row": 1 << 20, "arrays": 0}


def _entry_size_bytes(rows: int) -> int:
    """Return a size that *rows* messages fill."""
    one = EntryMaker(_shape(1))
    room = 1 + one.record_size_bytes
    while EntryMaker(_shape(room)).count < rows:
        room += one.record_size_bytes // 4
    return room


def _shape(entry_size_bytes: int) -> Shape:
    return Shape(queues=8, run=1, has_key=True, has_tag=True, entry_size_bytes=entry_size_bytes)


def _spent_us(node: BenchNode, maker: EntryMaker) -> tuple[float, float]:
    """Return the CPU time of one entry in us: apply, dispatch."""
    apply_ns = dispatch_ns = 0
    for _ in range(_ENTRIES):
        entry = node.append(maker.take())
        began_ns = time.process_time_ns()
        applied = node.state.apply(entry.body, entry.position + HEADER_SIZE_BYTES, entry.index)
        apply_ns += time.process_time_ns() - began_ns
        began_ns = time.process_time_ns()
        node.dispatch(entry, applied)
        dispatch_ns += time.process_time_ns() - began_ns
        node.allocate_ahead()
    return apply_ns / _ENTRIES / 1e3, dispatch_ns / _ENTRIES / 1e3


def main() -> None:
    """Print the table."""
    table = Table("rows", *(f"{part}, {way} (us)" for part in ("apply", "dispatch") for way in _WAYS))
    shape = _shape(1)
    with tempfile.TemporaryDirectory() as place, BenchNode(Path(place) / "node", _SEGMENT_SIZE_BYTES, shape) as node:
        for rows in _ROWS:
            maker = EntryMaker(_shape(_entry_size_bytes(rows)))
            least = {way: (float("inf"), float("inf")) for way in _WAYS}
            for _ in range(_TURNS):
                for way, most in _WAYS.items():
                    sending.SEND_ROWS_ONE_BY_ONE_MAX = most  # type: ignore[attr-defined]
                    store.RECORDS_ONE_BY_ONE_MAX = key_hashes.RECORDS_ONE_BY_ONE_MAX = most  # type: ignore[attr-defined]
                    apply_us, dispatch_us = _spent_us(node, maker)
                    least[way] = min(least[way][0], apply_us), min(least[way][1], dispatch_us)
            table.add_row(str(maker.count), *(f"{least[way][part]:.1f}" for part in (0, 1) for way in _WAYS))
    Console().print(table)


if __name__ == "__main__":
    main()
