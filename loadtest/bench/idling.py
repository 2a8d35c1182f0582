"""The figures of a mesh that nobody uses: how long it took to start, what it holds in memory and burns of one core."""

import asyncio

from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.process_cpu import cpu_seconds, memory_mb

IDLE_S = 5.0


def startup_figure(mesh: OwnMesh) -> Figure:
    """startup_s: from calling `ternmq up` in an empty folder to the first message of ours that was accepted."""
    return Figure(bench="mesh", figure="startup_s", value=mesh.startup_s, unit="s")


async def bench_idle(mesh: OwnMesh) -> Figure:
    """rss_idle_mb: all processes of the mesh, its supervisor too, after 5 s of rest; and their CPU during these."""
    pids = {name: pid for name, pid in mesh.pids.items() if name != "load"}
    cpu, began_s = cpu_seconds(pids), asyncio.get_running_loop().time()
    await asyncio.sleep(IDLE_S)
    took_s, cpu_after = asyncio.get_running_loop().time() - began_s, cpu_seconds(pids)
    rss_mb, pss_mb = memory_mb(pids)
    percent = {name: round((cpu_after[name] - cpu[name]) / took_s * 100, 2) for name in pids}
    return Figure(
        bench="mesh",
        figure="rss_idle_mb",
        value=rss_mb,
        unit="MB",
        more={"pss_mb": round(pss_mb, 1), "cpu_percent": round(sum(percent.values()), 2), "cpu_percent_each": percent},
    )
