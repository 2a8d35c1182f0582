"""Work that runs as long as its owner.

`OURS` holds this process's failures for /readyz and /metrics. Law: no such work ends unseen. An
asyncio task that ends with an exception reports it only when it is collected, and its work stops.
Here an exception is logged with its trace and counted, and the work is restarted after a pause;
meanwhile the process is not ready. Work that cannot be restarted does not belong here: it ends the
process. Any thread may read; each task belongs to its loop.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

log = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

# A passing cause is over by then; a lasting one costs two log lines a minute.
PAUSE_MIN_S, PAUSE_MAX_S = 1.0, 30.0
# After running this long, the next failure counts as a new one.
SETTLED_S = 60.0


@dataclass(slots=True)
class Failure:
    """Failures of the work of one name. *down*: the number of its tasks that wait for a restart."""

    count: int = 0
    error: str = ""
    down: int = 0


class KeptTasks:
    """The kept tasks of one process. Owner of the counts. *sleep*, *monotonic*: seconds."""

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep, self._monotonic = sleep, monotonic
        # By the names of the work, which are fixed in the code: a few.
        self._failures: dict[str, Failure] = {}

    def keep(self, name: str, work: Work) -> asyncio.Task[None]:
        """Run *work* in a task until it returns or is cancelled. Failures count under *name*."""
        return asyncio.get_running_loop().create_task(self._keep(name, work), name=name)

    def failures(self) -> dict[str, Failure]:
        """By name, the failures since the start of the process."""
        return dict(self._failures)

    def down(self) -> dict[str, str]:
        """By name, the error of work that is not running now."""
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
                log.exception("a task failed and is restarted", extra={"task": name, "failures": failure.count})
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
