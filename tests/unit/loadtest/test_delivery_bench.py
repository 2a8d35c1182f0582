"""The bench of delivery, made tiny, against a proxy in memory: every figure comes out, and no lost, repeated or disordered message goes unseen."""

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from loadtest.bench import pacing, receiving
from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.core_loops import CoreLoop
from loadtest.bench.delivery import __main__ as delivery
from loadtest.bench.delivery import backlog, filtered, many_topics, timers
from loadtest.bench.delivery.__main__ import BENCHES, MISSED, measure
from loadtest.bench.delivery.ordered import Order
from loadtest.bench.delivery.sizes import FULL, QUICK, STUCK_BATCH_MESSAGES
from loadtest.bench.figures import BARS, Figure, show
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.pacing import run_paced
from loadtest.bench.receiving import Message, Receivers
from tests.support.client.scripted_proxy import blocking_proxy
from tests.support.proxy.proxy_in_memory import ProxyInMemory

TINY = replace(
    *(QUICK,),
    seconds=0.15,
    warm_up_s=0.0,
    turn_s=0.6,
    turn_warm_up_s=0.0,
    rounds=1,
    receive_messages=3_000,
    fifo_messages=400,
    message_groups=40,
    delayed_messages=1_000,
    delayed_ahead_ms=400,
    tag_messages=2_000,
    sql_messages=1_000,
    topics=30,
    backlog_messages=3_000,
    blocked_messages=STUCK_BATCH_MESSAGES,
    others_messages=200,
)
FIGURES = {
    "receive": ["receive_ack"],
    "fifo": ["fifo_1000"],
    "keyed": ["keyed_batches", "keyed_singles_16"],
    "delay": ["delay_fire_mesh"],
    "filtered": ["tags_scanned", "tags_received", "sql_scanned", "sql_received"],
    "topics": ["topics_10000_created", "topics_10000_restart", "topics_10000_sends"],
    "backlog": ["backlog_reader"],
    "blocked": ["blocked_group"],
}
# Its proxy would have to hold receives, and its brokers to be processes.
ONLY_IN_A_MESH = {"parked"}
BENCHED = [name for name in BENCHES if name not in ONLY_IN_A_MESH]


def status(node: str, *, serving: bool, longest_ms: float, steps: dict[str, int]) -> dict[str, Any]:
    """What a broker tells of itself, as far as the bench looks."""
    longest = {"longest_10s_ms": longest_ms, "longest_60s_ms": 10 * longest_ms}
    cpu = {"longest_cpu_10s_ms": longest_ms / 2, "longest_cpu_60s_ms": 5 * longest_ms}
    return {"node": node, "serving": serving, "core_loop": {**longest, **cpu, "steps_by_ms": steps}}


@contextmanager
def served(fault: str, folder: Path) -> Iterator[OwnMesh]:
    """A mesh that is a proxy in memory with that fault."""
    with blocking_proxy(ProxyInMemory(fault).answer) as proxy:
        yield OwnMesh(port=int(proxy.url.rpartition(":")[2]), pids={}, startup_s=1.0, data_dir=folder)


@contextmanager
def _thread() -> Iterator[ThreadPoolExecutor]:
    """In place of the second process, which takes a second to start."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds and is not what is tested: the echo's ceiling, a mesh's restart, patience with a mesh that has lost something."""

    async def ceiling(_requests: object, _connections: int) -> float:
        return 1.0

    monkeypatch.setattr(receiving, "echo_ceiling", ceiling)
    monkeypatch.setattr(many_topics, "restart", lambda mesh: replace(mesh, startup_s=0.5))
    monkeypatch.setattr(timers, "PATIENCE_S", 0.1)
    statuses = [status("a", serving=True, longest_ms=4, steps={"5": 1, "inf": 0})]
    monkeypatch.setattr(OwnMesh, "broker_statuses", lambda _: statuses)


@pytest.mark.parametrize("name", BENCHED)
def test_every_bench_gives_its_figures_with_their_bars(name: str, tmp_path: Path) -> None:
    """Each figure positive, judged by every bar that it has, and as a line of JSON that says how small the run was."""
    output = StringIO()
    with served("", tmp_path) as mesh:
        figures = asyncio.run(measure(BENCHES[name], mesh, TINY, 1, [output]))
    assert [figure.figure for figure in figures] == FIGURES[name]
    for figure, line in zip(figures, output.getvalue().splitlines(), strict=True):
        row = json.loads(line)
        assert (row["bench"], row["scale"]) == ("delivery", TINY.scale)
        assert figure.value > 0
        assert (row["longest_step_ms"], row["longest_step_cpu_ms"], row["stalls"]) == (4, 2, 0)
        assert len(row["bars"]) == sum(bar == figure.figure for bar, _ in BARS) > 0
        assert all(text.endswith((" met", " MISSED")) for text in row["bars"])


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, "loses") for name in BENCHED),
        *itertools.product(["receive", "fifo", "backlog"], ["repeats", "forgets"]),
        *itertools.product(["fifo", "blocked"], ["disorders"]),
        ("filtered", "passes more"),
    ],
)
def test_a_mesh_that_does_wrong_gives_no_figure(
    name: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is acknowledged and not stored, delivered twice, acked in vain, out of order or not wanted ends the bench."""
    for module in (backlog, filtered):
        monkeypatch.setattr(module, "second_process", _thread)
    with served(fault, tmp_path) as mesh, pytest.raises((BenchFailed, RuntimeError)):
        asyncio.run(measure(BENCHES[name], mesh, TINY, 1, []))


def test_a_message_that_is_never_delivered_ends_the_drain(tmp_path: Path) -> None:
    """The others come; then nothing does for as long as the receivers are patient."""

    async def drain(mesh: OwnMesh) -> None:
        await backlog.load_backlog(mesh, "t", 1_000, random.Random(1))
        await Receivers("t", patience_s=0.05).drain(mesh.port, 1_000)

    with served("withholds", tmp_path) as mesh, pytest.raises(BenchFailed, match="992 of 1000 messages were delivered"):
        asyncio.run(drain(mesh))


def test_order_is_checked_message_by_message() -> None:
    """The next one of its message group passes; one that is missing, early or behind a blocked one does not, and an end that is short."""

    def message(message_group: int, number: int) -> Message:
        body = message_group.to_bytes(4, "big") + number.to_bytes(4, "big") + b"filler"
        return Message(queue="a:0", offset=0, receipt_handle="h", body=body)

    order = Order()
    order.look([message(1, 0), message(2, 0), message(1, 1)])
    order.check([1], 2)
    with pytest.raises(BenchFailed, match="1 message groups are not complete"):
        order.check([1, 2], 2)
    with pytest.raises(BenchFailed, match="number 3 came when 2 was due"):
        order.look([message(1, 3)])
    order.blocked = 2
    with pytest.raises(BenchFailed, match="whose earlier message is not acked"):
        order.look([message(2, 1)])


@pytest.mark.parametrize(("send_s", "per_s", "p99_s"), [(0.001, 100, 0.001), (0.05, 20, 0.81)])
def test_a_late_send_has_waited_since_it_was_due(
    send_s: float, per_s: float, p99_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 sends a second over one connection: fast ones keep the pace; slow ones fall behind, and the queue in front of them counts."""
    clock = SimpleNamespace(now_s=0.0)
    clock.perf_counter = lambda: clock.now_s

    async def pass_time(seconds: float) -> None:
        clock.now_s += seconds

    async def step(_connection: object) -> int:
        await pass_time(send_s)
        return 1

    async def connect(_host: str, _port: int) -> SimpleNamespace:
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(pacing, "time", clock)
    monkeypatch.setattr(pacing, "asyncio", SimpleNamespace(sleep=pass_time, gather=asyncio.gather))
    monkeypatch.setattr(pacing, "HttpConnection", SimpleNamespace(open=connect))
    paced = asyncio.run(run_paced(0, 1, step, per_s=100, seconds=1.0, warm_up_s=0.0))
    assert paced.per_s == pytest.approx(per_s, abs=1)
    assert paced.total == pytest.approx(per_s, abs=1)
    assert paced.p99_ms == pytest.approx(p99_s * 1_000, rel=0.05)


@pytest.mark.parametrize("scale", [0.001, 0.02, 0.37, 1.0])
def test_a_part_of_the_sizes_is_still_a_run(scale: float) -> None:
    """Whole batches everywhere, and never more than the full run."""
    sizes = FULL.scaled(scale)
    assert sizes.tag_messages % filtered.BATCH_MESSAGES == sizes.sql_messages % filtered.BATCH_MESSAGES == 0
    assert sizes.delayed_messages % timers.BATCH_MESSAGES == sizes.blocked_messages % STUCK_BATCH_MESSAGES == 0
    assert sizes.fifo_messages >= sizes.message_groups
    assert sizes.rounds >= 1
    for name in ("tag_messages", "topics", "backlog_messages", "blocked_messages", "seconds", "disk_size_bytes"):
        assert 0 < getattr(sizes, name) <= getattr(FULL, name)
    assert scale < 1 or sizes == FULL


def test_the_core_loop_of_who_leads_at_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its longest step of the shorter span that holds the window, and the steps above 20 ms that came in the window."""
    seen = [
        [
            status("a", serving=True, longest_ms=90, steps={"20": 5, "50": 2, "inf": 1}),
            status("b", serving=False, longest_ms=7, steps={"20": 1, "50": 3, "inf": 0}),
        ],
        [
            status("a", serving=False, longest_ms=90, steps={"20": 9, "50": 9, "inf": 9}),
            status("b", serving=True, longest_ms=8, steps={"20": 4, "50": 4, "inf": 1}),
        ],
    ]
    now_s = [100.0]
    monkeypatch.setattr("loadtest.bench.core_loops.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(OwnMesh, "broker_statuses", lambda _: seen.pop(0) if len(seen) > 1 else seen[0])
    core_loop = CoreLoop(OwnMesh(port=1, pids={}, startup_s=1.0, data_dir=tmp_path))
    assert core_loop.since() == {"longest_step_ms": 8, "longest_step_cpu_ms": 4, "stalls": 2}
    now_s[0] += 11
    assert core_loop.since()["longest_step_ms"] == 80
    seen[0][1]["core_loop"]["steps_by_ms"] = {"20": 7, "50": 1, "inf": 0}
    assert core_loop.since()["stalls"] == 1
    seen[0][1]["serving"] = False
    with pytest.raises(BenchFailed, match="no broker leads"):
        core_loop.since()


@pytest.mark.parametrize(
    ("longest_ms", "arguments", "code"),
    [(20, ["fifo"], 0), (21, ["fifo"], MISSED), (21, ["fifo", "--scale", "0.5"], 0), (21, ["fifo", "--quick"], 0)],
)
def test_the_exit_code_says_whether_the_bars_held(
    longest_ms: float, arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At full size: a smaller run has nothing to be judged by."""
    figures = [
        Figure(
            bench="delivery",
            figure="sql_received",
            value=1,
            unit="msg/s",
            more={"longest_step_ms": longest_ms, "longest_step_cpu_ms": 1},
        )
    ]
    monkeypatch.setattr(delivery, "run", lambda *_: (figures, {}))
    disk = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=1 << 50))
    monkeypatch.setattr("loadtest.bench.delivery.__main__.shutil", disk)
    monkeypatch.setattr("sys.argv", ["delivery", *arguments, "-o", str(tmp_path / "delivery.json")])
    assert delivery.main() == code


def test_the_table_has_the_longest_step_where_it_was_looked_at() -> None:
    """Wall and CPU time in one column, empty for a figure that has none."""
    more = {"longest_step_ms": 12.34, "longest_step_cpu_ms": 5.6}
    figures = [
        Figure(bench="b", figure=name, value=1, unit="s", more=told) for name, told in (("with", more), ("without", {}))
    ]
    console = Console(file=StringIO(), width=170)
    show(figures, console)
    show(figures[1:], console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "12.3 / 5.6" in text
    assert text.count("step / its CPU ms") == 1


def test_a_bench_that_fails_does_not_keep_the_others_from_being_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures of the others are told and the failure after them; the exit code is 1."""

    async def bad(*_: object) -> AsyncIterator[Figure]:
        raise BenchFailed("a message is lost")
        yield

    async def good(*_: object) -> AsyncIterator[Figure]:
        yield Figure(bench="delivery", figure="good", value=1, unit="s")

    monkeypatch.setattr(delivery, "BENCHES", {"bad": bad, "good": good})
    monkeypatch.setattr(delivery, "own_mesh", lambda folder: served("", folder))
    figures, failed = delivery.run(tmp_path, TINY, ["bad", "good"], 1, tmp_path / "delivery.json")
    assert [figure.figure for figure in figures] == ["good"]
    assert failed == {"bad": "a message is lost"}
    monkeypatch.setattr(delivery, "run", lambda *_: (figures, failed))
    monkeypatch.setattr("sys.argv", ["delivery", "--quick", "-o", str(tmp_path / "delivery.json")])
    assert delivery.main() == 1
