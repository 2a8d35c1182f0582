"""Messages over the limit: the same error from every client and way of sending, and nothing of them travels."""

import asyncio

import pytest

from tern_client import BlockingProducer, OutgoingMessage, Producer, SendsFailed
from tern_wire.errors import MessageTooLarge
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, packed, said

RECEIPT = {"message_id": "m", "queue": "broker-a:1", "offset": 7, "born_at": 1}
LARGE = OutgoingMessage(body=bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1))
LARGEST = OutgoingMessage(body=bytes(MESSAGE_BODY_SIZE_MAX_BYTES))
SMALL = OutgoingMessage(body=b"x")
SENTENCE = f"{MESSAGE_BODY_SIZE_MAX_BYTES + 1} bytes, the limit is {MESSAGE_BODY_SIZE_MAX_BYTES}"


def store(asked: Asked) -> Reply:
    """A proxy that stores everything."""
    if not asked.path.endswith("/batch"):
        return said(RECEIPT, 201)
    results = [{**RECEIPT, "index": at} for at, _ in enumerate(asked.document["messages"])]
    return packed({"results": results, "failed": 0})


async def test_a_message_over_the_limit_is_refused_before_it_travels() -> None:
    """By both producers, alone or among others, which are stored; the largest that is allowed passes."""

    def blocking(url: str) -> None:
        with BlockingProducer(url) as producer:
            with pytest.raises(MessageTooLarge, match=SENTENCE):
                producer.send("t", LARGE.body)
            outcome = producer.send_batch("t", [SMALL, LARGE, SMALL], return_errors=True)
            assert [receipt is not None for receipt in outcome.receipts] == [True, False, True]
            assert {at: type(error) for at, error in outcome.errors.items()} == {1: MessageTooLarge}
            assert list(producer.send_batch("t", [LARGE], return_errors=True).errors) == [0]
            assert producer.send("t", LARGEST.body).offset == 7

    async with ScriptedProxy(answer=store) as proxy:
        async with Producer(proxy.url) as producer:
            with pytest.raises(MessageTooLarge, match=SENTENCE):
                await producer.send("t", LARGE.body)
            outcome = await producer.send_batch("t", [SMALL, LARGE, SMALL], return_errors=True)
            assert [receipt is not None for receipt in outcome.receipts] == [True, False, True]
            assert {at: type(error) for at, error in outcome.errors.items()} == {1: MessageTooLarge}
            assert list((await producer.send_batch("t", [LARGE], return_errors=True)).errors) == [0]
            with pytest.raises(MessageTooLarge):
                await (await producer.send_soon("t", LARGE))
            assert proxy_sizes(proxy) == [2]
        proxy.asked.clear()
        await asyncio.to_thread(blocking, proxy.url)
        assert proxy_sizes(proxy) == [2, MESSAGE_BODY_SIZE_MAX_BYTES]


def proxy_sizes(proxy: ScriptedProxy) -> list[int]:
    """What arrived: messages of a batch, or bytes of a single send."""
    return [
        len(asked.document["messages"]) if asked.path.endswith("/batch") else len(asked.body) for asked in proxy.asked
    ]


async def test_a_batch_of_which_some_are_not_stored_is_raised_with_its_receipts() -> None:
    """Unless the caller asks for the errors; both shells do so."""
    with blocking_proxy(store) as proxy:
        async with Producer(proxy.url) as producer:
            with pytest.raises(
                SendsFailed, match="1 of 3 messages were not stored; the first of them, number 1: "
            ) as caught:
                await producer.send_batch("t", [SMALL, LARGE, SMALL])
        with BlockingProducer(proxy.url) as blocking, pytest.raises(SendsFailed):
            blocking.send_batch("t", [LARGE])
    assert [receipt is not None for receipt in caught.value.outcome.receipts] == [True, False, True]
    assert list(caught.value.outcome.errors) == [1]
