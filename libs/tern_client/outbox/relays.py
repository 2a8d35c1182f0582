"""The relay: it moves rows of an outbox to the server, in order, each once in effect.

    row waits -> lease and rows claimed -> sent -> deleted (or kept)
                    |                       |-> refused: set aside with the reason
                    |                       '-> fails for now: waits, its topic pauses
                    '-> first attempt long ago: looked for first; there: deleted, not there: sent

One relay of an outbox sends at a time, the one with the lease. The others look on, and one of them
takes over when the lease stands still. Rows keep their idempotency keys whoever sends them.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal, Self, TypeVar

from tern_client.outbox import operations
from tern_client.outbox.batches import ClaimLimits, TopicPauses
from tern_client.outbox.databases import Work
from tern_client.outbox.delivery import Delivered, RelayClient, deliver, search
from tern_client.outbox.lease import LeaseWatch
from tern_client.outbox.listeners import AnyOutbox
from tern_client.outbox.operations import Claim, Settlement
from tern_client.outbox.rows import Span, span_ms
from tern_client.outbox.statements import Execute
from tern_client.transport.clock import epoch_ms, now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport

log = logging.getLogger("tern_client.outbox")
# Rows of one batch, and their bytes: a request or four, and little memory.
BATCH_ROWS_MAX, BATCH_SIZE_MAX_BYTES = 500, 4 * 1024 * 1024
T = TypeVar("T")
# Below that a busy machine loses its lease while it sends.
LEASE_MIN_MS = 100
OnFailure = Literal["set_aside", "hold_group"]
# Called at `claimed`, `sent` and `settled` of each batch.
Watch = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayCounts:
    """What a relay has done since it was made, in rows: `sent`; `failed`, set aside; `searched` for
    at the server before a repeat, and `found` there. `postponed`: sends of a topic that failed for
    now. `database_errors`: transactions of its loop that failed.

    Example:

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client.outbox import BlockingRelay, Outbox, RelayCounts

        engine = create_engine("sqlite:///shop.db")
        outbox = Outbox(engine)
        outbox.create()
        with Session(engine) as session, session.begin():
            outbox.add(session, "orders", b"order 1")
        relay = BlockingRelay(outbox, "http://127.0.0.1:8080")
        counts: RelayCounts = relay.drain()
        print(counts.sent, counts.failed)  # -> 1 0
    """

    sent: int = 0
    failed: int = 0
    searched: int = 0
    found: int = 0
    postponed: int = 0
    database_errors: int = 0


class _DatabaseFailed(Exception):
    """A transaction failed. Its cause is the driver's error; drivers share no class of errors."""


class Relay:
    """Sends the rows of *outbox* to the server: in the order of each message group, and once in
    effect. Any number of relays may run; one sends at a time.

    - *endpoints*, *namespace*, *key_file*, *ca_file*: as of a Producer. The principal needs the
      right to send to the topics, and to read them for the search after a long outage.
    - *policy*: pauses between repeats; a send also ends within the lease.
    - *on_failure*: a row that is refused for good is set aside, and the rows behind it are sent
      (`set_aside`), or the rows of its message group wait (`hold_group`, which sends one row of
      each message group at a time).
    - *keep*: how long sent rows stay in the table; None: they are deleted at once.
    - *poll_interval*: the wait for rows of other processes. Commits of this process are seen at
      once.
    - *lease*: how long a relay that stands by watches the lease before it takes over
      (at least 100 ms). A send is given a quarter of it.
    - *batch_rows*, *batch_size_bytes*: bounds of what is in memory at a time.

    Use it as an async context manager, which runs it beside your tasks, or await `run` or `drain`.
    Errors of a row are in `outbox.failed()`; others are logged (`tern_client.outbox`), counted in
    `counts`, and tried again.

    Example:

        import asyncio

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client.outbox import Outbox, Relay

        engine = create_engine("sqlite:///shop.db")
        outbox = Outbox(engine)
        outbox.create()
        with Session(engine) as session, session.begin():
            outbox.add(session, "orders", b"order 1", message_group="customer-4")


        async def main() -> None:
            relay = Relay(outbox, "http://127.0.0.1:8080")
            counts = await relay.drain()  # or: async with relay: ...
            print(counts.sent)  # -> 1
            print(outbox.backlog().waiting)  # -> 0


        asyncio.run(main())
    """

    def __init__(
        self,
        outbox: AnyOutbox,
        endpoints: str | Sequence[str],
        *,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        on_failure: OnFailure = "set_aside",
        keep: Span | None = None,
        poll_interval: Span = "1s",
        lease: Span = "30s",
        batch_rows: int = BATCH_ROWS_MAX,
        batch_size_bytes: int = BATCH_SIZE_MAX_BYTES,
        transport: Callable[[], Transport] | None = None,
        watch: Watch | None = None,
    ) -> None:
        """*transport*, *watch*: for tests. ValueError for a value out of range."""
        if on_failure not in {"set_aside", "hold_group"}:
            raise ValueError(f"on_failure is {on_failure!r}; it is 'set_aside' or 'hold_group'")
        if not 1 <= batch_rows <= BATCH_ROWS_MAX:
            raise ValueError(f"batch_rows is {batch_rows}; it is 1 to {BATCH_ROWS_MAX}")
        self._lease_ms, self._poll_ms = span_ms(lease), span_ms(poll_interval)
        if self._lease_ms < LEASE_MIN_MS:
            raise ValueError(f"lease is {self._lease_ms} ms; it is {LEASE_MIN_MS} ms at least: a send ends within it")
        self._outbox, self._keep_ms = outbox, None if keep is None else span_ms(keep)
        self._patience = policy or RetryPolicy()
        self._client_arguments = (endpoints, namespace, key_file, ca_file, transport)
        self._limits = ClaimLimits(
            rows_max=batch_rows, size_max_bytes=batch_size_bytes, hold=on_failure == "hold_group"
        )
        self._me = secrets.token_hex(16)
        self._lease = LeaseWatch(self._me, self._lease_ms)
        self._pauses = TopicPauses(self._patience)
        self._counts = RelayCounts()
        self._watch: Watch = watch or (lambda point: None)
        self._is_stopped = False
        self._news: asyncio.Event | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def counts(self) -> RelayCounts:
        """What it has done so far."""
        return self._counts

    async def run(self) -> None:
        """Relay until `stop` or a cancellation. An error of the database in the first transaction,
        such as a missing table, is raised; later ones are logged and tried again.
        """
        async with self._opened() as client:
            await self.check()
            while not self._is_stopped:
                pause_ms = await self._step_patiently(client)
                if pause_ms and not self._is_stopped:
                    await self._wait(pause_ms)

    def stop(self) -> None:
        """End `run` behind the batch in hand. From other threads: BlockingRelay.stop."""
        self._is_stopped = True
        if self._news is not None:
            self._news.set()

    async def drain(self) -> RelayCounts:
        """Send what waits and return the counts. Rows that another relay is sending are waited for.

        Raises the server's error when nothing could be sent for the policy's deadline, and errors
        of the database at once.
        """
        async with self._opened() as client:
            await self.check()
            progress_ms, before = now_ms(), self._counts
            while True:
                try:
                    pause_ms = await self._step(client)
                except _DatabaseFailed as failed:
                    raise failed.__cause__ or failed from None
                if _ended(self._counts) > _ended(before):
                    progress_ms, before = now_ms(), self._counts
                elif (error := self._pauses.last_error()) and now_ms() - progress_ms >= self._patience.deadline_ms:
                    raise error
                if pause_ms and not await self._is_waiting():
                    return self._counts
                if pause_ms:
                    await self._wait(min(pause_ms, 200.0))

    async def check(self) -> None:
        """Read the tables once, and make the lease's row; an error of the database is raised."""
        database, statements = self._outbox.database, self._outbox.statements
        if await database.transact(lambda execute: operations.see_lease(execute, statements)) is None:
            with suppress(Exception):  # another relay has made it meanwhile; what is wrong is told below
                await database.transact(lambda execute: execute(statements.make_lease()))
        await self._is_waiting()

    async def __aenter__(self) -> Self:
        """Begin to relay in a task. An error of the database, such as a missing table, is raised
        here.
        """
        await self.check()
        self._is_stopped = False
        self._running = asyncio.get_running_loop().create_task(self.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop behind the batch in hand; an error of the task is raised."""
        self.stop()
        if self._running is not None:
            await self._running

    # One step ---------------------------------------------------------------------------------
    async def _step_patiently(self, client: RelayClient) -> float:
        try:
            return await self._step(client)
        except _DatabaseFailed as failed:
            self._count(database_errors=1)
            log.warning("the outbox cannot be read or written, and is tried again: %s", failed.__cause__)
            return max(self._poll_ms, 1_000.0)

    async def _step(self, client: RelayClient) -> float:
        """Move one batch; return the pause before the next step, 0 for none."""
        began_ms = now_ms()
        left_out = self._pauses.paused(began_ms)
        if not await self._transact(lambda execute: self._look(execute, left_out, began_ms)):
            return self._pause_ms(began_ms)
        claim = await self._transact(lambda execute: self._claim(execute, left_out, began_ms))
        if claim is None:
            return self._pause_ms(began_ms)
        self._count(failed=claim.damaged)
        done = Delivered()
        if claim.suspects:
            unsent = await search(client, claim.suspects, done)
            self._watch("searched")
            self._count(searched=len(claim.suspects), found=len(done.sent))
            await self._settle(done, unsent)
        elif claim.rows:
            self._watch("claimed")
            await deliver(client, claim.rows, lambda: now_ms() - began_ms < self._lease_ms / 2, done)
            self._watch("sent")
            await self._settle(done, ())
            self._watch("settled")
        self._note(claim, done)
        return 0.0

    async def _transact(self, work: Work[T]) -> T:
        try:
            return await self._outbox.database.transact(work)
        except Exception as error:
            raise _DatabaseFailed from error

    def _look(self, execute: Execute, left_out: Sequence[str], began_ms: float) -> bool:
        """Whether a row waits. The lease is watched in quiet times, too, so that rows of a relay
        that died meanwhile do not wait for a whole lease. Nothing is written.
        """
        if (seen := operations.see_lease(execute, self._outbox.statements)) is not None:
            self._lease.may_take(seen, began_ms)
        return operations.is_waiting(execute, self._outbox.statements, left_out, hold=self._limits.hold)

    def _claim(self, execute: Execute, left_out: Sequence[str], began_ms: float) -> Claim | None:
        statements = self._outbox.statements
        if not operations.take_lease(execute, statements, self._lease, self._me, began_ms):
            return None
        return operations.claim(execute, statements, self._limits, left_out, epoch_ms())

    async def _settle(self, done: Delivered, unsent: Sequence[int]) -> None:
        settlement = Settlement(sent=done.sent, refused=done.refused)

        def work(execute: Execute) -> None:
            operations.settle(execute, self._outbox.statements, settlement, epoch_ms(), self._keep_ms)
            operations.mark_unsent(execute, self._outbox.statements, unsent, epoch_ms())

        await self._transact(work)

    def _note(self, claim: Claim, done: Delivered) -> None:
        self._count(sent=0 if claim.suspects else len(done.sent), failed=len(done.refused), postponed=len(done.later))
        for seq, error in done.refused.items():
            log.error("a row of the outbox was refused and is set aside (number %d): %s: %s", seq, error.code, error)
        for topic, error in done.later.items():
            chance = random.random()  # noqa: S311 - timing, no secret
            if self._pauses.failed(topic, error, now_ms(), chance):
                log.warning("topic %s takes no messages of the outbox now: %s: %s", topic, error.code, error)
        for topic in {row.head.topic for row in claim.rows} - done.later.keys():
            if self._pauses.succeeded(topic):
                log.info("topic %s takes messages of the outbox again", topic)

    async def _is_waiting(self) -> bool:
        return await self._outbox.database.transact(lambda execute: self._look(execute, (), now_ms()))

    # Around it --------------------------------------------------------------------------------
    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[RelayClient]:
        """The client, and word of commits in this process; the lease is given back at the end."""
        endpoints, namespace, key_file, ca_file, transport = self._client_arguments
        # A send begins in the first half of the lease, and ends within it, its last attempt
        # included.
        policy = replace(
            self._patience,
            deadline_ms=min(self._patience.deadline_ms, self._lease_ms // 4),
            attempt_timeout_ms=min(self._patience.attempt_timeout_ms, self._lease_ms // 4),
        )
        news = self._news = asyncio.Event()
        loop = asyncio.get_running_loop()
        with self._outbox.listening(lambda: loop.call_soon_threadsafe(news.set)):
            async with RelayClient(
                endpoints,
                namespace=namespace,
                policy=policy,
                key_file=key_file,
                ca_file=ca_file,
                transport=transport() if transport else None,
            ) as client:
                try:
                    yield client
                except (Exception, asyncio.CancelledError):
                    with suppress(Exception):  # the first error is the one to tell; the lease ends by itself
                        await self._resign()
                    raise
                await self._resign()

    async def _resign(self) -> None:
        """Give the lease back, so that another relay need not wait for its end."""
        await self._outbox.database.transact(
            lambda execute: operations.free_lease(execute, self._outbox.statements, self._me)
        )

    def _pause_ms(self, since_ms: float) -> float:
        return max(1.0, min(self._poll_ms, self._pauses.next_ms(since_ms) or self._poll_ms))

    async def _wait(self, pause_ms: float) -> None:
        assert self._news is not None
        try:
            async with asyncio.timeout(pause_ms / 1_000):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    def _count(self, **added: int) -> None:
        self._counts = replace(
            self._counts, **{name: getattr(self._counts, name) + number for name, number in added.items()}
        )


def _ended(counts: RelayCounts) -> int:
    return counts.sent + counts.failed + counts.found
