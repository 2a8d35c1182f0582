"""`python -m loadtest.bench.delivery.leases`: what messages cost that a consumer keeps for a day.

Measured is the state machine alone, on one core, in simulated time; no assertion on any time.
10,000 leases of one message each are all extended by a minute every 20 s, beside receives whose
messages are acked at once though their leases could last for half a day. About 5 minutes (`--hours
1`: 15 s).

The table has a row for each part of the day: size of the heap of deadlines, memory of the process,
apply time of an entry. Exit code 1 when the heap exceeds its bound.
"""

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtest.bench.process_cpu import memory_mb
from tern_broker.core import StateMachine
from tern_broker.core.applied import Applied
from tern_broker.core.deadline_heap import STALE_MAX
from tern_wire.limits import INVISIBLE_MAX_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind, entry_parts
from tern_wire.link.rows import ACK, EXTEND, LEASE_ROWS, SETTLE_ROWS, SETTLED

LEASES, QUEUES = 10_000, 10
EXTEND_EVERY_MS, EXTENDED_BY_MS = 20_000, 60_000
# Receives and acks of one message each between two rounds of extensions.
SETTLED_AT_ONCE = 200
_HOUR_MS = 3_600_000
_PARTS = 12


class SlowConsumer:
    """One topic, one group, and its leases.

    The last queue is for messages that are acked at once.
    """

    def __init__(self) -> None:
        self.state = StateMachine()
        self.now_ms, self._index = 10, 0
        topic, group = (
            self._ask(CommandKind.CREATE_TOPIC, {"topic": "t", "queues": QUEUES + 1}),
            self._ask(CommandKind.CREATE_GROUP, {"group": "g", "start": "earliest"}),
        )
        self._topic, self._group = topic["topic_id"], group["group_id"]
        # Leases concern offsets: this bench reads no record.
        self._topic_ends = self.state.names.topics["t"].ends
        each = LEASES // QUEUES
        rows = np.zeros(LEASES, SETTLE_ROWS)
        for queue in range(QUEUES):
            self._topic_ends[queue] = each
            part = rows[queue * each : (queue + 1) * each]
            part["queue"], part["offset"] = queue, np.arange(each)
            part["lease"] = self._lease(queue, 0, each, EXTENDED_BY_MS)
        rows["group"], rows["topic"], rows["action"], rows["invisible_ms"] = (
            self._group,
            self._topic,
            EXTEND,
            EXTENDED_BY_MS,
        )
        self._extensions = rows.tobytes()

    def round(self) -> tuple[float, float]:
        """Simulate 20 s; return seconds: to extend all leases, and of the longest other entry."""
        self.now_ms += EXTEND_EVERY_MS
        began_s = time.perf_counter()
        verdict = self._apply(CommandKind.SETTLE, self._extensions).verdicts[0]
        extended_s = time.perf_counter() - began_s
        assert verdict == bytes([SETTLED]) * LEASES, "a lease was lost"
        start = self._topic_ends[QUEUES]
        self._topic_ends[QUEUES] += SETTLED_AT_ONCE
        longest_s = 0.0
        for offset in range(start, start + SETTLED_AT_ONCE):
            began_s = time.perf_counter()
            (lease,) = self._lease(QUEUES, offset, 1, INVISIBLE_MAX_MS)
            row = (self._group, self._topic, QUEUES, ACK, offset, lease, 0)
            self._apply(CommandKind.SETTLE, np.array([row], SETTLE_ROWS).tobytes())
            longest_s = max(longest_s, time.perf_counter() - began_s)
        return extended_s, longest_s

    def _lease(self, queue: int, start: int, count: int, invisible_ms: int) -> list[int]:
        rows = np.array(
            [
                (self._group, self._topic, queue, 1, offset, 0, 0, invisible_ms)
                for offset in range(start, start + count)
            ],
            LEASE_ROWS,
        )
        verdicts = self._apply(CommandKind.LEASE, rows.tobytes()).verdicts[0]
        assert isinstance(verdicts, np.ndarray), verdicts
        found: list[int] = verdicts["lease"].tolist()
        assert all(found), "somebody else has it"
        return found

    def _ask(self, kind: CommandKind, request: dict[str, str | int]) -> dict[str, int]:
        verdict = self._apply(kind, encode_msgpack(request)).verdicts[0]
        assert isinstance(verdict, dict), verdict
        return verdict

    def _apply(self, kind: CommandKind, payload: bytes) -> Applied:
        self._index += 1
        body = b"".join(entry_parts(self.now_ms, [(kind, [payload])]))
        return self.state.apply(memoryview(body), 0, self._index)


def run(hours: float) -> Iterator[tuple[float, int, int, float, float, float, float]]:
    """Yield for each part of the time: hours, leases, pairs in the heap, MB, and times in ms.

    The times are median and longest of an extension, and the longest of other entries.
    """
    consumer, deadlines = SlowConsumer(), None
    rounds = max(_PARTS, round(hours * _HOUR_MS / EXTEND_EVERY_MS))
    for part in range(_PARTS):
        extended_s, others_s = zip(*(consumer.round() for _ in range(rounds // _PARTS)), strict=True)
        deadlines = consumer.state.leasing.deadlines
        yield (
            *((part + 1) * hours / _PARTS, len(deadlines), deadlines.pairs, memory_mb({"bench": os.getpid()})[0]),
            *(seconds * 1_000 for seconds in (statistics.median(extended_s), max(extended_s), max(others_s))),
        )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.delivery.leases", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="simulated time (%(default)g)")
    options = parser.parse_args()
    gc.freeze()
    table = Table(
        *("hours", "leases", "pairs", "MB", "extension p50 ms", "longest ms", "receive + ack longest ms"),
        title=f"{LEASES:,} leases extended every {EXTEND_EVERY_MS // 1_000} s",
    )
    worst = 0
    for hours, leases, pairs, size_mb, *times_ms in run(options.hours):
        worst = max(worst, pairs - 2 * leases - STALE_MAX)
        table.add_row(
            f"{hours:.1f}", f"{leases:,}", f"{pairs:,}", f"{size_mb:.1f}", *(f"{each_ms:.1f}" for each_ms in times_ms)
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    return 1 if worst > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
