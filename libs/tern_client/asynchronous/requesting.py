"""Requests that wait for a reply, and replies."""

from typing import Any

from tern_client.asynchronous.client import AsyncClient
from tern_client.calls.models import ReceivedMessage, ReplyMessage, SendReceipt
from tern_client.calls.requesting import (
    Timeout,
    ask,
    find_request,
    message_of,
    new_request,
    read_receipt,
    read_reply,
    reply_request,
    reply_to_request,
    timeout_ms_of,
)
from tern_client.ordered_calls import OrderedCalls
from tern_client.transport.clock import now_ms
from tern_wire.limits import REPLY_TIMEOUT_DEFAULT_MS


class RequestCalls(OrderedCalls):
    """What producers can ask."""

    __slots__ = ()

    async def request(
        self,
        topic: str,
        body: bytes,
        *,
        timeout: Timeout = REPLY_TIMEOUT_DEFAULT_MS,
        correlation_id: str = "",
        client: str = "",
        **fields: Any,
    ) -> ReplyMessage:
        """Send a request and wait for its reply; 1 ms to 30 s. ReplyTimeout: it is stored, and `find_reply` asks again, by its fields.

        *client* is who asks, *correlation_id* which of its requests this is; the proxy makes what is left out. *fields*: as in `send`. With a
        message group it is sent in turn, when its predecessor has its reply; the time for the reply begins then.
        """
        timeout_ms, message = timeout_ms_of(timeout), message_of(body, fields)
        request = new_request(topic, message, timeout_ms, correlation_id, client)
        return await self._drive_in_turn(
            topic, [message], lambda: ask(self._course, topic, request, timeout_ms, now_ms())
        )

    async def find_reply(self, topic: str, correlation_id: str, client: str = "", wait_ms: int = 0) -> ReplyMessage:
        """The reply to a request that was stored before; NoReply when none came within *wait_ms*."""
        return read_reply(await self._call(find_request(topic, correlation_id, client, wait_ms)))

    async def reply(self, topic: str, body: bytes, *, reply_to: str, correlation_id: str, **fields: Any) -> SendReceipt:
        """Reply to a request of *topic* that somebody else has received. *fields*: content_type, properties, keys."""
        request = reply_request(topic, body, reply_to=reply_to, correlation_id=correlation_id, **fields)
        return read_receipt(await self._call(request))


class ReplyCalls(AsyncClient):
    """How consumers reply."""

    __slots__ = ()

    async def reply(self, request: ReceivedMessage, body: bytes, **fields: Any) -> SendReceipt:
        """Reply to *request*, which is acked as any message. The first reply counts; one that comes too late is stored all the same.

        *fields*: content_type, properties, keys.
        """
        return read_receipt(await self._call(reply_to_request(request, body, fields)))
