"""Bank A's answers to checks: by callback (txn-checker calls, and signs) or by pull."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tern_client import Admin, Check, TransactionProducer, check_app
from tern_service.connections.bounds import Bounds
from tern_service.server import open_socket, serve
from tests.chaos.transfer.bank_a import BankA

# The first check and the next: a run does not wait long for crashed transactions.
CHECK_TIMES = ("2s", "2s")
# Those of one crash, all at once.
CHECKS_IN_HAND_MAX = 64


@asynccontextmanager
async def answered_checks(
    admin: Admin, endpoints: Sequence[str], producer_group: str, books: Path, *, by_callback: bool
) -> AsyncIterator[None]:
    """Make *producer_group*, and answer its checks from the *books* of bank A inside."""
    # A connection of its own: an answer waits for the producers' commits, and nothing else does.
    bank = BankA(books)
    answering = _by_callback if by_callback else _by_pull
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
