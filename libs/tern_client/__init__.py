"""The SDK: Producer, Consumer and Admin for asyncio, and the same for threads. Talks HTTP to any proxy of a cluster.

    from tern_client import Consumer, Producer, run


    async def main() -> None:
        async with Producer("http://127.0.0.1:8080") as producer:
            await producer.send("orders", b"hello")

        async with Consumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            async for message in consumer:
                print(message.body, flush=True)
                consumer.confirm(message)  # acked with the next receive


    run(main())  # until Ctrl-C or SIGTERM

The same for threads: BlockingProducer and BlockingConsumer, `with` and `for`, and `run(main)`.

To send: Producer.send, send_batch, send_soon; TransactionProducer.send. To receive with leases: Consumer, by group. To read by offset:
PullConsumer. To declare, list, look up and redrive: Admin. Errors are TernError, with a code and a sentence that says what to do.
"""

from tern_client.asynchronous.admin import Admin
from tern_client.asynchronous.memberships import Membership
from tern_client.blocking.admin import BlockingAdmin
from tern_client.blocking.memberships import BlockingMembership
from tern_client.blocking.sending import BlockingProducer
from tern_client.blocking_consumer import BlockingConsumer
from tern_client.calls.batching import BatchLimits
from tern_client.calls.models import (
    BatchOutcome,
    OutgoingMessage,
    QueueOffsets,
    ReceivedMessage,
    RecordPage,
    ReplyMessage,
    SendReceipt,
)
from tern_client.calls.pulling import FileOffsets, GroupOffsets, MemoryOffsets, PulledMessage
from tern_client.calls.scheduled import ScheduledMessage, ScheduledPage
from tern_client.calls.turns import TurnNotReached
from tern_client.closing import ClientClosed
from tern_client.consumer import Consumer
from tern_client.producer import Producer
from tern_client.pull_consumer import BlockingPullConsumer, PullConsumer
from tern_client.running import run
from tern_client.transactions.blocking_transactions import BlockingTransactionProducer
from tern_client.transactions.check_callbacks import check_app
from tern_client.transactions.checking import CheckCounts
from tern_client.transactions.course import LocalTransactionFailed
from tern_client.transactions.models import (
    BegunTransaction,
    Check,
    CheckedMessage,
    Decision,
    EndedTransaction,
    HalfMessage,
    SentTransaction,
    Transaction,
    TransactionPage,
)
from tern_client.transactions.producer import TransactionProducer
from tern_client.transport.endpoints import EndpointMalformed
from tern_client.transport.exchange import ProxyUnreachable
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import TernError

__all__ = [
    "Admin",
    "BatchLimits",
    "BatchOutcome",
    "BegunTransaction",
    "BlockingAdmin",
    "BlockingConsumer",
    "BlockingMembership",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingTransactionProducer",
    "Check",
    "CheckCounts",
    "CheckedMessage",
    "ClientClosed",
    "Consumer",
    "Decision",
    "EndedTransaction",
    "EndpointMalformed",
    "FileOffsets",
    "GroupOffsets",
    "HalfMessage",
    "LocalTransactionFailed",
    "Membership",
    "MemoryOffsets",
    "OutgoingMessage",
    "Producer",
    "ProxyUnreachable",
    "PullConsumer",
    "PulledMessage",
    "QueueOffsets",
    "ReceivedMessage",
    "RecordPage",
    "ReplyMessage",
    "RetryPolicy",
    "ScheduledMessage",
    "ScheduledPage",
    "SendReceipt",
    "SentTransaction",
    "TernError",
    "Transaction",
    "TransactionPage",
    "TransactionProducer",
    "TurnNotReached",
    "check_app",
    "run",
]
