"""Bank A's answers to checks: by callback (txn-checker calls, and signs) or by pull."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tern_cli.demo.transfer.bank_a import BankA
from tern_cli.demo.transfer.settings import AskedBy
from tern_client import Admin, Check, TransactionProducer, check_app
from tern_wire.extras import need_extra

# Crashed transactions are to be resolved while one watches.
CHECK_TIMES = ("2s", "2s")
# Those of one crash, all at once.
CHECKS_IN_HAND_MAX = 64


@asynccontextmanager
async def answered_checks(
    admin: Admin, endpoints: Sequence[str], producer_group: str, books: Path, asked_by: AskedBy
) -> AsyncIterator[None]:
    """Make *producer_group*, and answer its checks from the *books* of bank A inside."""
    # A connection of its own: an answer waits for the producers' commits, and nobody else should.
    bank = BankA(books)
    answering = _by_callback if asked_by is AskedBy.CALLBACK else _by_pull
    try:
        async with answering(admin, endpoints, producer_group, bank):
            yield
    finally:
        bank.close()


@asynccontextmanager
async def _by_pull(admin: Admin, endpoints: Sequence[str], producer_group: str, bank: BankA) -> AsyncIterator[None]:
    after, interval = CHECK_TIMES
    await admin.create_producer_group(producer_group, check_after=after, check_interval=interval)

    async def checker(check: Check) -> bool:
        return await asyncio.to_thread(bank.is_debited, check.transaction_id)

    asked = TransactionProducer(endpoints, producer_group, checker=checker, checks_in_hand_max=CHECKS_IN_HAND_MAX)
    async with asked:
        yield


@asynccontextmanager
async def _by_callback(admin: Admin, _: Sequence[str], producer_group: str, bank: BankA) -> AsyncIterator[None]:
    need_extra("txn-checker", "Checks by callback")
    # Of an extra, and --checks pull needs none.
    from tern_service.bounds import Bounds  # noqa: PLC0415
    from tern_service.server import open_socket, serve  # noqa: PLC0415

    async def checker(check: Check) -> bool:
        return await asyncio.to_thread(bank.is_debited, check.transaction_id)

    after, interval = CHECK_TIMES
    with open_socket("127.0.0.1", 0, "--checks") as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/checks"
        document = await admin.create_producer_group(
            producer_group, check_url=url, check_after=after, check_interval=interval
        )
        stop = asyncio.Event()
        app = check_app(checker, document["check_secret"])
        serving = asyncio.create_task(serve(app, listener, stop=stop, bounds=Bounds(takes_callbacks=True)))
        try:
            yield
        finally:
            stop.set()
            await serving
