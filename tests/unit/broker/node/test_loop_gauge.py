"""The gauge of the core loop's steps, in a loop whose clocks the test moves: what is told, how it costs nothing at rest, what marks it."""

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from tern_broker.node.loop_gauge import BOUNDS_S, WINDOW_S, GaugedListener, GaugedRuntime, LoopGauge
from tern_raft import PeerListener, Runtime


class Loop:
    """A loop with a clock and a processor that move only when a step says so."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], object]] = deque()
        self.now_s, self.cpu_s = 100.0, 7.0
        self.cpu_reads = 0
        self.gauge = LoopGauge(call_soon=self.soon.append, monotonic=lambda: self.now_s, cpu=self.cpu)

    def cpu(self) -> float:
        """Of the loop's thread."""
        self.cpu_reads += 1
        return self.cpu_s

    def work(self, ms: float, cpu_ms: float | None = None) -> None:
        """A callback that marks the gauge and takes so long."""
        self.gauge.mark()
        self.now_s += ms / 1_000
        self.cpu_s += (ms if cpu_ms is None else cpu_ms) / 1_000

    def turn(self) -> int:
        """What is due in one turn; how much that was."""
        due = len(self.soon)
        for _ in range(due):
            self.soon.popleft()()
        return due

    def rest(self, seconds: float = 0.0) -> None:
        """Until nothing is due, then asleep at the sockets."""
        while self.turn():
            pass
        self.now_s += seconds

    def told(self, *names: str) -> tuple[float, ...]:
        """These of what it tells."""
        said = self.gauge.describe()
        return tuple(said[f"{name}_ms"] for name in names)


def steps(loop: Loop) -> dict[str, int]:
    """The buckets with something in them."""
    return {bound: count for bound, count in loop.gauge.describe()["steps_by_ms"].items() if count}


def test_a_step_lasts_from_its_first_callback_until_the_loop_has_come_round() -> None:
    """Three callbacks in one turn are one step, and an empty turn comes after them; what the loop sleeps is none."""
    loop = Loop()
    for ms in (4, 8, 3):
        loop.work(ms)
    loop.rest(30)
    assert loop.told("longest", "total") == (15, 15)
    assert steps(loop) == {"1": 1, "20": 1}


def test_while_there_is_work_every_turn_is_measured() -> None:
    """What comes in the turn after a mark belongs to the next step, without a gap between them."""
    loop = Loop()
    loop.work(1)
    for ms in (30, 2, 7):
        loop.soon.append(lambda ms=ms: loop.work(ms))  # type: ignore[misc]
        loop.soon.append(lambda: None)
        loop.turn()
    loop.rest()
    assert loop.told("longest", "total") == (30, 40)


def test_a_loop_that_rests_is_left_alone() -> None:
    """A turn or two after the last work nothing goes round any more."""
    loop = Loop()
    loop.work(1)
    assert [loop.turn() for _ in range(4)] == [1, 0, 0, 0]
    loop.work(1)
    loop.gauge.mark()
    assert [loop.turn() for _ in range(4)] == [1, 1, 0, 0]


def test_the_longest_is_told_of_ten_seconds_a_minute_and_since_the_start() -> None:
    """Each as long as it says, and a second more at most."""
    loop = Loop()
    loop.work(40)
    loop.rest()
    for _ in range(2 * WINDOW_S):  # of one second, which takes one place however many steps it has
        loop.work(1)
        loop.rest()
    loop.rest(8.8)
    loop.work(6)
    loop.rest()
    assert loop.told("longest_10s", "longest_60s", "longest") == (40, 40, 40)
    loop.rest(3)
    assert loop.told("longest_10s", "longest_60s", "longest") == (6, 40, 40)
    loop.rest(WINDOW_S)
    assert loop.told("longest_10s", "longest_60s", "longest") == (0, 0, 40)


def test_waiting_for_a_processor_is_told_from_work() -> None:
    """A step of 50 ms that had a processor for 3 ms of it, and one of 30 ms that had it for 28."""
    loop = Loop()
    loop.work(50, cpu_ms=3)
    loop.rest(1)
    loop.work(30, cpu_ms=28)
    loop.rest()
    assert loop.told("longest", "longest_cpu") == (50, 28)
    assert loop.told("longest_10s", "longest_cpu_10s", "longest_cpu_60s") == (50, 28, 28)


def test_the_processors_clock_is_read_every_2_ms_at_most() -> None:
    """It is a call of the kernel: 1,000 turns of 0.1 ms read it some 50 times."""
    loop = Loop()
    for _ in range(1_000):
        loop.work(0.1)
        loop.turn()
    assert 30 < loop.cpu_reads <= 50


def test_memory_is_bounded() -> None:
    """However long it runs: a count for each bound, and the seconds of a minute."""
    loop = Loop()
    for _ in range(300):
        loop.work(2)
        loop.rest(1)
    assert len(loop.gauge._seconds) == WINDOW_S + 1
    assert len(loop.gauge.describe()["steps_by_ms"]) == len(BOUNDS_S) + 1
    assert sum(steps(loop).values()) == 300


@pytest.mark.parametrize(
    ("ms", "bound"), [(0.5, "1"), (1, "1"), (20, "20"), (20.1, "50"), (5_000, "5000"), (9_000, "inf")]
)
def test_a_step_is_counted_below_the_bound_that_it_does_not_exceed(ms: float, bound: str) -> None:
    """As Prometheus counts: a step as long as the bound is within it."""
    loop = Loop()
    loop.now_s = 0.0
    loop.work(ms)
    loop.rest()
    assert steps(loop) == {bound: 1}


class _World:
    """What a runtime and a listener to peers were asked for."""

    pid = 1

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.calls: list[Callable[[], object]] = []
        self.monotonic = self.wall_ms = self.new_id = self.end = self.stop = self.connected = self.lost = lambda: None

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> str:
        """Kept for the test to run."""
        self.calls.append(lambda: callback(*arguments))
        return "a handle"

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> str:
        """As soon as the test says."""
        return self.call_soon(callback, *arguments)

    def open_disk(self, on_failure: Callable[[OSError], None]) -> "_World":
        """It is its own disk."""
        return self

    def run_soon(self, job: Callable[[], None], done: Callable[[], None]) -> None:
        """The job at once, the rest in the loop."""
        job()
        self.call_soon(done)

    def receive(self, peer: str, body: bytes) -> None:
        """A peer's message."""
        self.said.append(f"{peer} {body!r}")


def test_whatever_the_loop_calls_marks_the_gauge_before_it_runs() -> None:
    """What was asked for soon or later, what the disk has done, and a peer's message; handles go to who asked."""
    said: list[str] = []
    world = _World(said)
    runtime = GaugedRuntime(cast(Runtime, world), lambda: said.append("mark"))
    assert runtime.call_soon(said.append, "soon") == runtime.call_later(5, said.append, "later") == "a handle"
    runtime.open_disk(lambda error: None).run_soon(lambda: said.append("job"), lambda: said.append("done"))
    for call in world.calls:
        call()
    listener: Any = GaugedListener(cast(PeerListener, world), lambda: said.append("mark"))
    listener.receive("b", b"body")
    assert said == ["job", "mark", "soon", "mark", "later", "mark", "done", "mark", "b b'body'"]
