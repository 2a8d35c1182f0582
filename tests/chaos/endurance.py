"""Full load for minutes, with retention dropping the oldest segments under it: memory stays flat, followers keep up."""

import asyncio

import numpy as np

from tern_cli.mesh.process_table import rss_bytes
from tests.chaos.client import pause
from tests.chaos.cluster import Stuck
from tests.chaos.rig import Rig

MIB = 1 << 20
RSS_EVERY_S = 5.0
LAG_EVERY_S = 0.1
# Issue 5, bar 10.
SLOPE_MAX_MIB_PER_MIN = 1.0
LAG_P99_MAX = 2.0
WARM_UP_S = 60.0
SAY_EVERY_S = 10.0


async def endurance(rig: Rig) -> None:
    """Load for `--minutes`; RSS of every broker each 5 s, entries that followers lack each 100 ms."""
    rig.go_on()
    seconds = rig.asked.minutes * 60
    warm_up_s = min(WARM_UP_S, seconds / 3)
    lags: list[int] = []
    behind: list[int] = []
    memory: dict[str, list[tuple[float, int]]] = {name: [] for name in rig.cluster.nodes}
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    rss_due_s = say_due_s = began_s
    acked = rig.load.acked
    while (now_s := loop.time()) < began_s + seconds:
        rig.load.raise_failures()
        if now_s >= rss_due_s:
            rss_due_s += RSS_EVERY_S
            _sample_memory(rig, memory, now_s - began_s)
        if now_s >= say_due_s:
            say_due_s += SAY_EVERY_S
            rig.say(f"{rig.load.acked} acked, lag {lags[-1] if lags else '-'}")
        for status in (await rig.cluster.statuses()).values():
            if status.get("serving"):
                last, commit = status["last_index"], status["commit_index"]
                # Of one answer, so that nothing moves between the two numbers.
                behind += [last - peer["match_index"] for peer in status["peers"]]
                lags += [max(0, commit - peer["match_index"]) for peer in status["peers"]]
        await pause(LAG_EVERY_S)
    rig.figures["messages_per_s"] = round((rig.load.acked - acked) / (loop.time() - began_s))
    _judge_memory(rig, memory, warm_up_s)
    _judge_lag(rig, lags, behind)
    status = await rig.cluster.status(await rig.cluster.leader())
    rig.figures |= {name: status[name] for name in ("trims", "log_size_bytes", "log_first_index", "last_index")}


def _sample_memory(rig: Rig, memory: dict[str, list[tuple[float, int]]], at_s: float) -> None:
    for name, samples in memory.items():
        try:
            samples.append((at_s, rss_bytes(rig.cluster.pid(name))))
        except Stuck:
            rig.fail(f"{name} died under load")


def _judge_memory(rig: Rig, memory: dict[str, list[tuple[float, int]]], warm_up_s: float) -> None:
    figures: dict[str, dict[str, float | list[float]]] = {}
    for name, samples in memory.items():
        late = np.array([(at / 60, size / MIB) for at, size in samples if at >= warm_up_s])
        slope = float(np.polyfit(late[:, 0], late[:, 1], 1)[0]) if len(late) > 2 else 0.0
        figures[name] = {
            "slope_mib_per_min": round(slope, 3),
            "first_mib": round(samples[0][1] / MIB, 1),
            "last_mib": round(samples[-1][1] / MIB, 1),
            "max_mib": round(max(size for _, size in samples) / MIB, 1),
            "each_30_s_mib": [round(size / MIB, 1) for _, size in samples[::6]],
        }
        rig.judge(f"growth of {name} (MiB a minute)", slope, at_most=SLOPE_MAX_MIB_PER_MIN)
    rig.figures["memory"] = figures


def _judge_lag(rig: Rig, lags: list[int], behind: list[int]) -> None:
    if not lags:
        rig.fail("nobody served")
        return
    for name, values in (("lag_entries", lags), ("unconfirmed_entries", behind)):
        p50, p99 = np.percentile(values, (50, 99))
        rig.figures[name] = {"p50": float(p50), "p99": float(p99), "max": max(values), "samples": len(values)}
    rig.judge("lag of followers (entries, p99)", rig.figures["lag_entries"]["p99"], at_most=LAG_P99_MAX)
