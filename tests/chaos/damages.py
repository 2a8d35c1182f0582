"""Followers that lose their files or have them rot under load: found, made again from the leader, and never a wrong byte to a reader."""

import asyncio
import contextlib
import random
import shutil
import signal
from pathlib import Path

from tests.chaos.client import pause
from tests.chaos.cluster import Status, Stuck
from tests.chaos.outage import summary
from tests.chaos.rig import Rig
from tests.chaos.verify import read_back

GIB = 1 << 30
# Issue 5, bar 7.
REBUILD_MAX_S_PER_GIB = 30.0
RATE_SHARE_MIN = 0.6
RATE_WINDOW_S = 5.0
# A pass of the scrub over half a GiB, and the pause before it.
FOUND_WITHIN_S = 180.0
REBUILT_WITHIN_S = 60.0
SEGMENTS_FILLED = 3
# How long two nodes may try to go on without the one that has the last entry.
ALONE_S = 6.0
LEAD_ATTEMPTS = 8


async def wipe(rig: Rig) -> None:
    """A follower dies and its directory is gone: back with an equal log, while the group goes on at most of its rate."""
    rig.go_on()
    await _fill(rig, rig.asked.fill_mib << 20)
    for _ in range(rig.asked.trials):
        rig.go_on()
        before = await _rate(rig, RATE_WINDOW_S)
        node = rig.rng.choice(await rig.cluster.followers())
        async with rig.cluster.held():
            await rig.cluster.kill(node)
            gone = rig.cluster.data(node).with_suffix(".gone")
            rig.cluster.data(node).rename(gone)
        loop = asyncio.get_running_loop()
        began_s, acked = loop.time(), rig.load.acked
        await asyncio.to_thread(shutil.rmtree, gone)
        try:
            await _back(rig, node, within_s=REBUILT_WITHIN_S + 2 * REBUILD_MAX_S_PER_GIB * rig.asked.fill_mib / 1024)
        except Stuck as stuck:
            rig.fail(f"not rebuilt: {stuck}")
            return
        seconds = loop.time() - began_s
        share = (rig.load.acked - acked) / seconds / before
        size_bytes = (await rig.cluster.status(node))["log_size_bytes"]
        per_gib = seconds / (size_bytes / GIB)
        rig.judge("rebuilding one GiB (s)", per_gib, at_most=REBUILD_MAX_S_PER_GIB)
        rig.judge("share of the send rate that a rebuild takes", 1 - share, at_most=1 - RATE_SHARE_MIN)
        figures = {"seconds": round(seconds, 2), "s_per_gib": round(per_gib, 2), "rate_share": round(share, 3)}
        rig.note({"wiped": node, **figures, "log_bytes": size_bytes, "per_s_before": round(before)})
        await rig.rest()
        await rig.cluster.equal(within_s=30)
    for name in ("s_per_gib", "rate_share"):
        rig.figures[name] = summary([trial[name] for trial in rig.trials])


async def rot(rig: Rig) -> None:
    """A bit flips in a closed segment of a follower: while it is down, and under the running process."""
    await _fill(rig, SEGMENTS_FILLED * (16 << 20) + (1 << 20))
    for number in range(rig.asked.trials):
        rig.go_on()
        node = rig.rng.choice(await rig.cluster.followers())
        is_live = bool(number % 2)
        found_before = rig.cluster.quarantines(node)
        if is_live:
            place = flip_in_closed_segment(rig.cluster.data(node), rig.rng)
        else:
            async with rig.cluster.held():
                await rig.cluster.kill(node)
                place = flip_in_closed_segment(rig.cluster.data(node), rig.rng)
        trial = {"rotten": node, "live": is_live, "place": place}
        if is_live:
            # Whoever reads must not see it, even before it is found: let the rotten node answer.
            trial["led"] = await _make_lead(rig, node)
            await rig.rest()
            findings = await read_back(rig.load)
            if not findings.is_clean:
                rig.fail(f"served by the rotten node: {findings.witnesses[:3]}")
            rig.go_on()
        if not await _found_and_rebuilt(rig, node, trial, found_before):
            return
    for name in ("found_s", "rebuilt_s"):
        rig.figures[name] = summary([trial[name] for trial in rig.trials])


async def rot_last(rig: Rig) -> None:
    """The last acknowledged entry rots on one of the two nodes that have it, the third lags, and the leader is silent."""
    for number in range(rig.asked.trials):
        await rig.warm_up()
        leader = await rig.cluster.leader()
        node, lagging = rig.rng.sample(await rig.cluster.followers(), 2)
        rig.cluster.signal(lagging, signal.SIGSTOP)
        await rig.accepted_again()
        # Consumers go on in every other trial: what they lease and ack while all this happens must end well, too.
        await (rig.load.rest() if number % 2 else rig.rest())
        acked = rig.load.acked
        status = await rig.cluster.status(node)
        async with rig.cluster.held():
            await rig.cluster.kill(node)
            flip_in_last_entry(rig.cluster.data(node), status, rig.rng)
            rig.cluster.signal(leader, signal.SIGSTOP)
        rig.cluster.signal(lagging, signal.SIGCONT)
        served, roles = await _left_alone(rig, node, lagging)
        rig.cluster.signal(leader, signal.SIGCONT)
        if served:
            rig.fail(f"{served} served without the last acknowledged entry {status['last_index']}")
        if roles <= {"leader", "follower"}:
            rig.fail(f"{node} did not find the damage at its start: it was {sorted(roles)}")
        trial = {"rotten": node, "lagging": lagging, "leader": leader, "acked": acked, "roles": sorted(roles)}
        rig.go_on()
        if not await _rebuilt(rig, node, trial, asyncio.get_running_loop().time()):
            return


def flip_in_closed_segment(directory: Path, rng: random.Random) -> str:
    """Flip one bit of a segment that is no longer written; where."""
    segments = sorted((directory / "commitlog").glob("0*"))
    # The last one is being written, and the one before it may have been closed a moment ago.
    path = rng.choice(segments[:-2] or segments[:1])
    position = rng.randrange(int(path.stat().st_size * 0.9))
    flip(path, position, rng)
    return f"{path.name} + {position}"


def flip_in_last_entry(directory: Path, status: Status, rng: random.Random) -> None:
    """Flip one bit of the last byte that *status* counts as log."""
    segments = sorted((directory / "commitlog").glob("0*"))
    end = int(segments[0].name) + status["log_size_bytes"]
    path = max(path for path in segments if int(path.name) < end)
    flip(path, end - int(path.name) - 1 - rng.randrange(8), rng)


def flip(path: Path, position: int, rng: random.Random) -> None:
    """One bit, wherever the file is open."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


async def _fill(rig: Rig, size_bytes: int) -> None:
    rig.go_on()

    async def is_full() -> bool:
        sizes = [int(status.get("log_size_bytes", 0)) for status in (await rig.cluster.statuses()).values()]
        return max(sizes) >= size_bytes

    await rig.cluster.poll(is_full, within_s=300, what=f"{size_bytes >> 20} MiB of log")
    rig.say(f"filled {size_bytes >> 20} MiB with {rig.load.acked} messages")


async def _rate(rig: Rig, seconds: float) -> float:
    before, began_s = rig.load.acked, asyncio.get_running_loop().time()
    await pause(seconds)
    return (rig.load.acked - before) / (asyncio.get_running_loop().time() - began_s)


async def _back(rig: Rig, node: str, *, within_s: float) -> None:
    """Until *node* takes part again and has what the leader had committed."""

    async def is_equal() -> bool:
        if rig.cluster.state(node) == "failed":
            raise Stuck(f"{node} ended for good; see its log")
        with contextlib.suppress(Stuck):
            await rig.cluster.equal(within_s=1.0, lag=True)
            return True
        return False

    await rig.cluster.poll(is_equal, within_s=within_s, what=f"{node} is equal again")


async def _found_and_rebuilt(rig: Rig, node: str, trial: dict[str, object], found_before: int) -> bool:
    """*found_before*: how often *node* had been quarantined before its damage; a copy may be over before anybody asks what it is."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    def is_found() -> bool:
        return rig.cluster.quarantines(node) > found_before

    try:
        await rig.cluster.until(is_found, within_s=FOUND_WITHIN_S, what=f"the damage of {node} is found")
    except Stuck as stuck:
        rig.fail(str(stuck))
        return False
    trial["found_s"] = round(loop.time() - began_s, 2)
    return await _rebuilt(rig, node, trial, began_s)


async def _rebuilt(rig: Rig, node: str, trial: dict[str, object], began_s: float) -> bool:
    try:
        await _back(rig, node, within_s=REBUILT_WITHIN_S)
    except Stuck as stuck:
        rig.fail(f"not rebuilt: {stuck}")
        return False
    trial["rebuilt_s"] = round(asyncio.get_running_loop().time() - began_s, 2)
    rig.note(trial)
    await rig.accepted_again()
    return True


async def _make_lead(rig: Rig, node: str) -> bool:
    """Kill leaders until *node* leads, or is found out; whether it leads."""
    for _ in range(LEAD_ATTEMPTS):
        leader = await rig.cluster.leader()
        role = (await rig.cluster.status(node)).get("role")
        if leader == node or role not in {"leader", "follower"}:
            return leader == node
        await rig.cluster.kill(leader)
        with contextlib.suppress(Stuck):
            await rig.cluster.equal(within_s=15, lag=True)
    return False


async def _left_alone(rig: Rig, node: str, other: str) -> tuple[str, set[str]]:
    """Which of the two served within a while ("" for none), and the roles in which *node* was seen."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ALONE_S
    served, roles = "", set()
    while loop.time() < until:
        for name in (node, other):
            status = await rig.cluster.status(name)
            served = served or (name if status.get("serving") else "")
            if name == node and status:
                roles.add(str(status["role"]))
        await pause(0.05)
    return served, roles
