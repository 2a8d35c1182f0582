"""The figures of an idle mesh: time of its start, memory, and CPU of one core."""

import asyncio

from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import OwnMesh
from loadtest.bench.process_cpu import cpu_seconds, memory_mb

# What a start leaves behind is over then: first saves, memory that is given back.
REST_S = 5.0
# Long beside the kernel's clock tick of 10 ms.
IDLE_S = 10.0


def startup_figure(mesh: OwnMesh) -> Figure:
    """Return startup_s: from `ternmq up` in an empty folder to our first accepted message."""
    return Figure(bench="mesh", figure="startup_s", value=mesh.startup_s, unit="s")


async def bench_idle(mesh: OwnMesh) -> Figure:
    """Return rss_idle_mb: all processes of the mesh with its supervisor, after 5 s of rest.

    Also their CPU in the 10 s after that.
    """
    await asyncio.sleep(REST_S)
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
