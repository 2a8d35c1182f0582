"""Requests that wait for a reply, and replies."""

from typing import Any

from tern_client.asynchronous.client import AsyncClient
from tern_client.bodies.serializers import Encode
from tern_client.calls.models import ReceivedMessage, ReplyMessage, SendReceipt
from tern_client.calls.requesting import (
    Timeout,
    ask,
    encoded_reply,
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
    """Calls of producers about requests."""

    __slots__ = ("_encode",)

    # Set by the subclass.
    _encode: Encode

    async def request(
        self,
        topic: str,
        body: Any,
        *,
        timeout: Timeout = REPLY_TIMEOUT_DEFAULT_MS,
        correlation_id: str = "",
        client: str = "",
        **fields: Any,
    ) -> ReplyMessage:
        """Send a request and return its reply, which is awaited for *timeout*: 1 ms to 30 s, as
        `"10s"`, milliseconds or a timedelta.

        *client* names the sender, and *correlation_id* the request; the proxy makes those that are
        left out. *fields* are those of `send`. With a message group the request takes its turn,
        which ends with the reply; *timeout* begins with the turn.

        ReplyTimeout: the request is stored, and its fields are arguments of `find_reply`.
        IllegalTimeout.
        """
        timeout_ms, message = timeout_ms_of(timeout), message_of(body, fields, self._encode)
        request = new_request(topic, message, timeout_ms, correlation_id, client)
        return await self._drive_in_turn(
            topic, [message], lambda: ask(self._course, topic, request, timeout_ms, now_ms())
        )

    async def find_reply(self, topic: str, correlation_id: str, client: str = "", wait_ms: int = 0) -> ReplyMessage:
        """Return the reply to an earlier request; NoReply when none came within *wait_ms*."""
        return read_reply(await self._call(find_request(topic, correlation_id, client, wait_ms)))

    async def reply(self, topic: str, body: Any, *, reply_to: str, correlation_id: str, **fields: Any) -> SendReceipt:
        """Reply to a request of *topic* that another client has received. *fields*: content_type,
        properties, keys.
        """
        body, fields = encoded_reply(body, fields, self._encode)
        request = reply_request(topic, body, reply_to=reply_to, correlation_id=correlation_id, **fields)
        return read_receipt(await self._call(request))


class ReplyCalls(AsyncClient):
    """Replies of consumers."""

    __slots__ = ()

    async def reply(self, request: ReceivedMessage, body: Any, **fields: Any) -> SendReceipt:
        """Reply to *request*, which must still be acked. The first reply counts; a reply after the
        timeout is stored all the same.

        *body*: as a Producer with the serializer `"auto"` takes it. *fields*: content_type,
        properties, keys. InvalidField when *request* is not a request.
        """
        return read_receipt(await self._call(reply_to_request(request, body, fields)))
