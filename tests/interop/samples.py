"""What is exported and read back: the messages of a real mesh, and those of a node that was made to hold every odd case.

Each sample is a stopped node's directory and, from the hand that sent them, what RocketMQ must find: never read back from our files.
"""

import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tern_client import BlockingAdmin, BlockingProducer, OutgoingMessage
from tern_wire.records.compression import Compression
from tests.support.files.store_builder import BORN_MS, StoreBuilder, message
from tests.support.mesh.mesh import running_mesh

Expected = dict[tuple[str, int, int], dict[str, Any]]


@dataclass(slots=True)
class Sample:
    """A node's *directory*; *expected*: topic, queue, offset to body (base64), tag, keys and properties; *options* of the export."""

    name: str
    directory: Path
    expected: Expected = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def expect(self, topic: str, queue: int, offset: int, sent: OutgoingMessage, message_id: str) -> None:
        """RocketMQ must find *sent* there."""
        keys = " ".join(sent.keys)
        system = {"UNIQ_KEY": message_id, "KEYS": keys, "TAGS": sent.tag, "MQ_CONTENT_TYPE": sent.content_type}
        self.expected[topic, queue, offset] = {
            "body": b64encode(sent.body).decode(),
            "tag": sent.tag,
            "keys": keys,
            "properties": {name: value for name, value in {**system, **sent.properties}.items() if value},
        }


def varied(rng: random.Random, count: int) -> Iterator[OutgoingMessage]:
    """Messages of every kind that a producer may send: text, binary, large; with and without tag, keys, properties."""
    for number in range(count):
        body = (
            f"Straße 订单 {number}".encode(),
            rng.randbytes(rng.randint(1, 300)),
            b"\0",
            f"{number},".encode() * rng.randint(1, 2500),
        )[number % 4]
        yield OutgoingMessage(
            body=body,
            tag=("", "paid", "税", "AaAa", "BBBB")[number % 5],
            keys=[(), (f"key-{number}",), (f"key-{number}", "shared", "钥匙")][number % 3],
            properties={} if number % 2 else {"shop": "berlin", "属性": f"值{number}"},
            content_type="text/plain" if number % 7 == 0 else "",
        )


def from_a_mesh(directory: Path, rng: random.Random) -> Sample:
    """Sent one by one and in batches through the SDK to a mesh of one broker, which is then stopped."""
    sample = Sample("a mesh of one broker, RocketMQ's default file sizes", directory / "tern" / "data" / "broker-a-0")
    with running_mesh(directory / "tern", "--brokers", "1") as mesh:
        with BlockingAdmin(mesh.endpoint) as admin, BlockingProducer(mesh.endpoint) as producer:
            for topic, queues in (("orders", 4), ("payments", 1), ("empty", 2)):
                admin.create_topic(topic, queues)
            for topic, count in (("orders", 400), ("payments", 300)):
                sent = list(varied(rng, count))
                receipts = [producer.send_message(topic, one) for one in sent[:20]]
                receipts += producer.send_batch(topic, sent[20:]).confirmed()
                for one, receipt in zip(sent, receipts, strict=True):
                    queue = int(receipt.queue.partition(":")[2])
                    sample.expect(topic, queue, receipt.offset, one, receipt.message_id)
        mesh.down()
    return sample


def of_every_kind(directory: Path, rng: random.Random) -> Sample:
    """Compressed bodies, trimmed queues, deliveries by reference, dead letters, over many small files."""
    sizes = ("--segment-size", "65536", "--queue-entries", "100", "--index-slots", "200", "--index-entries", "800")
    sample = Sample("every kind of message, small files", directory / "node", options=sizes)
    builder = StoreBuilder(sample.directory)
    for topic, queues in (("plain", 3), ("packed", 1), ("batch", 2), ("trimmed", 2), ("late", 1), ("dead", 1)):
        builder.topic(topic, queues)
    ends: dict[tuple[str, int], int] = {}
    late: list[tuple[OutgoingMessage, str, tuple[int, int]]] = []

    def put(topic: str, queue: int, sent: list[OutgoingMessage], *, is_shown: bool = True, packing: int = 0) -> None:
        ids = [f"{rng.getrandbits(128):032X}" for _ in sent]
        records = [
            message(
                topic,
                one.body,
                queue=queue,
                tag=one.tag,
                keys=one.keys,
                message_id=message_id,
                properties={**one.properties, **({"MQ_CONTENT_TYPE": one.content_type} if one.content_type else {})},
                compression=Compression(packing),
                stored_ms=builder.now_ms,
            )
            for one, message_id in zip(sent, ids, strict=True)
        ]
        places = builder.send(topic, queue, *records) if is_shown else builder.store(topic, queue, *records)
        for one, message_id, place in zip(sent, ids, places, strict=True):
            if not is_shown:
                late.append((one, message_id, place))
                continue
            offset = ends.get((topic, queue), 0)
            ends[topic, queue] = offset + 1
            sample.expect(topic, queue, offset, one, message_id)

    for number, one in enumerate(varied(rng, 240)):
        builder.now_ms = BORN_MS + 50 * number
        put("plain", number % 3, [one])
        put("packed", 0, [one], packing=number % len(Compression))
        put("trimmed", number % 2, [one])
        if number % 10 == 0:
            put("batch", number // 10 % 2, list(varied(rng, rng.randint(2, 30))))
            put("late", 0, [one], is_shown=False)
        if number % 10 == 5:
            put("late", 0, [one])
            delayed, message_id, place = late.pop(rng.randrange(len(late)))
            builder.deliver("late", 0, place)
            sample.expect("late", 0, ends["late", 0], delayed, message_id)
            ends["late", 0] += 1
            if number % 20 == 5:
                builder.deliver("dead", 0, place)
                sample.expect("dead", 0, ends.get(("dead", 0), 0), delayed, message_id)
                ends["dead", 0] = ends.get(("dead", 0), 0) + 1
    for queue, first in ((0, 7), (1, 113)):
        builder.trim("trimmed", queue, first)
        for offset in range(first):
            del sample.expected["trimmed", queue, offset]
    builder.save(offsets={"plain@billing": {"0": 5}})
    return sample
