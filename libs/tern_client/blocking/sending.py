# Made from libs/tern_client/asynchronous/sending.py by `make blocking`: change that file, not this one.
"""A producer that sends at once."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from tern_client.blocking.requesting import BlockingRequestCalls
from tern_client.calls.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.calls.sending import none_stored, send_many, send_one, unique_keys, with_key
from tern_client.calls.turns import TurnNotReached
from tern_client.transport.blocking_transport import BlockingTransport
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy


class BlockingProducer(BlockingRequestCalls):
    """Sends messages; may be shared between threads. Keys, errors and the order of message groups are those of the async Producer.

    Threads that send to one message group take turns, in the order in which they call. After `close` sends are refused (ClientClosed).
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        idempotent: bool = True,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
    ) -> None:
        """As Producer."""
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._keys = unique_keys(os.urandom(8).hex()) if idempotent else None

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        content_type: str = "",
        queue: str = "",
        idempotency_key: str = "",
        message_group: str = "",
        delay: str | int | timedelta | None = None,
        deliver_at: str | int | datetime | None = None,
        delay_level: int | None = None,
    ) -> SendReceipt:
        """Send one message now; returns when it is durable on a majority. MessageTooLarge for a body over 4 MiB."""
        message = OutgoingMessage(
            body=body,
            tag=tag,
            keys=keys,
            properties=properties or {},
            content_type=content_type,
            queue=queue,
            idempotency_key=idempotency_key,
            message_group=message_group,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
        )
        return self.send_message(topic, message)

    def send_message(self, topic: str, message: OutgoingMessage) -> SendReceipt:
        """As `send`, with the message as one value."""
        keyed = with_key(message, self._keys)
        if not keyed.message_group:
            return self._drive(send_one(self._course, topic, keyed, now_ms()))
        return self._drive_in_turn(topic, [keyed], lambda: send_one(self._course, topic, keyed, now_ms()))

    def send_batch(self, topic: str, messages: Sequence[OutgoingMessage]) -> BatchOutcome:
        """Send many messages now, in as few requests as fit; what fails for now is repeated, each message once."""
        keyed = [with_key(message, self._keys) for message in messages]
        try:
            return self._drive_in_turn(topic, keyed, lambda: send_many(self._course, topic, keyed, now_ms()))
        except TurnNotReached as error:
            return none_stored(len(keyed), error)
