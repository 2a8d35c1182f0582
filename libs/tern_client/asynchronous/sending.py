"""A producer that sends each message at once."""

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tern_client.asynchronous.requesting import RequestCalls
from tern_client.bodies.serializers import Serializer, encoder_of
from tern_client.calls.compressed_bodies import COMPRESS_MIN_BYTES, CompressionName, compressor_of
from tern_client.calls.models import BatchOutcome, OutgoingMessage, SendReceipt
from tern_client.calls.partial_failures import SendsFailed
from tern_client.calls.sending import none_stored, prepared, send_many, send_one, unique_keys
from tern_client.calls.turns import TurnNotReached
from tern_client.transport.clock import now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_client.transport.transport import Transport


class PlainProducer(RequestCalls):
    """Sends messages, and requests that wait for a reply. Tasks may share a producer.

    - *endpoints*: URLs of proxies, such as http://127.0.0.1:8080; EndpointMalformed. When one
      fails, the next one is used.
    - *idempotent*: every message gets an idempotency key, so that a repeat is stored once.
    - *serializer* makes bytes of other bodies: `"auto"` by their type, `"json"`, `"cloudevents"`
      (structured mode), `"bytes"` (no other bodies), or a function that returns an EncodedBody.
    - *compression* (`"zlib"`, `"zstd"`, `"lz4"`; None: none) of bodies of *compress_min_bytes* and
      more, in `send`, `send_batch` and `send_soon`. Consumers of this release decompress.
    - *namespace*: all topics are in it. *policy*: patience and pauses. *key_file*, *ca_file*:
      credentials.

    After `close` sends are refused with ClientClosed. Errors are TernError. A send that raises was
    not stored, with one exception: after OutcomeUnknown the message may be stored, late and once.

    Messages of one message group are stored in the order of the calls: a call waits for its turn. A
    message that fails for good leaves a gap, and those behind it are sent. After a failure, a
    message that has waited for longer than the deadline fails with TurnNotReached, unsent.

    Example:

        import asyncio

        from tern_client import OutgoingMessage, Producer


        async def main() -> None:
            async with Producer("http://127.0.0.1:8080") as producer:
                receipt = await producer.send("orders", b"order 1", tag="new", keys=["1"])
                print(receipt.offset)  # -> 0
                batch = [OutgoingMessage(body=b"order 2"), OutgoingMessage(body=b"order 3")]
                outcome = await producer.send_batch("orders", batch)
                print(len(outcome.confirmed()))  # -> 2


        asyncio.run(main())
    """

    __slots__ = ("_compressor", "_keys")

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        idempotent: bool = True,
        serializer: Serializer = "auto",
        compression: CompressionName | None = None,
        compress_min_bytes: int = COMPRESS_MIN_BYTES,
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: Transport | None = None,
    ) -> None:
        """The arguments are explained at the class."""
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._encode = encoder_of(serializer)
        self._compressor = compressor_of(compression, compress_min_bytes)
        self._keys = unique_keys(os.urandom(8).hex()) if idempotent else None

    async def send(
        self,
        topic: str,
        body: Any,
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
        """Send one message; return its receipt when it is durable on a majority of nodes. The
        arguments are those of OutgoingMessage.

        TypeError names an argument of a wrong type. MessageTooLarge: the body is over 4 MiB.
        TopicNotFound, unless proxies create topics.
        OutcomeUnknown: the message may be stored.
        """
        message = OutgoingMessage(
            body=body,
            tag=tag,
            keys=keys,
            properties=properties or {},
            content_type=content_type,
            queue=queue,
            # Here, so that the message is not copied for its key.
            idempotency_key=idempotency_key or (self._keys() if self._keys else ""),
            message_group=message_group,
            delay=delay,
            deliver_at=deliver_at,
            delay_level=delay_level,
        )
        return await self.send_message(topic, message)

    async def send_message(self, topic: str, message: OutgoingMessage) -> SendReceipt:
        """Send *message*; return its receipt when it is durable on a majority of nodes. Errors: see
        `send`.
        """
        keyed = prepared(message, self._encode, self._keys)
        if not keyed.message_group:
            return await self._drive(send_one(self._course, topic, keyed, now_ms(), self._compressor))
        return await self._drive_in_turn(
            topic, [keyed], lambda: send_one(self._course, topic, keyed, now_ms(), self._compressor)
        )

    async def send_batch(
        self, topic: str, messages: Sequence[OutgoingMessage], *, return_errors: bool = False
    ) -> BatchOutcome:
        """Send *messages* in as few requests as possible, and repeat those that fail for now. The
        outcome holds each message's receipt or, with *return_errors*, its error.

        BatchEmpty without messages; SendsFailed, which has the outcome, when some are not stored.
        """
        keyed = [prepared(message, self._encode, self._keys) for message in messages]
        try:
            outcome = await self._drive_in_turn(
                topic, keyed, lambda: send_many(self._course, topic, keyed, now_ms(), self._compressor)
            )
        except TurnNotReached as error:
            outcome = none_stored(len(keyed), error)
        if outcome.errors and not return_errors:
            raise SendsFailed(outcome)
        return outcome
