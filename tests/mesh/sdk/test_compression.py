"""Compressed bodies through a real mesh: each algorithm and size, byte-equal through every reader that there is."""

import asyncio
import json
from base64 import b64decode
from typing import Any

import pytest
from typer.testing import CliRunner

from tern_cli.app import app
from tern_client import (
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    BlockingPullConsumer,
    BlockingTail,
    Consumer,
    OutgoingMessage,
    Producer,
)
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.names import QueueName, parse_queue
from tern_wire.records.columns import read_columns
from tern_wire.records.compression import ENCODINGS, decompress
from tests.support.mesh.mesh import Mesh

SIZES = [4_095, 4_096, 4_097, 1 << 20, MESSAGE_BODY_SIZE_MAX_BYTES]
TEXT = b"".join(b'{"order":%d,"customer":"c-%d"}\n' % (number, number * 7919 % 1_000) for number in range(150_000))
BODIES = [TEXT[:size] for size in SIZES]


async def sent_and_received(mesh: Mesh, topic: str, group: str, encoding: Any) -> list[bytes]:
    """The bodies that an async consumer gets of those that an async producer sends."""
    async with Producer(mesh.endpoint, compression=encoding) as producer:
        for body in BODIES[:3]:
            await producer.send(topic, body, tag=str(len(body)), keys=["k"])
        (await producer.send_batch(topic, [OutgoingMessage(body=BODIES[3], keys=["k"])])).confirmed()
        await (await producer.send_soon(topic, OutgoingMessage(body=BODIES[4], keys=["k"])))
    bodies: list[bytes] = []
    async with Consumer(mesh.endpoint, topic, group) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            consumer.confirm(message)
            if len(bodies) == len(BODIES):
                break
    return bodies


def plain_http(mesh: Mesh, topic: str, queue: QueueName) -> list[dict[str, Any]]:
    """All messages of *queue* as curl gets them, in JSON."""
    found: list[dict[str, Any]] = []
    while len(found) < len(BODIES):
        page = mesh.call("GET", f"/v1/topics/{topic}/queues/{queue}/messages?offset={len(found)}").json()
        found += page["messages"]
    return found


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bodies_are_byte_equal_through_every_reader(mesh: Mesh, encoding: str) -> None:
    """Consumers of both halves, a pull consumer, a tail, the command line, an Admin and plain HTTP. Spark's decoder: unit/spark/test_compressed_columns."""
    topic, group = f"packed-{encoding}", f"readers-{encoding}"
    mesh.create(topic, group, queues=1)
    for name in ("b", "c"):
        mesh.settled("PUT", f"/v1/groups/{group}{name}", json={})
    received = asyncio.run(sent_and_received(mesh, topic, group, encoding))
    assert sorted(received, key=len) == BODIES
    with BlockingConsumer(mesh.endpoint, topic, f"{group}b") as consumer:
        found = [message for message in consumer.until_idle(2_000) if not consumer.ack(message)]
    assert sorted((message.body for message in found), key=len) == BODIES
    with BlockingPullConsumer(mesh.endpoint, topic) as pulling:
        assert sorted((message.body for message in pulling.until_idle(500)), key=len) == BODIES
    with BlockingTail(mesh.endpoint, topic, start="earliest", max_messages=len(BODIES)) as tail:
        assert sorted((message.body for message in tail), key=len) == BODIES
    words = ["recv", topic, f"{group}c", "-n", "5", "--wait", "10s", "-o", "json", "--endpoint", mesh.endpoint]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert sorted((each["body"].encode() for each in json.loads(shown.stdout)), key=len) == BODIES
    with BlockingAdmin(mesh.endpoint) as admin:
        queue: QueueName = parse_queue(found[0].queue, topic)
        pages = [page.data for page in admin.pull_records(topic, str(queue), 0, len(BODIES))]
        assert sorted((each["body"] for each in admin.find(topic, "k")["messages"]), key=len) == BODIES
    flags = {"lz4": 0x101, "zstd": 0x201, "zlib": 0x301}
    sysflags = [int(flag) for page in pages for flag in read_columns(page).heads["sysflag"]]
    assert sorted(sysflags) == [0] + [flags[encoding]] * 4
    plain = plain_http(mesh, topic, queue)
    assert [message.get("content_encoding", "") for message in plain].count(encoding) == 4
    bodies = [
        decompress(b64decode(message["body_base64"]), ENCODINGS[encoding])
        if "content_encoding" in message
        else message["body"].encode()
        for message in plain
    ]
    assert sorted(bodies, key=len) == BODIES


def test_order_and_idempotency_are_those_of_plain_messages(mesh: Mesh) -> None:
    """A message group with large and small bodies, and a repeat that is stored once."""
    mesh.create("packed-fifo", "", queues=4)
    mesh.settled("PUT", "/v1/groups/packed-order", json={"fifo": True})
    bodies = [b"%d:" % number + TEXT[: 200_000 if number % 3 == 0 else 50] for number in range(12)]

    async def send() -> None:
        async with Producer(mesh.endpoint, compression="zlib") as producer:
            sends = [producer.send("packed-fifo", body, message_group="one") for body in bodies]
            await asyncio.gather(*sends)

    asyncio.run(send())
    with BlockingConsumer(mesh.endpoint, "packed-fifo", "packed-order") as consumer:
        found = [message.body for message in consumer.until_idle(2_000) if not consumer.ack(message)]
    assert found == bodies
    with BlockingProducer(mesh.endpoint, compression="zlib") as producer:
        first = producer.send("packed-fifo", TEXT[:10_000], idempotency_key="packed-once")
        again = producer.send("packed-fifo", TEXT[:10_000], idempotency_key="packed-once")
    assert (again.message_id, again.replayed) == (first.message_id, True)
