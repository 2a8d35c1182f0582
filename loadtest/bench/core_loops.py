"""How long the leader's core loop did not come back to its sockets while something was measured, as its own gauge says."""

import time
from typing import Any

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.own_mesh import OwnMesh

# The gauge tells the longest step of so many seconds; the shorter span that holds the window is taken.
_SPANS_S = (10, 60)
STALL_MS = 20


class CoreLoop:
    """A window over the gauge of whoever leads at its end. Begins when it is made; at most 60 s of it are told."""

    def __init__(self, mesh: OwnMesh) -> None:
        self._mesh, self._began_s = mesh, time.monotonic()
        self._before = {said["node"]: _stalls(said) for said in mesh.broker_statuses()}

    def since(self) -> dict[str, Any]:
        """For a figure's line: the longest step and the most CPU that one of 5 ms and more used, in ms, and how many took above STALL_MS."""
        statuses = self._mesh.broker_statuses()
        leader = next((said for said in statuses if said["serving"]), None)
        if leader is None:
            raise BenchFailed("no broker leads at the end of the figure")
        window_s = time.monotonic() - self._began_s
        span_s = next((span_s for span_s in _SPANS_S if window_s <= span_s), _SPANS_S[-1])
        said = leader["core_loop"]
        before, now = self._before.get(leader["node"], 0), _stalls(leader)
        return {
            "longest_step_ms": said[f"longest_{span_s}s_ms"],
            "longest_step_cpu_ms": said[f"longest_cpu_{span_s}s_ms"],
            # Fewer than before: it was started anew.
            "stalls": now - before if now >= before else now,
        }


def _stalls(said: dict[str, Any]) -> int:
    steps: dict[str, int] = said["core_loop"]["steps_by_ms"]
    return sum(count for bound, count in steps.items() if float(bound) > STALL_MS)
