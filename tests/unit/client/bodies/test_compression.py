"""Compressed bodies in the SDK: who compresses what, every reader's plain body, bombs, and a library that is missing."""

import asyncio
import random
import subprocess
import sys
import threading
from base64 import b64encode
from dataclasses import replace
from typing import Any

import lz4.frame
import pytest
import zstandard

from tern_client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    BlockingPullConsumer,
    BodyMismatch,
    Consumer,
    OutgoingMessage,
    Producer,
    PullConsumer,
    ReceivedMessage,
)
from tern_client.calls.compressed_bodies import Compressor, plain
from tern_client.transactions.transactions import read_check
from tern_wire.errors import MessageTooLarge
from tern_wire.extras import ExtraMissing
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.records.compression import ENCODINGS, Compression, begins_as, compress, decompress
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, blocking_proxy, packed, said
from tests.unit.client.bodies.orders import Order
from tests.unit.client.deliveries import delivery

RECEIPT = {"message_id": "m", "queue": "broker-a:1", "offset": 7, "born_at": 1}
MIB = 1 << 20
SIZES = [4_095, 4_096, 4_097, MIB, MESSAGE_BODY_SIZE_MAX_BYTES]
# As orders are: shrinks to a fifth or so.
TEXT = b"".join(b'{"order":%d,"customer":"c-%d"}\n' % (number, number * 7919 % 1_000) for number in range(150_000))


def store(asked: Asked) -> Reply:
    """Stores everything."""
    if not asked.path.endswith("/batch"):
        return said(RECEIPT, 201)
    results = [{**RECEIPT, "index": at} for at, _ in enumerate(asked.document["messages"])]
    return packed({"results": results, "failed": 0})


def serving(*bodies: tuple[bytes, str]) -> Any:
    """A proxy whose messages have these bodies, each with its encoding, for every way of reading."""
    messages = [
        {**delivery(number), "body": body, **({"content_encoding": encoding} if encoding else {})}
        for number, (body, encoding) in enumerate(bodies, 1)
    ]

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/receive"):
            return packed({"messages": messages, "settled": []})
        if asked.path.endswith("/settle"):
            return said({"results": [], "failed": 0})
        if asked.path.endswith("/offsets"):
            return said({"queues": [{"queue": "broker-a:0", "min_offset": 1, "max_offset": 1 + len(messages)}]})
        if "/queues/" in asked.path:
            is_first = "offset=earliest" in asked.path
            found = messages if is_first else []
            return packed({"messages": found, "next_offset": 1 + len(messages), "min_offset": 1, "max_offset": 9})
        if "dead-letters" in asked.path or "key=" in asked.path or "dlq" in asked.path:
            return packed({"messages": messages})
        return packed(messages[0])

    return answer


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_bodies_of_the_bound_and_more_are_compressed_by_every_way_of_sending(encoding: Any) -> None:
    """Equal when they are decompressed; smaller ones, and what does not shrink, are sent as they are."""

    async def all_ways(url: str) -> None:
        async with Producer(url, compression=encoding) as producer:
            for size in SIZES:
                await producer.send("t", TEXT[:size])
            await producer.send_batch("t", [OutgoingMessage(body=TEXT[:size]) for size in SIZES])
            soon = [await producer.send_soon("t", OutgoingMessage(body=TEXT[:size])) for size in SIZES[:4]]
            await asyncio.gather(*soon)

    async with ScriptedProxy(answer=store) as proxy:
        await all_ways(proxy.url)
        arrived: list[tuple[bytes, str]] = []
        for asked in proxy.asked:
            if asked.path.endswith("/batch"):
                arrived += [(each["body"], each.get("content_encoding", "")) for each in asked.document["messages"]]
            else:
                arrived.append((asked.body, asked.headers.get("mq-content-encoding", "")))
    found = [(decompress(body, ENCODINGS[name]) if name else body, name) for body, name in arrived]
    wanted = [(TEXT[:size], encoding if size >= 4_096 else "") for size in SIZES]
    key = lambda each: len(each[0])  # noqa: E731 - one line for two sorts
    assert sorted(found, key=key) == sorted([*wanted, *wanted, *wanted[:4]], key=key)
    assert all(
        len(body) < len(plain_body) for (body, name), (plain_body, _) in zip(arrived, found, strict=True) if name
    )


def test_the_blocking_producer_compresses_too_and_its_bound_can_be_set() -> None:
    """By default nothing is compressed: readers of an earlier release would not know."""
    with blocking_proxy(store) as proxy:
        with BlockingProducer(proxy.url, compression="zlib", compress_min_bytes=10) as producer:
            producer.send("t", b"x" * 100, tag="a", content_type="text/plain", message_group="g")
            producer.send("t", {"id": "x" * 100})
        with BlockingProducer(proxy.url) as producer:
            producer.send("t", b"x" * 10_000)
        first, second, third = proxy.asked
    assert decompress(first.body, Compression.ZLIB) == b"x" * 100
    assert (first.headers["mq-tag"], first.headers["content-type"]) == ("a", "text/plain")
    assert first.headers["mq-content-encoding"] == second.headers["mq-content-encoding"] == "zlib"
    assert len(third.body) == 10_000 and "mq-content-encoding" not in third.headers


def test_what_does_not_shrink_or_would_look_like_a_bomb_is_sent_plain() -> None:
    """Every reader can read what is sent: a body of zeros in zstd is beyond any reader's ratio."""
    noise = random.Random(7).randbytes(50_000)
    for compression in ENCODINGS.values():
        message = OutgoingMessage(body=noise)
        assert Compressor(compression, 4_096).applied(message) is message
    zeros = OutgoingMessage(body=bytes(4 * MIB))
    assert Compressor(Compression.ZSTD, 4_096).applied(zeros) is zeros
    for compression in (Compression.ZLIB, Compression.LZ4):
        made = Compressor(compression, 4_096).applied(zeros)
        assert decompress(made.body, compression) == zeros.body


async def test_the_limit_of_a_message_counts_the_plain_body() -> None:
    """So that every reader can bound itself by it."""
    async with ScriptedProxy(answer=store) as proxy, Producer(proxy.url, compression="zlib") as producer:
        with pytest.raises(MessageTooLarge):
            await producer.send("t", bytes(MESSAGE_BODY_SIZE_MAX_BYTES + 1))
        assert proxy.asked == []


async def test_large_bodies_are_compressed_in_a_thread_and_a_message_group_keeps_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small message sent behind a large one of its group waits for it; small ones stay on the loop."""
    where: list[tuple[int, bool]] = []

    def watched(body: bytes, compression: Compression) -> bytes:
        where.append((len(body), threading.current_thread() is threading.main_thread()))
        return compress(body, compression)

    monkeypatch.setattr("tern_client.calls.compressed_bodies.compress", watched)
    bodies = [TEXT[:MIB], b"second", TEXT[: 2 * MIB], TEXT[:5_000], b"fifth"]
    async with ScriptedProxy(answer=store) as proxy:
        async with Producer(proxy.url, compression="zlib") as producer:
            sends = [asyncio.ensure_future(producer.send("t", body, message_group="g")) for body in bodies]
            await asyncio.gather(*sends)
            soon = [await producer.send_soon("t", OutgoingMessage(body=body, message_group="s")) for body in bodies]
            await asyncio.gather(*soon)
        single = [asked for asked in proxy.asked if not asked.path.endswith("/batch")]
        gathered = [
            each for asked in proxy.asked if asked.path.endswith("/batch") for each in asked.document["messages"]
        ]
    assert [_plain(asked.body, asked.headers.get("mq-content-encoding")) for asked in single] == bodies
    assert [_plain(each["body"], each.get("content_encoding")) for each in gathered] == bodies
    assert {on_loop for size, on_loop in where if size > 64 * 1024} == {False}
    assert (5_000, True) in where


def _plain(body: bytes, encoding: str | None) -> bytes:
    return decompress(body, ENCODINGS[encoding]) if encoding else body


def test_every_reader_of_the_sdk_gets_the_plain_body() -> None:
    """Both consumers, both pull consumers, and what an Admin shows."""
    bodies = [(TEXT[:size], name) for name in ENCODINGS for size in SIZES[1:4]] + [(b"plain", "")]
    answer = serving(*[(compress(body, ENCODINGS[name]) if name else body, name) for body, name in bodies])
    wanted = [body for body, _ in bodies]

    async def asynchronous(url: str) -> None:
        async with Consumer(url, "t", "g") as consumer:
            assert [message.body for message in await consumer.receive()] == wanted
        async with PullConsumer(url, "t") as pulling:
            assert [(await anext(pulling)).body for _ in wanted] == wanted
        async with Admin(url) as admin:
            found = await admin.message("t", "m1")
            assert found["body"] == wanted[0] and "content_encoding" not in found

    with blocking_proxy(answer) as proxy:
        with BlockingConsumer(proxy.url, "t", "g") as consumer:
            assert [message.body for message in consumer.receive()] == wanted
        with BlockingPullConsumer(proxy.url, "t") as pulling:
            pulled = list(pulling.until_idle(10))
            assert [message.body for message in pulled] == wanted
            assert pulled[0].content_encoding == "lz4"  # how it was stored
        with BlockingAdmin(proxy.url) as admin:
            assert [message["body"] for message in admin.find("t", "k")["messages"]] == wanted
            assert [message["body"] for message in admin.dead_letters("g")["messages"]] == wanted
        asyncio.run(asynchronous(proxy.url))


BOMB_SIZE_BYTES = 64 * MIB
BOMBS = {
    "zlib": compress(bytes(BOMB_SIZE_BYTES), Compression.ZLIB),
    "lz4": lz4.frame.compress(bytes(BOMB_SIZE_BYTES)),
    # 8 bytes of frame, then blocks of 4 bytes that stand for 128 KiB each: 4 KiB are 128 MiB, 32 KiB a GiB.
    "zstd": zstandard.ZstdCompressor().compress(bytes(BOMB_SIZE_BYTES)),
}
_REPEATED_ZERO = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
# A frame without a size (so no reader may trust one), whose blocks stand for a GiB.
GIGABYTE = (
    b"\x28\xb5\x2f\xfd\x00\x58" + _REPEATED_ZERO * 8_191 + (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
)
BAD = {
    **{f"{name} bomb": (body, name) for name, body in BOMBS.items()},
    "zstd gigabyte": (GIGABYTE, "zstd"),
    "cut": (compress(TEXT[:5_000], Compression.ZLIB)[:-5], "zlib"),
    "other": (compress(TEXT[:5_000], Compression.LZ4), "zstd"),
    "unknown": (b"x", "brotli"),
}


def test_the_bomb_is_one() -> None:
    """Without a limit it would be a gigabyte, as a reader in pieces finds."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    size = sum(len(unpacker.decompress(GIGABYTE[at : at + 1_024])) for at in range(0, len(GIGABYTE), 1_024))
    assert (size, len(GIGABYTE) < 33_000) == (1 << 30, True)
    assert all(begins_as(body, ENCODINGS[name]) for name, body in BOMBS.items())


@pytest.mark.parametrize("name", BAD)
def test_a_body_that_cannot_be_read_is_an_error_of_that_message_alone(name: str) -> None:
    """Raised where the body is read; the messages beside it reach their handlers, and its text names it."""
    with (
        blocking_proxy(serving(BAD[name], (b'{"id":3}', ""))) as proxy,
        BlockingConsumer(proxy.url, "t", "g") as consumer,
    ):
        bad, good = consumer.receive()
        assert good.decode(Order) == Order(3)
        for read in (lambda: bad.body, bad.decode, lambda: bad.decode(Order)):
            with pytest.raises(BodyMismatch, match="The body of message m1 is not bytes: "):
                read()
        assert isinstance(bad.refused, BodyMismatch)
        assert "message_id='m1'" in repr(bad) and "body=" not in repr(bad)
        assert not hasattr(bad, "nothing")
        with BlockingAdmin(proxy.url) as admin:
            assert admin.message("t", "m1")["content_encoding"] == BAD[name][1]


@pytest.mark.parametrize("name", [*BOMBS, "zstd gigabyte"])
def test_a_bomb_never_takes_more_memory_than_the_limit(name: str) -> None:
    """Measured from outside, in a process of its own: the libraries allocate where Python does not see it."""
    body, encoding = BAD[name] if name in BAD else (BOMBS[name], name)
    code = (
        "import resource, sys\n"
        "from tern_wire.errors import RecordMalformed\n"
        "from tern_wire.records.compression import ENCODINGS, compress, decompress\n"
        "body, kind = sys.stdin.buffer.read(), ENCODINGS[sys.argv[1]]\n"
        "decompress(compress(b'warm up' * 1000, kind), kind)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    decompress(body, kind)\nexcept RecordMalformed:\n    pass\nelse:\n    sys.exit(3)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, encoding], input=body, capture_output=True, timeout=60, check=True
    )
    assert int(done.stdout) * 1024 < 32 * MIB, f"{int(done.stdout)} KiB"


async def test_a_missing_library_is_named_by_producer_and_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line to install; zlib needs none."""
    monkeypatch.setattr("tern_wire.extras.is_installed", lambda module: module not in {"zstandard", "lz4"})
    line = r"pip install 'ternmq-client\[compression\]'"
    for encoding, library in (("zstd", "zstandard"), ("lz4", "lz4")):
        with pytest.raises(ExtraMissing, match=f"A body in {encoding} needs {library}: {line}"):
            Producer("http://127.0.0.1:9", compression=encoding)  # type: ignore[arg-type]
        message = ReceivedMessage(**{**delivery(1), "keys": (), "body": b"x", "content_encoding": encoding})
        with pytest.raises(ExtraMissing, match=line):
            plain(message).body  # noqa: B018
    Producer("http://127.0.0.1:9", compression="zlib")


@pytest.mark.parametrize(
    "given, text",
    [
        ({"compression": "gzip"}, "compression is 'gzip'; allowed are 'lz4', 'zstd', 'zlib' or None"),
        ({"compression": 3}, "compression is 3; allowed are"),
        ({"compress_min_bytes": "4k"}, "compress_min_bytes is a str; allowed is an int of bytes"),
    ],
    ids=["name", "number", "bound"],
)
def test_a_wrong_setting_is_named(given: dict[str, Any], text: str) -> None:
    """When the producer is made."""
    with pytest.raises(TypeError, match=text):
        BlockingProducer("http://127.0.0.1:9", **given)


def test_messages_compare_and_show_as_before() -> None:
    """Equality by all fields, and a text with all of them."""
    message = ReceivedMessage(**{**delivery(1), "keys": ("k",)})
    assert message == replace(message) and message != replace(message, body=b"other")
    assert repr(message).startswith(
        "ReceivedMessage(message_id='m1', topic='t', queue='broker-a:0', offset=1, body=b'body 1'"
    )


def test_a_checker_sees_plain_bodies_or_none() -> None:
    """Of half messages that another client has compressed, from a poll (bytes) and from a callback (Base64)."""
    stored = compress(TEXT[:5_000], Compression.ZLIB)
    bodies = [(stored, "zlib"), (b64encode(stored).decode(), "zlib"), (b"x", "zlib"), (b"plain", ""), (None, "zlib")]
    messages = [
        {"topic": "t", "message_id": f"m{at}", "body": body, **({"content_encoding": name} if name else {})}
        for at, (body, name) in enumerate(bodies)
    ]
    check = read_check({"transaction_id": "x", "producer_group": "shop", "attempt": 1, "messages": messages})
    assert [message.body for message in check.messages] == [TEXT[:5_000], TEXT[:5_000], None, b"plain", None]
