"""The duration of the core loop's steps: the longest time between two polls of its sockets, and a
histogram of durations.

Law: while there is work, a callback of the gauge is scheduled in each turn of the loop. The time
between two of them is the length of the turn, and nothing that became ready in it has waited
longer. Without work no callback is scheduled, and the loop sleeps. So the gauge costs some 2 us a
turn, whatever the turn does, and no long step is missed. Durations are wall time: they include
waits for the processor, for the interpreter's lock and for a page of a file. The thread's CPU time
is reported as well, so that a machine without a free core can be distinguished from a step that is
too long. Reading it is a system call, made every 2 ms at most.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tern_raft import Disk, PeerListener, Runtime
from tern_store import SyncLost

# Upper bounds of the histogram's buckets, in s; longer steps are counted above the last.
BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
# The longest step of each second is kept for this many seconds; seconds without a turn take no
# space.
WINDOW_S = 60
# CPU time is not recorded for shorter steps; for longer ones it includes what was used for this
# long before them.
CPU_FROM_S, CPU_STALE_S = 0.005, 0.002


@dataclass(slots=True)
class _Second:
    number: int
    longest_s: float = 0.0
    longest_cpu_s: float = 0.0


class LoopGauge:
    """Owner: the core loop."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        monotonic: Callable[[], float],
        cpu: Callable[[], float],
    ) -> None:
        """*cpu*: CPU seconds that the loop's thread has used."""
        self._call_soon, self._monotonic, self._cpu = call_soon, monotonic, cpu
        self._goes_round = self._has_work = False
        self._began_s = 0.0
        # The CPU time, and when it was read.
        self._cpu_s, self._cpu_read_s = 0.0, float("-inf")
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = self._longest_s = self._longest_cpu_s = 0.0
        self._seconds: deque[_Second] = deque([_Second(0)], maxlen=WINDOW_S + 1)

    def mark(self) -> None:
        """Note that the loop has begun to work. Each callback calls it first; only the first call
        in a turn does more than return.
        """
        self._has_work = True
        if not self._goes_round:
            self._goes_round = True
            self._go_round(self._monotonic())

    def describe(self) -> dict[str, Any]:
        """Return the figures for the node's status.

        `longest_ms` since the start, `longest_10s_ms` and `longest_60s_ms` recently (1 s more at
        most), the most CPU time of a step of 5 ms and more (2 ms more at most), and the number of
        steps between each bound and the one before ("inf": above the last).
        """
        bounds = [f"{bound * 1_000:g}" for bound in BOUNDS_S] + ["inf"]
        return {
            "longest_ms": _ms(self._longest_s),
            "longest_10s_ms": _ms(self._lately(10).longest_s),
            "longest_60s_ms": _ms(self._lately(WINDOW_S).longest_s),
            "longest_cpu_ms": _ms(self._longest_cpu_s),
            "longest_cpu_10s_ms": _ms(self._lately(10).longest_cpu_s),
            "longest_cpu_60s_ms": _ms(self._lately(WINDOW_S).longest_cpu_s),
            "total_ms": _ms(self._total_s),
            "steps_by_ms": dict(zip(bounds, self._counts, strict=True)),
        }

    def _go_round(self, now_s: float) -> None:
        if now_s > self._cpu_read_s + CPU_STALE_S:
            self._cpu_s, self._cpu_read_s = self._cpu(), now_s
        self._began_s = now_s
        self._has_work = False
        self._call_soon(self._turned)

    def _turned(self) -> None:
        now_s = self._monotonic()
        self._note(now_s, now_s - self._began_s)
        if self._has_work:
            self._go_round(now_s)
        else:
            self._goes_round = False

    def _note(self, now_s: float, took_s: float) -> None:
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1
        self._total_s += took_s
        second = self._seconds[-1]
        if now_s >= second.number + 1:
            second = _Second(int(now_s))
            self._seconds.append(second)
        if took_s > second.longest_s:
            second.longest_s = took_s
            self._longest_s = max(self._longest_s, took_s)
        if took_s >= CPU_FROM_S:
            used_s = self._cpu() - self._cpu_s
            second.longest_cpu_s = max(second.longest_cpu_s, used_s)
            self._longest_cpu_s = max(self._longest_cpu_s, used_s)

    def _lately(self, within_s: int) -> _Second:
        since = int(self._monotonic()) - within_s
        there = [second for second in self._seconds if second.number >= since]
        return _Second(
            since,
            max((second.longest_s for second in there), default=0.0),
            max((second.longest_cpu_s for second in there), default=0.0),
        )


class GaugedRuntime:
    """A runtime whose loop marks the gauge before each callback of the wrapped runtime. Owner: the
    core loop.
    """

    def __init__(self, runtime: Runtime, mark: Callable[[], None]) -> None:
        self._runtime, self._mark = runtime, mark
        self.monotonic, self.wall_ms = runtime.monotonic, runtime.wall_ms
        self.new_id, self.end = runtime.new_id, runtime.end
        self.pid = runtime.pid

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> object:
        """Run *callback* in the next turn of the loop."""
        return self._runtime.call_soon(self._call, callback, *arguments)

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> object:
        """Run *callback* not before *delay_s* have passed."""
        return self._runtime.call_later(delay_s, self._call, callback, *arguments)

    def open_disk(self, on_failure: Callable[[SyncLost], None]) -> Disk:
        """Return another disk thread of the node."""
        return _GaugedDisk(self._runtime.open_disk(on_failure), self._call)

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        self._mark()
        callback(*arguments)


class _GaugedDisk:
    def __init__(self, disk: Disk, call: Callable[[Callable[[], None]], None]) -> None:
        self._disk, self._call = disk, call
        self.stop = disk.stop

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        self._disk.run_soon(job, lambda: self._call(done))


class GaugedListener:
    """The receiver of messages from the sockets to the peers. Owner: the core loop."""

    def __init__(self, listener: PeerListener, mark: Callable[[], None]) -> None:
        self._listener, self._mark = listener, mark
        self.connected, self.lost = listener.connected, listener.lost

    def receive(self, peer: str, body: bytes | memoryview) -> None:
        """Forward one message of *peer*."""
        self._mark()
        self._listener.receive(peer, body)


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 3)
