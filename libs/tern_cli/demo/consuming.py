"""Consumers of a run: receive and ack all messages with several consumers of one new group.

The group starts at the end that the topic had before the run.

Law: a message counts as acked only when the proxy has confirmed it. Deliveries beyond the first of
a message are counted, never hidden.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tern_cli.demo.producing import SendLog
from tern_client import Consumer, ReceivedMessage, RetryPolicy
from tern_wire.limits import RECEIVE_MESSAGES_MAX

CONSUMERS = 4
WAIT_MS = 500
# Messages leased by a leader that died before it could answer are redelivered after this time; a
# batch is acked in milliseconds.
INVISIBLE_MS = 10_000
# When messages are missing and none has arrived for this long, they are lost, and the run reports
# it.
PATIENCE_MS = 60_000
POLICY = RetryPolicy(deadline_ms=60_000, max_delay_ms=200)


@dataclass(slots=True, kw_only=True)
class ReceiveLog:
    """Deliveries and acks. Owned by the run; consumers of one event loop write to it.
    Times are ms of one monotonic clock, as in SendLog.
    """

    now_ms: Callable[[], float]
    ids: set[str] = field(default_factory=set)
    acked_ids: set[str] = field(default_factory=set)
    received: int = 0
    # Acks that came too late; these messages are delivered again.
    expired: int = 0
    began_ms: float | None = None
    last_ms: float = 0.0

    def note(self, messages: Sequence[ReceivedMessage]) -> None:
        """Count *messages* as delivered."""
        self.last_ms = self.now_ms()
        if self.began_ms is None:
            self.began_ms = self.last_ms
        self.received += len(messages)
        self.ids.update(message.message_id for message in messages)

    def note_acked(self, messages: Sequence[ReceivedMessage], failed_handles: set[str]) -> None:
        """Count *messages* as acked, except those with *failed_handles*."""
        self.last_ms = self.now_ms()
        self.expired += len(failed_handles)
        self.acked_ids.update(
            message.message_id for message in messages if message.receipt_handle not in failed_handles
        )

    @property
    def redelivered(self) -> int:
        """Return the number of deliveries beyond the first of each message."""
        return self.received - len(self.ids)

    @property
    def seconds(self) -> float:
        """Return the seconds from the first delivery to the last ack so far."""
        return 0.0 if self.began_ms is None else (self.last_ms - self.began_ms) / 1_000


async def consume_all(
    endpoints: Sequence[str], topic: str, group: str, log: ReceiveLog, *, sends: SendLog, sent_all: asyncio.Event
) -> None:
    """Receive and ack until every sent message is acked.
    Ends early when no message has arrived for PATIENCE_MS after the last send.
    """

    def is_over() -> bool:
        if not sent_all.is_set():
            return False
        if len(log.acked_ids) >= sends.confirmed and sends.ids <= log.acked_ids:
            return True
        return log.now_ms() - max(log.last_ms, sends.last_ms or 0.0) > PATIENCE_MS

    async def consume() -> None:
        consumer = Consumer(
            endpoints,
            topic,
            group,
            max_messages=RECEIVE_MESSAGES_MAX,
            wait_ms=WAIT_MS,
            invisible_ms=INVISIBLE_MS,
            policy=POLICY,
        )
        async with consumer:
            while not is_over():
                messages = await consumer.receive()
                if messages:
                    log.note(messages)
                    log.note_acked(messages, set(await consumer.ack(*messages)))

    async with asyncio.TaskGroup() as consumers:
        for _ in range(CONSUMERS):
            consumers.create_task(consume())
