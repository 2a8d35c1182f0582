"""Processes that die or hang under load: the leader killed, the leader paused, all brokers killed at once."""

import asyncio
import signal
from typing import Any

from tests.chaos.client import pause
from tests.chaos.cluster import Stuck
from tests.chaos.outage import outage_of, summary
from tests.chaos.rig import Rig

PAUSE_S = 10.0
# Issue 5, bar 4: median and maximum.
KILL_OUTAGE_S = (0.5, 1.5)
PAUSE_OUTAGE_S = (1.0, 2.0)
# Between two looks at the brokers while nobody leads: the time line of an outage is as fine as this.
WATCH_S = 0.015
BACK_WITHIN_S = 60.0


async def kill_leader(rig: Rig) -> None:
    """kill -9 the leader, again and again; each time it is back and has caught up before the next."""
    for _ in range(rig.asked.trials):
        await rig.warm_up(rig.rng.uniform(1.0, 2.0))
        rig.load.ledger.events.clear()
        await pause(0.3)
        leader = await rig.cluster.leader()
        watch = asyncio.create_task(_watch(rig, leader))
        harm_s = asyncio.get_running_loop().time()
        rig.cluster.signal(leader, signal.SIGKILL)
        await rig.accepted_again()
        times = await watch
        await pause(0.3)
        figures = outage_of(rig.load.ledger.events, harm_s)
        caught_up_s = await all_back(rig)
        rig.note({"killed": leader, **figures, **times, "caught_up_s": round(caught_up_s, 2)})
    _summarise(rig, "outage_s", "gap_s", "harm_to_accept_s", "slowest_send_s", "elected_s", "serving_s")
    _judge_outage(rig, *KILL_OUTAGE_S)


async def pause_leader(rig: Rig) -> None:
    """SIGSTOP the leader for ten seconds: the others go on; woken, it follows and has acknowledged nothing that is not stored.

    One proxy with its senders is stopped and woken with it, so that somebody goes on sending to the leader of old.
    """
    believer = rig.cluster.proxy_names[-1]
    pause_s = rig.asked.fault_s or PAUSE_S
    for _ in range(rig.asked.trials):
        await rig.warm_up(rig.rng.uniform(1.0, 2.0))
        rig.load.ledger.events.clear()
        await pause(0.3)
        leader = await rig.cluster.leader()
        watch = asyncio.create_task(_watch(rig, leader))
        loop = asyncio.get_running_loop()
        harm_s = loop.time()
        rig.cluster.signal(leader, signal.SIGSTOP)
        rig.cluster.signal(believer, signal.SIGSTOP)
        try:
            await rig.accepted_again()
            times = await watch
            await pause(harm_s + pause_s - loop.time())
            figures = outage_of(rig.load.ledger.events, harm_s)
        finally:
            rig.cluster.signal(leader, signal.SIGCONT)
            rig.cluster.signal(believer, signal.SIGCONT)
        woken_s = loop.time()
        stale = await _claims_to_serve(rig, leader, seconds=1.0)
        caught_up_s = await all_back(rig, since_s=woken_s)
        woken = outage_of(rig.load.ledger.events, woken_s)
        trial = {"paused": leader, **figures, **times, "caught_up_s": round(caught_up_s, 2)}
        rig.note({**trial, "served_after_waking_s": stale, "gap_after_waking_s": woken.get("gap_s", -1)})
    _summarise(rig, "outage_s", "gap_s", "harm_to_accept_s", "slowest_send_s", "elected_s", "serving_s")
    _judge_outage(rig, *PAUSE_OUTAGE_S)
    _summarise(rig, "caught_up_s", "served_after_waking_s", "gap_after_waking_s")


async def kill_all(rig: Rig) -> None:
    """kill -9 all brokers at once in the middle of the load: the supervisor starts them again, nothing acknowledged is gone."""
    for _ in range(rig.asked.trials):
        await rig.warm_up(rig.rng.uniform(0.5, 1.5))
        rig.load.ledger.events.clear()
        await pause(0.3)
        harm_s = asyncio.get_running_loop().time()
        await rig.cluster.kill(*rig.cluster.nodes)
        watch = asyncio.create_task(_watch(rig, gone=""))
        await rig.accepted_again(within_s=60)
        times = await watch
        figures = outage_of(rig.load.ledger.events, harm_s)
        caught_up_s = await all_back(rig)
        rig.note({**figures, **times, "caught_up_s": round(caught_up_s, 2)})
    _summarise(rig, "outage_s", "gap_s", "harm_to_accept_s", "elected_s", "serving_s")


async def _watch(rig: Rig, gone: str) -> dict[str, float]:
    """When, after now, another node stands, leads and serves: what the brokers took of an outage, the rest is the proxy's."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    others = [name for name in rig.cluster.nodes if name != gone]
    before = max((status.get("term", 0) for status in (await rig.cluster.statuses()).values()), default=0)
    times: dict[str, float] = {}
    while "serving_s" not in times and loop.time() - began_s < 20:
        asked = [rig.cluster.status(name, within_s=0.3) for name in others]
        statuses = [status for status in await asyncio.gather(*asked) if status.get("term", 0) > before]
        now_s = round(loop.time() - began_s, 3)
        if statuses:
            times.setdefault("stood_s", now_s)
        if any(status["role"] == "leader" for status in statuses):
            times.setdefault("elected_s", now_s)
        if any(status["serving"] for status in statuses):
            times["serving_s"] = now_s
        await pause(WATCH_S)
    return times


async def _claims_to_serve(rig: Rig, node: str, *, seconds: float) -> float:
    """How long after now *node* still said that it serves; what it acknowledged meanwhile is compared at the end."""
    loop = asyncio.get_running_loop()
    began_s, last_s = loop.time(), 0.0
    while loop.time() - began_s < seconds:
        if (await rig.cluster.status(node, within_s=0.2)).get("serving"):
            last_s = loop.time() - began_s
        await pause(WATCH_S)
    return round(last_s, 3)


async def all_back(rig: Rig, *, since_s: float | None = None) -> float:
    """Seconds until all three have applied what the leader had committed, under load."""
    loop = asyncio.get_running_loop()
    began_s = loop.time() if since_s is None else since_s
    try:
        await rig.cluster.equal(within_s=BACK_WITHIN_S, lag=True)
    except Stuck as stuck:
        rig.fail(str(stuck))
    return loop.time() - began_s


def _judge_outage(rig: Rig, median_s: float, max_s: float) -> None:
    figures = rig.figures["outage_s"]
    rig.judge("median outage (s)", figures.get("median", 0.0), at_most=median_s)
    rig.judge("maximum outage (s)", figures.get("max", 0.0), at_most=max_s)


def _summarise(rig: Rig, *names: str) -> None:
    for name in names:
        values: list[Any] = [trial[name] for trial in rig.trials if name in trial]
        rig.figures[name] = summary(values)
