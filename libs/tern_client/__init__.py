"""The SDK of TernMQ, a message queue behind HTTP: producers, consumers and administration.

What to import, for asyncio and for threads:

    send messages                          Producer              BlockingProducer
    handle messages of many topics         Worker                Worker (plain functions)
    receive as one of a consumer group     Consumer              BlockingConsumer
    send in step with a database           TransactionProducer   BlockingTransactionProducer
    read all messages by offset            PullConsumer          BlockingPullConsumer
    follow a topic live                    Tail                  BlockingTail
    share out queues among members         Membership            BlockingMembership
    declare, inspect, repair               Admin                 BlockingAdmin
    several of these over one connection   connect               connect_blocking

`tern_client.outbox` has messages as rows of your own database transactions, sent in order per
message group, and an inbox for handlers that must not run twice.

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

Errors are TernError, and each has a class here, such as `tern_client.TopicNotFound`: `code` is
stable, `detail` says what to do, `retryable` whether a repeat may succeed, and `fields` holds the
values in `detail`. Clients repeat calls by themselves until their
deadline (RetryPolicy).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tern_client.asynchronous.admin import Admin
    from tern_client.asynchronous.memberships import Membership
    from tern_client.asynchronous.tailing import Tail
    from tern_client.blocking.admin import BlockingAdmin
    from tern_client.blocking.memberships import BlockingMembership
    from tern_client.blocking.sending import BlockingProducer
    from tern_client.blocking.tailing import BlockingTail
    from tern_client.blocking_consumer import BlockingConsumer
    from tern_client.bodies.cloud_events import CloudEvent
    from tern_client.bodies.mismatch import BodyMismatch
    from tern_client.bodies.serializers import EncodedBody
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
    from tern_client.calls.partial_failures import SendsFailed, SettlesFailed
    from tern_client.calls.pulling import FileOffsets, GroupOffsets, MemoryOffsets, PulledMessage
    from tern_client.calls.scheduled import ScheduledMessage, ScheduledPage
    from tern_client.calls.turns import TurnNotReached
    from tern_client.closing import ClientClosed
    from tern_client.connection import BlockingConnection, Connection, connect, connect_blocking
    from tern_client.consumer import Consumer
    from tern_client.producer import Producer
    from tern_client.pull_consumer import BlockingPullConsumer, PullConsumer
    from tern_client.running import run
    from tern_client.settings.contexts import ContextUnusable
    from tern_client.settings.settings import Settings
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
    from tern_client.transport.credentials import CredentialsUnusable
    from tern_client.transport.endpoints import EndpointMalformed
    from tern_client.transport.exchange import ProxyUnreachable
    from tern_client.transport.retrying import RetryPolicy
    from tern_client.worker.outcomes import BatchFailed, DeadLetter, Retry
    from tern_client.worker.stats import WorkerStats
    from tern_client.worker.worker import Worker
    from tern_wire.errors import *  # noqa: F403 - each error of the mesh, listed there
    from tern_wire.errors import TernError
    from tern_wire.extras import ExtraMissing

__all__ = [
    "Admin",
    "BatchFailed",
    "BatchLimits",
    "BatchOutcome",
    "BegunTransaction",
    "BlockingAdmin",
    "BlockingConnection",
    "BlockingConsumer",
    "BlockingMembership",
    "BlockingProducer",
    "BlockingPullConsumer",
    "BlockingTail",
    "BlockingTransactionProducer",
    "BodyMismatch",
    "Check",
    "CheckCounts",
    "CheckedMessage",
    "ClientClosed",
    "CloudEvent",
    "Connection",
    "Consumer",
    "ContextUnusable",
    "CredentialsUnusable",
    "DeadLetter",
    "Decision",
    "EncodedBody",
    "EndedTransaction",
    "EndpointMalformed",
    "ExtraMissing",
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
    "SendsFailed",
    "SentTransaction",
    "Settings",
    "SettlesFailed",
    "Tail",
    "TernError",
    "Transaction",
    "TransactionPage",
    "TransactionProducer",
    "TurnNotReached",
    "Worker",
    "WorkerStats",
    "check_app",
    "connect",
    "connect_blocking",
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
    "BlockingConnection": "tern_client.connection",
    "BlockingConsumer": "tern_client.blocking_consumer",
    "BlockingMembership": "tern_client.blocking.memberships",
    "BlockingProducer": "tern_client.blocking.sending",
    "BlockingPullConsumer": "tern_client.pull_consumer",
    "BlockingTail": "tern_client.blocking.tailing",
    "BlockingTransactionProducer": "tern_client.transactions.blocking_transactions",
    "BodyMismatch": "tern_client.bodies.mismatch",
    "Check": "tern_client.transactions.models",
    "CheckCounts": "tern_client.transactions.checking",
    "CheckedMessage": "tern_client.transactions.models",
    "ClientClosed": "tern_client.closing",
    "CloudEvent": "tern_client.bodies.cloud_events",
    "Connection": "tern_client.connection",
    "Consumer": "tern_client.consumer",
    "ContextUnusable": "tern_client.settings.contexts",
    "CredentialsUnusable": "tern_client.transport.credentials",
    "DeadLetter": "tern_client.worker.outcomes",
    "Decision": "tern_client.transactions.models",
    "EncodedBody": "tern_client.bodies.serializers",
    "EndedTransaction": "tern_client.transactions.models",
    "EndpointMalformed": "tern_client.transport.endpoints",
    "ExtraMissing": "tern_wire.extras",
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
    "SendsFailed": "tern_client.calls.partial_failures",
    "SentTransaction": "tern_client.transactions.models",
    "Settings": "tern_client.settings.settings",
    "SettlesFailed": "tern_client.calls.partial_failures",
    "Tail": "tern_client.asynchronous.tailing",
    "TernError": "tern_wire.errors",
    "Transaction": "tern_client.transactions.models",
    "TransactionPage": "tern_client.transactions.models",
    "TransactionProducer": "tern_client.transactions.producer",
    "TurnNotReached": "tern_client.calls.turns",
    "Worker": "tern_client.worker.worker",
    "WorkerStats": "tern_client.worker.stats",
    "check_app": "tern_client.transactions.check_callbacks",
    "connect": "tern_client.connection",
    "connect_blocking": "tern_client.connection",
    "run": "tern_client.running",
}
# Has each error of the mesh, which can be imported from here, too: `tern_client.TopicNotFound`.
_ERRORS = "tern_wire.errors"


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name, _ERRORS)
    if home == _ERRORS and name not in import_module(_ERRORS).__all__:
        raise AttributeError(f"module 'tern_client' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
