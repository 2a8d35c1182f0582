"""Work that goes on for as long as its owner lives. `OURS` has what failed in this process, and /readyz and /metrics tell it.

Law: no such work ends unseen. A task of asyncio that ends with an exception tells nobody until it is collected, and what it did is done no
more. Here an exception is logged with its trace and counted, and the work begins anew after a pause; meanwhile the process is not ready.
Work that cannot begin anew has no business here: it ends the process. Any thread may ask; each task belongs to its loop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

# A cause that passes is over by then; one that stays costs two lines of the log a minute.
PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 30.0
# Work that went on for so long had begun well: its next failure is a new one.
SETTLED_S = 60.0


@dataclass(slots=True)
class Failure:
    """What became of the work of one name. *down*: how many of its tasks wait to begin anew."""

    count: int = 0
    error: str = ""
    down: int = 0


class KeptTasks:
    """Of one process. Owner of the counts. *sleep*, *monotonic*: seconds."""

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._monotonic = sleep, monotonic
        # By the names of the work, which stand in the code: a few.
        self._failures: dict[str, Failure] = {}

    def keep(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run *work* in a task of this loop until it returns or the task is cancelled. Failures count under *name*."""
        return asyncio.get_running_loop().create_task(self._keep(name, work), name=name)

    def failures(self) -> dict[str, Failure]:
        """By name, what has failed since the process began."""
        return dict(self._failures)

    def down(self) -> dict[str, str]:
        """By name, the error of work that does not go on now."""
        return {name: failure.error for name, failure in self.failures().items() if failure.down}

    async def _keep(self, name: str, work: Work) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            began_s = self._monotonic()
            try:
                await work()
                return
            except Exception as error:
                failure = self._failures.setdefault(name, Failure())
                failure.count, failure.error = failure.count + 1, f"{type(error).__name__}: {error}"
                log.exception("work failed and begins anew", extra={"task": name, "failures": failure.count})
            if self._monotonic() - began_s >= SETTLED_S:
                pause_s = PAUSE_MIN_S
            failure.down += 1
            try:
                await self._sleep(pause_s)
            finally:
                failure.down -= 1
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


OURS = KeptTasks()
keep_running = OURS.keep
