"""Starts the producers of bank A, and starts them again when they have crashed as they were told. Owner of their processes."""

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.chaos.cluster import Stuck
from tests.chaos.transfer.bank_a import BankA
from tests.chaos.transfer.errand import Errand
from tests.chaos.transfer.orders import CrashStage, Order, crashes_of, plan_crash, share_of

PRODUCERS = 2
_MODULE = "tests.chaos.transfer.paying"
_LOG_LINES = 10


class Producers:
    """The producer processes of one run. *errand* says what all of them have in common."""

    __slots__ = ("_bank", "_errand", "_log", "_orders", "crashes")

    def __init__(self, errand: Errand, orders: Mapping[int, Order], bank: BankA, log: Path) -> None:
        self._errand, self._orders, self._bank, self._log = errand, orders, bank, log
        # How often they have crashed, by where.
        self.crashes: Counter[CrashStage] = Counter()

    async def run(self, *, with_crashes: bool) -> None:
        """Until every transfer is settled; Stuck when a producer ends otherwise than it was told."""
        async with asyncio.TaskGroup() as shares:
            for share in range(PRODUCERS):
                shares.create_task(self._run(share, with_crashes=with_crashes))

    async def _run(self, share: int, *, with_crashes: bool) -> None:
        own = {order.transfer for order in share_of(self._orders, share, PRODUCERS)}
        rng = random.Random(f"{self._errand.seed}/{share}")
        crashes_left = crashes_of(len(own)) if with_crashes else 0
        while left := len(own - await asyncio.to_thread(self._bank.settled)):
            crash = plan_crash(rng, left, crashes_left)
            life = replace(self._errand, share=share, shares=PRODUCERS, crash=crash)
            code = await run_to_its_end(await life.start(_MODULE, self._log))
            if code == -signal.SIGKILL and crash:
                self.crashes[crash.stage] += 1
                crashes_left -= 1
            elif code:
                raise process_failed("A producer", code, self._log)


async def run_to_its_end(process: asyncio.subprocess.Process) -> int:
    """The exit code; when this is cancelled, the process is killed."""
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def process_failed(who: str, code: int, log: Path) -> Stuck:
    """What to say of a process that ended, with the end of what it printed."""
    tail = log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:]
    return Stuck("\n".join([f"{who} of the transfers failed with exit code {code}:", *tail]))
