"""Stalls of the leader's core loop during a measurement, from the gauge of the broker.

A stall is the time between two visits of the loop to its sockets.
"""

import time
from typing import Any

from loadtest.bench.closed_loop import BenchFailed
from loadtest.bench.own_mesh import OwnMesh

# The gauge has the longest step of so many seconds; the shorter span that covers the window is
# used.
_SPANS_S = (10, 60)
STALL_MS = 20


class CoreLoop:
    """A window over the gauge of the broker that leads at its end.

    It begins when the object is made, and covers at most 60 s.
    """

    def __init__(self, mesh: OwnMesh) -> None:
        self._mesh, self._began_s = mesh, time.monotonic()
        self._before = {said["node"]: _stalls(said) for said in mesh.broker_statuses()}

    def since(self) -> dict[str, Any]:
        """Return fields for a figure's line, times in ms.

        The longest step, and the most CPU of a step of 5 ms or more. Also the number of steps above
        STALL_MS.
        """
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
            # Fewer than before: the broker was restarted.
            "stalls": now - before if now >= before else now,
        }


def _stalls(said: dict[str, Any]) -> int:
    steps: dict[str, int] = said["core_loop"]["steps_by_ms"]
    return sum(count for bound, count in steps.items() if float(bound) > STALL_MS)
