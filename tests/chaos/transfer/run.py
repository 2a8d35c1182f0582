"""Transfers between two banks while producers are killed: from two new banks to their books. Owner of the banks and of all processes of a run."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from tern_client import Admin, RetryPolicy
from tern_wire.errors import TopicConflict
from tests.chaos.transfer.bank_a import BankA
from tests.chaos.transfer.bank_b import BankB
from tests.chaos.transfer.books import read_books
from tests.chaos.transfer.checks import answered_checks
from tests.chaos.transfer.crediting import INVISIBLE_MS
from tests.chaos.transfer.errand import Errand
from tests.chaos.transfer.orders import CrashStage, plan_orders
from tests.chaos.transfer.producers import Producers, process_failed, run_to_its_end
from tests.chaos.transfer.proof import Books

TOPIC, QUEUES = "transfers", 8
# When nothing has moved for so long although something is missing, the proof says what.
PATIENCE_S = 60.0
_LOOK_INTERVAL_S = 0.2
POLICY = RetryPolicy(deadline_ms=60_000, max_delay_ms=200)
Harm = Callable[[], Awaitable[None]]


class Transfers:
    """One run of *transfers* transfers in *folder*, which it makes. *seed* decides transfers and crashes."""

    def __init__(self, folder: Path, endpoints: Sequence[str], *, transfers: int, seed: int, by_callback: bool) -> None:
        folder.mkdir(parents=True)
        self._folder, self._by_callback = folder, by_callback
        run = secrets.token_hex(6)
        self._group = f"bank-b-{run}"
        self._books_a, self._books_b = folder / "bank-a.db", folder / "bank-b.db"
        self._bank_a, self._bank_b = BankA(self._books_a), BankB(self._books_b)
        self._bank_a.make()
        self._bank_b.make()
        self._errand = Errand(
            endpoints=tuple(endpoints),
            topic=TOPIC,
            group=f"bank-a-{run}",
            bank=str(self._books_a),
            seed=seed,
            transfers=transfers,
        )
        orders = plan_orders(seed, transfers)
        self._producers = Producers(self._errand, orders, self._bank_a, folder / "producers.log")
        # Of the producer group, as its broker groups count; known when the run is over.
        self.stats: Mapping[str, int] = {}

    @property
    def crashes(self) -> Counter[CrashStage]:
        """How often producers were killed, by where."""
        return self._producers.crashes

    @property
    def settled(self) -> int:
        """Transfers that bank A has debited or refused."""
        return sum(self._bank_a.counts())

    async def move(self, harm: Harm) -> Books:
        """Move all the money while *harm* is done; the books when nothing moves any more."""
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(self._errand.endpoints, policy=POLICY))
            starting = await self._prepare(admin)
            checks = answered_checks(
                admin, self._errand.endpoints, self._errand.group, self._books_a, by_callback=self._by_callback
            )
            await stack.enter_async_context(checks)
            async with self._consuming():
                async with asyncio.TaskGroup() as work:
                    work.create_task(self._producers.run(with_crashes=True))
                    await harm()
                await self._until_nothing_moves(admin, starting)
            return await self._read(admin, starting)

    async def _prepare(self, admin: Admin) -> dict[str, int]:
        """The topic, and the group, which begins where the topic ends now: offsets by queue."""
        with suppress(TopicConflict):
            await admin.create_topic(TOPIC, QUEUES, type="TRANSACTION")
        starting = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
        await admin.create_group(self._group, invisible_ms=INVISIBLE_MS)
        await admin.commit_offsets(self._group, TOPIC, starting)
        return starting

    @asynccontextmanager
    async def _consuming(self) -> AsyncIterator[None]:
        """Bank B's process runs inside; Stuck when it ends before, or badly."""
        log = self._folder / "consumer.log"
        errand = replace(self._errand, group=self._group, bank=str(self._books_b))
        process = await errand.start("tests.chaos.transfer.crediting", log)
        watch = asyncio.create_task(run_to_its_end(process))
        try:
            yield
            if not watch.done():
                process.terminate()
            if code := await watch:
                raise process_failed("The consumer", code, log)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    async def _until_nothing_moves(self, admin: Admin, starting: Mapping[str, int]) -> None:
        """Until every transaction has ended and every credit is acked, or nothing has moved for PATIENCE_S."""
        seen: tuple[int, ...] = ()
        moved_s = time.monotonic()
        while time.monotonic() - moved_s < PATIENCE_S:
            stats = (await admin.producer_group(self._errand.group))["stats"]
            acked = _beyond(await admin.group_offsets(self._group, TOPIC), starting)
            credited, (debited, _) = self._bank_b.count(), self._bank_a.counts()
            if stats["open"] == 0 and credited == acked == debited:
                return
            if (now := (stats["open"], stats["checks"], credited, acked)) != seen:
                seen, moved_s = now, time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _read(self, admin: Admin, starting: Mapping[str, int]) -> Books:
        offsets = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
        self.stats = (await admin.producer_group(self._errand.group))["stats"]
        return read_books(
            self._bank_a,
            self._bank_b,
            transfers=self._errand.transfers,
            topic_messages=_beyond(offsets, starting),
            settled_messages=_beyond(await admin.group_offsets(self._group, TOPIC), starting),
            stats=self.stats,
        )


def _beyond(offsets: Mapping[str, int], starting: Mapping[str, int]) -> int:
    """How many messages lie between *starting* and *offsets*."""
    return sum(end - starting.get(queue, 0) for queue, end in offsets.items())
