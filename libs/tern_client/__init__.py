"""The SDK of TernMQ, a message queue behind HTTP: producers, consumers and administration.

What to import, for asyncio and for threads:

    send messages                          Producer              BlockingProducer
    handle messages of many topics         Worker                Worker (plain functions)
    receive as one of a consumer group     Consumer              BlockingConsumer
    send in step with a database           TransactionProducer   BlockingTransactionProducer
    read all messages by offset            PullConsumer          BlockingPullConsumer
    share out queues among members         Membership            BlockingMembership
    declare, inspect, repair               Admin                 BlockingAdmin

Both columns have the same methods: `async with`, `async for` and `await` on the left, plain `with`
and `for` on the right. A client takes the URL of a proxy, or of several. `run` runs a program until
it ends, or until Ctrl-C or SIGTERM, and lets its clients close in order.

Example of producing:

    from tern_client import OutgoingMessage, Producer, run


    async def main() -> None:
        async with Producer("http://127.0.0.1:8080") as producer:
            receipt = await producer.send("orders", b"order 1", tag="new")
            print(receipt.offset)  # -> 0
            later = OutgoingMessage(body=b"order 2", delay="1h")
            outcome = await producer.send_batch("orders", [later])
            print(len(outcome.confirmed()))  # -> 1


    run(main())

Example of consuming:

    from tern_client import Consumer, run


    async def main() -> None:
        async with Consumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            async for message in consumer:
                print(message.body, message.tag)  # -> b'order 1' new
                consumer.confirm(message)  # acked with the next receive, or by close
                break  # a worker leaves this out and ends by Ctrl-C or SIGTERM


    run(main())

Example of a transaction:

    from tern_client import BegunTransaction, BlockingTransactionProducer, Check, HalfMessage

    PAID = set()  # a table of the shop's database


    def pay(begun: BegunTransaction) -> bool:
        PAID.add(begun.transaction_id)
        return True  # commit; False rolls back, None leaves the decision to the checker


    def is_paid(check: Check) -> bool:
        return check.transaction_id in PAID


    endpoint = "http://127.0.0.1:8080"
    with BlockingTransactionProducer(endpoint, "shop", checker=is_paid) as producer:
        sent = producer.send(HalfMessage(topic="orders", body=b"order 3 is paid"), pay)
    print(sent.state)  # -> committed

Example of administration:

    from tern_client import BlockingAdmin, TernError

    with BlockingAdmin("http://127.0.0.1:8080") as admin:
        print(admin.create_topic("orders", type="MIXED")["type"])  # -> MIXED
        print(admin.lag("billing", "orders")["lag"])  # -> 1
        try:
            admin.topic("no-such-topic")
        except TernError as error:
            print(error.code)  # -> topic-not-found

Errors are TernError: `code` is stable, `detail` says what to do, `retryable` whether a repeat may
succeed, and `fields` holds the values in `detail`. Clients repeat calls by themselves until their
deadline (RetryPolicy).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from tern_client.transactions.transaction_flow import LocalTransactionFailed
    from tern_client.transport.endpoints import EndpointMalformed
    from tern_client.transport.exchange import ProxyUnreachable
    from tern_client.transport.retrying import RetryPolicy
    from tern_client.worker.outcomes import BatchFailed, DeadLetter, Retry
    from tern_client.worker.stats import WorkerStats
    from tern_client.worker.worker import Worker
    from tern_wire.errors import TernError

__all__ = [
    "Admin",
    "BatchFailed",
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
    "DeadLetter",
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
    "Retry",
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
    "Worker",
    "WorkerStats",
    "check_app",
    "run",
]

# Each name is imported at its first use: an application that produces imports no consumer, and a
# command line no client.
_HOMES = {
    "Admin": "tern_client.asynchronous.admin",
    "BatchFailed": "tern_client.worker.outcomes",
    "BatchLimits": "tern_client.calls.batching",
    "BatchOutcome": "tern_client.calls.models",
    "BegunTransaction": "tern_client.transactions.models",
    "BlockingAdmin": "tern_client.blocking.admin",
    "BlockingConsumer": "tern_client.blocking_consumer",
    "BlockingMembership": "tern_client.blocking.memberships",
    "BlockingProducer": "tern_client.blocking.sending",
    "BlockingPullConsumer": "tern_client.pull_consumer",
    "BlockingTransactionProducer": "tern_client.transactions.blocking_transactions",
    "Check": "tern_client.transactions.models",
    "CheckCounts": "tern_client.transactions.checking",
    "CheckedMessage": "tern_client.transactions.models",
    "ClientClosed": "tern_client.closing",
    "Consumer": "tern_client.consumer",
    "DeadLetter": "tern_client.worker.outcomes",
    "Decision": "tern_client.transactions.models",
    "EndedTransaction": "tern_client.transactions.models",
    "EndpointMalformed": "tern_client.transport.endpoints",
    "FileOffsets": "tern_client.calls.pulling",
    "GroupOffsets": "tern_client.calls.pulling",
    "HalfMessage": "tern_client.transactions.models",
    "LocalTransactionFailed": "tern_client.transactions.transaction_flow",
    "Membership": "tern_client.asynchronous.memberships",
    "MemoryOffsets": "tern_client.calls.pulling",
    "OutgoingMessage": "tern_client.calls.models",
    "Producer": "tern_client.producer",
    "ProxyUnreachable": "tern_client.transport.exchange",
    "PullConsumer": "tern_client.pull_consumer",
    "PulledMessage": "tern_client.calls.pulling",
    "QueueOffsets": "tern_client.calls.models",
    "ReceivedMessage": "tern_client.calls.models",
    "RecordPage": "tern_client.calls.models",
    "ReplyMessage": "tern_client.calls.models",
    "Retry": "tern_client.worker.outcomes",
    "RetryPolicy": "tern_client.transport.retrying",
    "ScheduledMessage": "tern_client.calls.scheduled",
    "ScheduledPage": "tern_client.calls.scheduled",
    "SendReceipt": "tern_client.calls.models",
    "SentTransaction": "tern_client.transactions.models",
    "TernError": "tern_wire.errors",
    "Transaction": "tern_client.transactions.models",
    "TransactionPage": "tern_client.transactions.models",
    "TransactionProducer": "tern_client.transactions.producer",
    "TurnNotReached": "tern_client.calls.turns",
    "Worker": "tern_client.worker.worker",
    "WorkerStats": "tern_client.worker.stats",
    "check_app": "tern_client.transactions.check_callbacks",
    "run": "tern_client.running",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tern_client' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
