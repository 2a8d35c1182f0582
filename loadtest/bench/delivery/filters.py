"""`python -m loadtest.bench.delivery.filters`: messages a second that one core scans with a filter.

The filters pass 1 in 100; no assertion on any time. Tags: pages of queue entries are preselected,
and the remaining records are evaluated. SQL: all records of 1 KiB with 5 properties are evaluated,
in pages as long as a receive's. Everything is in memory; reading the log is the store's bench.
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
from rich.console import Console

from loadtest.bench.figures import Figure
from loadtest.bench.store.figures import Bar, in_turns, judged, show_store
from tern_wire.filters import Filter, compile_filter
from tern_wire.limits import FILTER_TERMS_MAX
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.columns import record_starts
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import OVERHEAD_SIZE_BYTES
from tern_wire.records.properties import encode_properties
from tern_wire.records.write import encode_record

MESSAGES = 100_000
RECORD_SIZE_BYTES = 1_024
PAGE_ENTRIES, PAGE_RECORDS = 4_096, 256
ROUNDS = 7
TAGS_BAR, SQL_BAR = Bar(value=2_000_000), Bar(value=50_000)
# Filters that pass about 1 in 100: the simplest, a usual one, and one with numbers, texts and OR.
TAGS = {"one": "t7", "ten_rare": " || ".join(f"rare-{number}" for number in range(10))}
SQLS = {
    "number": "price = 42",
    "usual": "region = 'eu' AND price > 96",
    "searching": "KEYS ENDSWITH '17' AND customer STARTSWITH 'c-'",
    "wide": "(region IN ('eu', 'us') AND price BETWEEN 10 AND 10.5) OR (customer CONTAINS 'c-99' AND NOT price < 90) OR nothing = 1",
}


# The maximum of comparisons in a filter: the cost of one page bounds the stall of the core loop.
LARGEST = " OR ".join(f"price={number}" for number in range(1_000, 1_000 + FILTER_TERMS_MAX))


@dataclass(frozen=True, slots=True)
class Backlog:
    """A queue's entries, its joined records, and the start of each record."""

    entries: npt.NDArray[np.void]
    data: memoryview
    starts: npt.NDArray[np.int64]


def backlog(rng: random.Random) -> Backlog:
    """Make MESSAGES messages with tags, keys, customer, region and price.

    The tags are `t0` to `t99`, and 1 in 1,000 each of ten rare ones.
    """
    records, tags = [], []
    for number in range(MESSAGES):
        tags.append(f"rare-{number % 10}" if rng.random() < 0.01 else f"t{rng.randrange(100)}")
        pairs = [
            ("UNIQ_KEY", f"{number:032X}"),
            ("KEYS", f"order-{number}"),
            ("TAGS", tags[-1]),
            ("customer", f"c-{rng.randrange(1_000)}"),
            ("region", rng.choice(("eu", "us", "ap"))),
            ("price", str(rng.randrange(100))),
        ]
        properties = encode_properties(pairs)
        body = bytes(RECORD_SIZE_BYTES - OVERHEAD_SIZE_BYTES - len(b"orders") - len(properties))
        records.append(encode_record(b"orders", 0, body, properties, born_ms=0))
    data = memoryview(b"".join(records))
    starts = record_starts(data)
    entries = np.zeros(MESSAGES, QUEUE_ENTRIES)
    entries["position"], entries["size"] = starts, RECORD_SIZE_BYTES
    entries["tag"] = [tag_hash(tag) for tag in tags]
    return Backlog(entries, data, starts)


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of one pass over the backlog."""

    passed: int
    longest_page_ms: float


def scan(found: Filter, messages: Backlog, page: int, scans: list[Scan]) -> float:
    """Scan the backlog in pages; return messages a second and append the result to *scans*."""
    passed, longest_s = 0, 0.0
    began_s = time.perf_counter()
    for first in range(0, MESSAGES, page):
        page_began_s = time.perf_counter()
        left = first + np.flatnonzero(found.preselect(messages.entries[first : first + page]))
        passed += int(found.matches(messages.data, messages.starts[left]).sum())
        longest_s = max(longest_s, time.perf_counter() - page_began_s)
    spent_s = time.perf_counter() - began_s
    scans.append(Scan(passed, longest_s * 1e3))
    return MESSAGES / spent_s


def bench_filters(seed: int) -> Iterator[Figure]:
    """Yield a figure for each filter, then the time of compilation."""
    messages = backlog(random.Random(seed))
    kinds = [(f"tags_{name}", compile_filter(tags, None), PAGE_ENTRIES, TAGS_BAR) for name, tags in TAGS.items()]
    kinds += [(f"sql_{name}", compile_filter(None, sql), PAGE_RECORDS, SQL_BAR) for name, sql in SQLS.items()]
    kinds.append(("sql_largest", compile_filter(None, LARGEST), PAGE_RECORDS, Bar(value=10_000)))
    for name, found, page_max, bar in kinds:
        page = page_max if found.is_tag else min(page_max, found.page_records)
        scans: list[Scan] = []
        (rates,) = in_turns(ROUNDS, partial(scan, found, messages, page, scans))
        share, longest_ms = scans[0].passed / MESSAGES, max(one.longest_page_ms for one in scans)
        note = f"passes {share:.1%}; longest page of {page:,}: {longest_ms:.2f} ms"
        yield replace(judged(name, rates, "messages/s", bar, note=note), bench="filters")
    for name, sql, bar_us in (("usual", SQLS["usual"], 100), ("largest", LARGEST, 10_000)):
        (spent,) = in_turns(ROUNDS, partial(_compile_us, sql))
        bar = Bar(value=bar_us, more_is_better=False)
        yield replace(judged(f"compile_{name}", spent, "us", bar), bench="filters")


def _compile_us(sql: str) -> float:
    began_s = time.perf_counter()
    compile_filter(None, sql)
    return (time.perf_counter() - began_s) * 1e6


def main() -> int:
    """Return exit code 0 always: a missed bar is shown, never an error."""
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 170)
    console.print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, seed 1; one core is used, about 30 s")
    figures = []
    for figure in bench_filters(seed=1):
        figures.append(figure)
        print(figure.line(), flush=True)
    show_store(figures, console, "bench filters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
