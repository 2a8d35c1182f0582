"""Bodies that their producer has compressed, at the proxy: RocketMQ's flags in the record, and documents that say so."""

from base64 import b64decode, b64encode
from typing import Any

import pytest

from tern_proxy.core.documents.sends import JsonMessage, PackedMessage
from tern_proxy.core.sending.encoding import MessageIds, encode_messages
from tern_proxy.core.sending.topic import Topic
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.paths import MSGPACK
from tern_wire.records.compression import ENCODINGS, Compression, compress, decompress
from tern_wire.records.hosts import host_bytes
from tern_wire.records.read import RocketRecord, decode_record, decode_rocketmq_record
from tern_wire.routing.route import TopicRoute
from tests.support.proxy.proxy_mesh import proxy_mesh

BORN_MS = 1_767_225_600_000
BODY = b'{"order": 17, "items": ["tea", "tea", "tea"]}' * 100


def record_of(*messages: PackedMessage | JsonMessage) -> list[bytes]:
    """The records that the proxy makes of *messages*, all in one queue."""
    encoded = encode_messages(
        Topic("orders", {"broker-a": TopicRoute(topic_id=7, queues=1, type="MIXED")}),
        list(messages),
        ids=MessageIds("0" * 20),
        born_ms=BORN_MS,
        born_host=host_bytes("10.0.0.1", 99),
        usable=("broker-a",),
    )
    assert not encoded.errors
    parts = encoded.parcels[0].parts
    return [b"".join(parts[at : at + 3]) for at in range(0, len(parts), 3)]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_record_has_the_flags_of_rocketmq_and_is_otherwise_the_same(encoding: str) -> None:
    """The next message of the same queue has none, and a plain record has the bytes that it always had."""
    stored = compress(BODY, ENCODINGS[encoding])
    packed, plain, bare = record_of(
        PackedMessage(stored, content_encoding=encoding, tag="a"), PackedMessage(b"x"), PackedMessage(stored, tag="a")
    )
    record: RocketRecord = decode_rocketmq_record(packed)
    assert record.sysflag == {"lz4": 0x101, "zstd": 0x201, "zlib": 0x301}[encoding]
    assert (record.compression, record.plain_body()) == (ENCODINGS[encoding], BODY)
    assert record.stored_body_crc == record.body_crc
    assert decode_record(packed).content_encoding == encoding
    assert (decode_rocketmq_record(plain).sysflag, decode_record(plain).content_encoding) == (0, "")
    differing = [at for at, (one, other) in enumerate(zip(packed, bare, strict=True)) if one != other]
    message_id = bare.index(b"UNIQ_KEY")
    assert [at for at in differing if at < message_id] == [38, 39]


@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_documents_say_how_a_body_is_compressed(encoding: str) -> None:
    """MessagePack and raw answers have its bytes, JSON has them as Base64, whatever they look like and is asked for."""
    stored = compress(BODY, ENCODINGS[encoding])
    headers = {"MQ_Content_Encoding": encoding, "Content_Type": "application/json"}
    async with proxy_mesh(topics={"orders": 1}) as mesh:
        assert (await mesh.post("/v1/topics/orders/messages", stored, **headers)).status_code == 201
        entry = {"body": stored, "content_encoding": encoding}
        json_entry = {"body_base64": b64encode(stored).decode(), "content_encoding": encoding}
        batch = "/v1/topics/orders/messages/batch"
        sent = await mesh.post(batch, encode_msgpack({"messages": [entry]}), Content_Type=MSGPACK, Accept=MSGPACK)
        assert decode_msgpack(sent.content)["failed"] == 0
        assert (await mesh.http.post(batch, json={"messages": [json_entry]})).json()["failed"] == 0
        where = "/v1/topics/orders/queues/broker-a:0/messages?offset=0"
        for query in ("", "&encoding=text", "&encoding=json", "&encoding=base64"):
            found = (await mesh.http.get(where + query)).json()["messages"]
            assert [b64decode(each["body_base64"]) for each in found] == [stored] * 3
            assert {each["content_encoding"] for each in found} == {encoding}
            assert not any({"body", "json"} & each.keys() for each in found)
        packed: Any = decode_msgpack((await mesh.http.get(where, headers={"Accept": MSGPACK})).content)
        assert [(each["body"], each["content_encoding"]) for each in packed["messages"]] == [(stored, encoding)] * 3
        received = (await mesh.receive(max_messages=1)).json()["messages"]
        assert decompress(b64decode(received[0]["body_base64"]), ENCODINGS[encoding]) == BODY
        raw = await mesh.receive("?format=raw")
        assert (raw.content, raw.headers["mq-content-encoding"]) == (stored, encoding)
        assert "content-encoding" not in raw.headers


@pytest.mark.parametrize(
    "body, encoding, text",
    [
        (b"plain", "zlib", "The body is not compressed with zlib"),
        (b"", "zstd", "The body is not compressed with zstd"),
        (compress(BODY, Compression.ZLIB), "lz4", "The body is not compressed with lz4"),
        (b"x", "gzip", "'gzip' is none of lz4, zstd, zlib"),
        (b"x", "none", "'none' is none of"),
    ],
    ids=["plain", "empty", "another", "unknown", "none"],
)
async def test_a_body_that_is_not_what_it_says_is_refused(body: bytes, encoding: str, text: str) -> None:
    """A mistake of the sender, found before any reader; nothing is stored."""
    async with proxy_mesh(topics={"orders": 1}) as mesh:
        answer = await mesh.post("/v1/topics/orders/messages", body, MQ_Content_Encoding=encoding)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid-field")
        assert text in answer.json()["detail"] and answer.json()["pointer"].endswith("/content_encoding")
        assert (await mesh.receive(wait=0)).json()["messages"] == []


async def test_plain_messages_have_no_such_field() -> None:
    """Answers of before stay as they were."""
    async with proxy_mesh(topics={"orders": 1}) as mesh:
        await mesh.send()
        (message,) = (await mesh.receive()).json()["messages"]
        assert "content_encoding" not in message
