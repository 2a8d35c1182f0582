"""An event loop on a machine that is busy: what is ready comes late and in another order, and once in a while the process stands still.

Every run of it is one that an ordinary loop may have too, so a test that fails on it fails on a slow machine, some day. Three things
differ from one that has the machine to itself:

- of the sockets that are ready, some are told in a later round (a kernel tells of them when it likes);
- between two rounds time passes, up to 30 ms, and no more than 3 s in all (another process had the core);
- once in the first 100 rounds of a loop it stands still for 1.2 s (the machine was suspended, or wrote to a slow disk). Nobody sleeps
  for it: the loop's clock goes on by so much, which is what callbacks and timers see of it.

`make shake` runs the unit tests on it: `pytest -p tests.support.shaken_loop`, with TERNMQ_SHAKE_SEED. The seed and the test's name
choose what happens. uvloop, threads and other processes are not shaken.
"""

import asyncio
import os
import random
import selectors
from collections.abc import Mapping
from typing import Any

# A longer one than the proxy's wait for a leader (LEADER_WAIT_MS) and a dial (DIAL_TIMEOUT_S), which tests must not depend on.
STANDSTILL_S = 1.2
STANDSTILL_ROUNDS = 100
LATE_S_MAX, LATE_SUM_S_MAX = 0.03, 3.0
# How often a ready socket is told of later, and how often time passes between two rounds.
WITHHELD_SHARE = 0.25
LATE_SHARE = 0.05


class _LateSelector(selectors.BaseSelector):
    """Tells of some ready descriptors one or more rounds later. They stay ready, since selectors look at levels, not edges."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._inner = rng, selectors.DefaultSelector()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(timeout)
        # One alone is told of: a loop that is told of nothing would turn for nothing.
        kept = [one for one in ready if self._rng.random() >= WITHHELD_SHARE] or ready
        self._rng.shuffle(kept)
        return kept

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()


class ShakenLoop(asyncio.SelectorEventLoop):
    """As asyncio's own on a busy machine. *rng* chooses what happens when."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._passed_s, self._left_s = 0.0, LATE_SUM_S_MAX
        self._left = rng.randrange(STANDSTILL_ROUNDS)
        super().__init__(_LateSelector(rng))

    def time(self) -> float:
        return super().time() + self._passed_s

    def _run_once(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._passed_s += STANDSTILL_S
        elif self._left_s > 0 and self._rng.random() < LATE_SHARE:
            late_s = self._rng.uniform(0, LATE_S_MAX)
            self._left_s -= late_s
            self._passed_s += late_s
        super()._run_once()  # type: ignore[misc]  # asyncio's own step, which its types do not name


class ShakenPolicy(asyncio.DefaultEventLoopPolicy):
    """Every loop that is made without naming one is a shaken one."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        return ShakenLoop(random.Random(f"{SEED} {test}"))


SEED = os.environ.get("TERNMQ_SHAKE_SEED", "1")


def pytest_configure() -> None:
    """Pytest's hook: from here on every loop is shaken."""
    asyncio.set_event_loop_policy(ShakenPolicy())


def pytest_report_header() -> str:
    """Pytest's hook: what replays a failure."""
    return f"shaken loops: TERNMQ_SHAKE_SEED={SEED}"
