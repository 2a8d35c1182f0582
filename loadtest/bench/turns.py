"""Two loads in turns, so that other work of the machine slows both; and their figure."""

import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from loadtest.bench.closed_loop import Step, run_closed_loop
from loadtest.bench.delivery.sizes import Sizes
from loadtest.bench.figures import Figure
from loadtest.bench.own_mesh import OwnMesh

Work = Callable[[], Awaitable[float]]


class Load:
    """A closed loop that continues from turn to turn. Owns the number of messages moved in all."""

    def __init__(self, mesh: OwnMesh, connections: int, step: Step, sizes: Sizes) -> None:
        self._mesh, self._connections, self._step, self._sizes = mesh, connections, step, sizes
        self.total = 0

    async def turn(self) -> float:
        """Run one turn over new connections; return messages a second."""
        sizes = self._sizes
        run = await run_closed_loop(
            *(self._mesh.port, self._connections, self._step),
            seconds=sizes.turn_s,
            pids=self._mesh.pids,
            warm_up_s=sizes.turn_warm_up_s,
        )
        self.total += run.total
        return run.per_s


async def in_turns(rounds: int, *works: Work) -> list[list[float]]:
    """Return the results of each of *works*, one list each, from *rounds* turns A B A B.

    One turn before that does not count.
    """
    found: list[list[float]] = [[] for _ in works]
    for turn in range(rounds + 1):
        for number, work in enumerate(works):
            value = await work()
            if turn:
                found[number].append(value)
    return found


def compared(figure: str, ours: Sequence[float], plain: Sequence[float], **more: Any) -> Figure:
    """Return the figure of *ours*: the median of messages a second.

    `ceiling` is the median of *plain*, `pairwise_ratio` the median of the rounds' ratios.
    """
    pairs = [mine / other for mine, other in zip(ours, plain, strict=True)]
    told = {
        "pairwise_ratio": round(statistics.median(pairs), 3),
        "best_ratio": round(max(ours) / max(plain), 3),
        "rounds": len(ours),
        **more,
    }
    value, ceiling = statistics.median(ours), statistics.median(plain)
    return Figure(bench="delivery", figure=figure, value=value, unit="msg/s", ceiling=ceiling, more=told)
