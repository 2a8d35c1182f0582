"""The bench of delivery, made tiny, against a proxy in memory: every figure comes out, and no lost, repeated or disordered message goes unseen."""

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from loadtest.bench import backlog, filtered, many_topics, pacing, receiving, timers
from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.delivery import BENCHES, measure
from loadtest.bench.delivery_sizes import FULL, QUICK, STUCK_BATCH_MESSAGES
from loadtest.bench.figures import BARS
from loadtest.bench.ordered import Order
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.pacing import run_paced
from loadtest.bench.receiving import Message, Receivers
from tests.support.proxy_in_memory import ProxyInMemory
from tests.support.scripted_proxy import blocking_proxy

TINY = replace(
    *(QUICK,),
    seconds=0.15,
    warm_up_s=0.0,
    turn_s=0.1,
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


@pytest.mark.parametrize("name", BENCHES)
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
        assert len(row["bars"]) == sum(bar == figure.figure for bar, _ in BARS) > 0
        assert all(text.endswith((" met", " MISSED")) for text in row["bars"])


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *((name, "loses") for name in BENCHES),
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
