"""The SDK: Producer, Consumer and Admin for asyncio, and the same for threads. Talks HTTP to any proxy of a cluster."""

from tern_client.admin import Admin
from tern_client.batching import BatchLimits
from tern_client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from tern_client.blocking_transactions import BlockingTransactionProducer
from tern_client.check_callbacks import check_app
from tern_client.checking import CheckCounts
from tern_client.client import ClientClosed
from tern_client.consumer import Consumer
from tern_client.endpoints import EndpointMalformed
from tern_client.exchange import ProxyUnreachable, Request, Response
from tern_client.members import BlockingMembership, Membership
from tern_client.models import (
    BatchOutcome,
    OutgoingMessage,
    QueueOffsets,
    ReceivedMessage,
    RecordPage,
    ReplyMessage,
    SendReceipt,
)
from tern_client.producer import Producer
from tern_client.pull_consumer import BlockingPullConsumer, PullConsumer
from tern_client.pulling import FileOffsets, GroupOffsets, MemoryOffsets, PulledMessage
from tern_client.retrying import RetryPolicy
from tern_client.scheduled import ScheduledMessage, ScheduledPage
from tern_client.transaction_course import LocalTransactionFailed
from tern_client.transaction_models import (
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
from tern_client.transaction_producer import TransactionProducer
from tern_client.transport import HttpxTransport, Transport
from tern_client.turns import TurnNotReached

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
    "HttpxTransport",
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
    "Request",
    "Response",
    "RetryPolicy",
    "ScheduledMessage",
    "ScheduledPage",
    "SendReceipt",
    "SentTransaction",
    "Transaction",
    "TransactionPage",
    "TransactionProducer",
    "Transport",
    "TurnNotReached",
    "check_app",
]
