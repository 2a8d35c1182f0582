"""One run of the transfers, from two new banks to the proof. Owner of the order of things, of the consumer's process and the result file."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace

from tern_cli.demo.leader import broker_processes
from tern_cli.demo.transfer.bank_a import BankA
from tern_cli.demo.transfer.bank_b import BankB
from tern_cli.demo.transfer.bars import TransferBars
from tern_cli.demo.transfer.books import read_books
from tern_cli.demo.transfer.checks import answered_checks
from tern_cli.demo.transfer.crediting import INVISIBLE_MS
from tern_cli.demo.transfer.errand import Errand
from tern_cli.demo.transfer.faults import Faults, checker_process
from tern_cli.demo.transfer.orders import plan_orders
from tern_cli.demo.transfer.producers import Producers, process_failed, run_to_its_end
from tern_cli.demo.transfer.proof import Books, differences
from tern_cli.demo.transfer.report import TransferReport, result_document, show_report
from tern_cli.demo.transfer.settings import TransferSettings
from tern_cli.failures import CommandFailed
from tern_cli.mesh.files import MeshFiles
from tern_client import Admin, RetryPolicy
from tern_wire.errors import TopicConflict

TOPIC, QUEUES = "transfers", 8
# Nothing has moved for so long although something is missing: the proof says what.
PATIENCE_S = 60.0
_LOOK_INTERVAL_S = 0.2
POLICY = RetryPolicy(deadline_ms=60_000, max_delay_ms=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What a run has done. *stats*: of the producer group; *settle_s*: until bank A had settled the last transfer."""

    books: Books
    stats: Mapping[str, int]
    crashes: Mapping[str, int]
    killed: Mapping[str, str]
    settle_s: float


class TransferRun:
    """One run: its names, its banks and its processes."""

    def __init__(self, settings: TransferSettings, bars: TransferBars) -> None:
        self._settings, self._bars = settings, bars
        run = secrets.token_hex(6)
        files = MeshFiles(settings.data_dir)
        self.folder = files.root / "demo" / f"transfer-{run}"
        self.folder.mkdir(mode=0o700, parents=True)
        self.producer_group, self.group = f"bank-a-{run}", f"bank-b-{run}"
        self._books_a, self._books_b = self.folder / "bank-a.db", self.folder / "bank-b.db"
        self._bank_a, self._bank_b = BankA(self._books_a), BankB(self._books_b)
        self._bank_a.make()
        self._bank_b.make()
        self._errand = Errand(
            endpoints=tuple(settings.endpoints),
            topic=TOPIC,
            group=self.producer_group,
            bank=str(self._books_a),
            seed=settings.seed,
            transfers=settings.transfers,
        )
        orders = plan_orders(settings.seed, settings.transfers)
        self._producers = Producers(self._errand, orders, self._bank_a, self.folder / "producers.log")
        self._faults = Faults(files, bars.say)

    async def move(self) -> Moved:
        """Move all the money, and read the books when nothing moves any more."""
        endpoints = self._errand.endpoints
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Admin(endpoints, policy=POLICY))
            starting = await self._prepare(admin)
            asked_by = self._settings.asked_by
            answered = answered_checks(admin, endpoints, self.producer_group, self._books_a, asked_by)
            await stack.enter_async_context(answered)
            began_s = time.monotonic()
            async with self._consuming(), self._followed():
                await self._produce()
                settle_s = time.monotonic() - began_s
                await self._until_nothing_moves(admin, starting)
            await self._faults.until_healed()
            return await self._read(admin, starting, settle_s)

    async def _prepare(self, admin: Admin) -> dict[str, int]:
        """The topic, and the group, which begins where the topic ends now: offsets by queue."""
        # One that has grown since is as good.
        with suppress(TopicConflict):
            await admin.create_topic(TOPIC, QUEUES, type="TRANSACTION")
        starting = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
        await admin.create_group(self.group, invisible_ms=INVISIBLE_MS)
        await admin.commit_offsets(self.group, TOPIC, starting)
        return starting

    async def _produce(self) -> None:
        settings = self._settings
        async with asyncio.TaskGroup() as work:
            work.create_task(self._producers.run(with_crashes=settings.crashes_producers))
            if settings.kills_leader:
                work.create_task(self._faults.kill_leader())
            if settings.kills_checker:
                work.create_task(self._faults.kill_checker())

    @asynccontextmanager
    async def _consuming(self) -> AsyncIterator[None]:
        """Bank B's process runs inside; CommandFailed when it ends before, or badly."""
        log = self.folder / "consumer.log"
        errand = replace(self._errand, group=self.group, bank=str(self._books_b))
        process = await errand.start("tern_cli.demo.transfer.crediting", log)
        watch = asyncio.create_task(run_to_its_end(process))
        try:
            yield
            if not watch.done():
                process.terminate()
            if (code := await watch) or process.returncode is None:
                raise process_failed("The consumer", code, log)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    @asynccontextmanager
    async def _followed(self) -> AsyncIterator[None]:
        """Progress is shown, and faults happen when it is time, inside."""

        async def follow() -> None:
            while True:
                self._look()
                await asyncio.sleep(_LOOK_INTERVAL_S)

        following = asyncio.create_task(follow())
        try:
            yield
        finally:
            following.cancel()
            self._look()

    def _look(self) -> None:
        debited, refused = self._bank_a.counts()
        self._bars.update(debited, refused, self._bank_b.count())
        may_be_checked = bool(self._producers.crashes) or not self._settings.crashes_producers
        self._faults.note((debited + refused) / self._settings.transfers, may_be_checked=may_be_checked)

    async def _until_nothing_moves(self, admin: Admin, starting: Mapping[str, int]) -> None:
        """Until every transaction has ended and every credit is acked, or nothing has moved for PATIENCE_S."""
        seen: tuple[int, ...] = ()
        moved_s = time.monotonic()
        while time.monotonic() - moved_s < PATIENCE_S:
            stats = (await admin.producer_group(self.producer_group))["stats"]
            settled = _beyond(await admin.group_offsets(self.group, TOPIC), starting)
            credited, (debited, _) = self._bank_b.count(), self._bank_a.counts()
            if stats["open"] == 0 and credited == settled == debited:
                return
            if (now := (stats["open"], stats["checks"], credited, settled)) != seen:
                seen, moved_s = now, time.monotonic()
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _read(self, admin: Admin, starting: Mapping[str, int], settle_s: float) -> Moved:
        offsets = {queue.queue: queue.max_offset for queue in await admin.offsets(TOPIC)}
        stats = (await admin.producer_group(self.producer_group))["stats"]
        books = read_books(
            self._bank_a,
            self._bank_b,
            transfers=self._settings.transfers,
            topic_messages=_beyond(offsets, starting),
            settled_messages=_beyond(await admin.group_offsets(self.group, TOPIC), starting),
            stats=stats,
        )
        crashes = {str(stage): count for stage, count in self._producers.crashes.items()}
        return Moved(books=books, stats=stats, crashes=crashes, killed=self._faults.killed, settle_s=settle_s)


def run_transfers(settings: TransferSettings) -> None:
    """Run it, write transfer.json, show the report; CommandFailed when the proof fails."""
    began_s = time.monotonic()
    mesh = MeshFiles(settings.data_dir).read_mesh() if settings.kills_leader or settings.kills_checker else {}
    # Refuse now what could not be killed later.
    if settings.kills_leader:
        broker_processes(mesh)
    if settings.kills_checker:
        checker_process(mesh)
    bars = TransferBars(settings.transfers, shown=not settings.as_json)
    run = TransferRun(settings, bars)
    with bars.running():
        try:
            moved = asyncio.run(run.move())
        except ExceptionGroup as group:
            raise _first_of(group) from group
    report = TransferReport(
        books=moved.books,
        stats=moved.stats,
        seed=settings.seed,
        crashes=moved.crashes,
        killed=moved.killed,
        settle_s=moved.settle_s,
        seconds=time.monotonic() - began_s,
        asked_by=str(settings.asked_by),
        producer_group=run.producer_group,
        group=run.group,
        folder=run.folder,
        differences=(found := differences(moved.books)),
    )
    result = result_document(report)
    (run.folder / "transfer.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    show_report(report, result, as_json=settings.as_json)
    if found:
        detail = f"Seed {settings.seed}; the banks are in {run.folder}. What is wrong:"
        raise CommandFailed("The money does not add up", detail, lines=found)


def _beyond(offsets: Mapping[str, int], starting: Mapping[str, int]) -> int:
    """How many messages lie between *starting* and *offsets*."""
    return sum(end - starting.get(queue, 0) for queue, end in offsets.items())


def _first_of(group: ExceptionGroup[Exception]) -> Exception:
    """What ended the run: when one task fails, the others are only cancelled."""
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, ExceptionGroup) else first
