"""Networks that fail under load: the leader alone, one direction, a bridge, a link that flaps; then everything heals.

After each fault the senders rest, so that "equal" can be seen: last entry, commit and applied of all replicas are the same.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tests.chaos.client import pause
from tests.chaos.cluster import Stuck
from tests.chaos.kills import WATCH_S
from tests.chaos.network import apart
from tests.chaos.outage import outage_of, summary
from tests.chaos.rig import Rig

CUT_S = 8.0
# Issue 5, bar 5.
REFUSED_WITHIN_S = 2.0
EQUAL_WITHIN_S = 5.0
GO_ON_WITHIN_S = 20.0
FLAPS_S = 10.0
Fault = Callable[[Rig, str, list[str]], Awaitable[dict[str, object]]]


async def partition(rig: Rig) -> None:
    """The leader alone."""
    await _trials(rig, _leader_alone)


async def one_way(rig: Rig) -> None:
    """The leader is not heard by one follower, or not by both; or hears neither."""
    await _trials(rig, _one_way)


async def bridge(rig: Rig) -> None:
    """A-B and B-C, but not A-C: with the leader as an end, and as the middle."""
    await _trials(rig, _bridge)


async def flapping(rig: Rig) -> None:
    """Links that fail and heal every 0.1 to 2 seconds."""
    await _trials(rig, _flapping)


async def _trials(rig: Rig, fault: Fault) -> None:
    for _ in range(rig.asked.trials):
        await rig.warm_up(rig.rng.uniform(1.0, 1.5))
        rig.load.ledger.events.clear()
        await pause(0.3)
        leader = await rig.cluster.leader()
        followers = await rig.cluster.followers()
        rig.rng.shuffle(followers)
        harm_s = asyncio.get_running_loop().time()
        try:
            trial = await fault(rig, leader, followers)
        finally:
            rig.cluster.network.heal()
        healed_s = asyncio.get_running_loop().time()
        trial |= outage_of([event for event in rig.load.ledger.events if event.ended_s <= healed_s], harm_s)
        await rig.rest()
        rested_s = asyncio.get_running_loop().time()
        try:
            await rig.cluster.equal(within_s=30)
        except Stuck as stuck:
            rig.fail(str(stuck))
        now_s = asyncio.get_running_loop().time()
        trial |= {"equal_s": round(now_s - healed_s, 2), "rested_s": round(rested_s - healed_s, 2)}
        rig.judge("time from healing to equal replicas (s)", now_s - healed_s, at_most=EQUAL_WITHIN_S)
        rig.note({"leader": leader, **trial})
    for name in ("refused_s", "outage_s", "equal_s"):
        rig.figures[name] = summary([float(trial[name]) for trial in rig.trials if name in trial])


async def _leader_alone(rig: Rig, leader: str, followers: list[str]) -> dict[str, object]:
    for source, target in apart([[leader], followers]):
        rig.cluster.network.cut(source, target)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    refused_s = await _stops_serving(rig, leader)
    rig.judge("time for which a lone leader accepted writes (s)", refused_s, at_most=REFUSED_WITHIN_S)
    other = await rig.cluster.leader(but=leader, within_s=GO_ON_WITHIN_S)
    elected_s = loop.time() - began_s
    await rig.accepted_again(within_s=GO_ON_WITHIN_S)
    await pause(began_s + (rig.asked.fault_s or CUT_S) - loop.time())
    if (await rig.cluster.status(leader)).get("serving"):
        rig.fail(f"{leader} serves again, alone")
    return {"refused_s": round(refused_s, 3), "serving_s": round(elected_s, 3), "next": other}


async def _stops_serving(rig: Rig, node: str) -> float:
    """Seconds from now until *node* says of itself that it does not serve."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while (await rig.cluster.status(node, within_s=1.0)).get("serving", True):
        if loop.time() - began_s > CUT_S:
            break
        await pause(WATCH_S)
    return loop.time() - began_s


async def _one_way(rig: Rig, leader: str, followers: list[str]) -> dict[str, object]:
    kinds = {
        "one does not hear the leader": [(leader, followers[0])],
        "nobody hears the leader": [(leader, name) for name in followers],
        "the leader hears nobody": [(name, leader) for name in followers],
        "the leader does not hear one": [(followers[0], leader)],
    }
    kind = list(kinds)[len(rig.trials) % len(kinds)]
    return await _cut_for_a_while(rig, kind, kinds[kind])


async def _bridge(rig: Rig, leader: str, followers: list[str]) -> dict[str, object]:
    one, other = followers
    kinds = {
        "the leader and one follower cannot talk": [(leader, one), (one, leader)],
        "the followers cannot talk": [(one, other), (other, one)],
    }
    kind = list(kinds)[len(rig.trials) % len(kinds)]
    return await _cut_for_a_while(rig, kind, kinds[kind])


async def _cut_for_a_while(rig: Rig, kind: str, pairs: list[tuple[str, str]]) -> dict[str, object]:
    for source, target in pairs:
        rig.cluster.network.cut(source, target)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await rig.accepted_again(within_s=GO_ON_WITHIN_S)
    await pause(began_s + (rig.asked.fault_s or CUT_S) - loop.time())
    # Progress must not only resume: a minority's elections must not take it away again.
    await rig.accepted_again(within_s=GO_ON_WITHIN_S)
    terms = [status.get("term", 0) for status in (await rig.cluster.statuses()).values()]
    return {"cut": kind, "terms": terms}


async def _flapping(rig: Rig, leader: str, followers: list[str]) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    until = loop.time() + (rig.asked.fault_s or FLAPS_S)
    flaps, before = 0, rig.load.acked
    while loop.time() < until:
        victim = rig.rng.choice([leader, *followers])
        others = [name for name in rig.cluster.nodes if name != victim]
        pairs = rig.rng.choice(
            [apart([[victim], others]), [(victim, others[0])], [(others[0], victim)], apart([[victim], others[:1]])]
        )
        for source, target in pairs:
            rig.cluster.network.cut(source, target)
        await pause(rig.rng.uniform(0.1, 2.0))
        rig.cluster.network.heal()
        flaps += 1
        await pause(rig.rng.uniform(0.1, 2.0))
    await rig.accepted_again(within_s=GO_ON_WITHIN_S)
    return {"flaps": flaps, "acked_meanwhile": rig.load.acked - before}
