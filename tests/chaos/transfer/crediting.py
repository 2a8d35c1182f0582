"""The consumer process of bank B: receives credits, writes each batch in one commit, then acks it. Runs until SIGTERM.

python -m tests.chaos.transfer.crediting ERRAND
"""

import asyncio
import signal
import sys
from pathlib import Path

from tern_client import Consumer, RetryPolicy
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_MESSAGES_MAX
from tests.chaos.transfer.bank_b import BankB
from tests.chaos.transfer.errand import Errand

CONSUMERS = 2
WAIT_MS = 500
# What was leased by a leader that died before it could answer comes again after this.
INVISIBLE_MS = 10_000
POLICY = RetryPolicy(deadline_ms=90_000, max_delay_ms=200)


async def credit_all(errand: Errand, bank: BankB, stop: asyncio.Event) -> None:
    """Until *stop*: receive, credit, ack."""

    async def work() -> None:
        consumer = Consumer(
            errand.endpoints,
            errand.topic,
            errand.group,
            max_messages=RECEIVE_MESSAGES_MAX,
            wait_ms=WAIT_MS,
            invisible_ms=INVISIBLE_MS,
            policy=POLICY,
        )
        async with consumer:
            while not stop.is_set():
                try:
                    messages = await consumer.receive()
                    if messages:
                        # Durable here: every credit of the batch, before its ack.
                        await asyncio.to_thread(bank.credit, [(one.message_id, one.body) for one in messages])
                        await consumer.ack(*messages)
                except TernError as error:
                    # Nothing is lost: what was not acked comes again, and is credited once.
                    print(f"again: {error}", flush=True)

    async with asyncio.TaskGroup() as workers:
        for _ in range(CONSUMERS):
            workers.create_task(work())


async def main(errand: Errand) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await credit_all(errand, BankB(Path(errand.bank)), stop)


if __name__ == "__main__":
    asyncio.run(main(Errand.read(sys.argv[1])))
