"""`ternmq store export`: a store by RocketMQ's rules with every message in its place, and a node that is left as it was."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tern_client import OutgoingMessage
from tern_client.calls.compressed_bodies import CompressedMessage, Compressor
from tern_proxy.core.documents.sends import PackedMessage
from tern_proxy.core.sending.encoding import MessageIds, encode_messages
from tern_proxy.core.sending.topic import Topic
from tern_wire.records.compression import ENCODINGS, Compression
from tern_wire.records.hosts import NO_HOST
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import COMMITTED
from tern_wire.records.properties import TAGS
from tern_wire.records.queue_entry import is_queued
from tern_wire.records.read import RocketRecord, decode_rocketmq_record
from tern_wire.routing.route import TopicRoute
from tests.support.files.rocketmq_golden import NOT_ORDINARY, PARTS, golden_part
from tests.support.files.rocketmq_reading import (
    SEGMENT_SIZE_BYTES,
    SLOTS,
    RocketStore,
    export,
    read_rocketmq_store,
)
from tests.support.files.store_builder import BORN_MS, StoreBuilder, message


def exported(node: Path, target: Path) -> RocketStore:
    """The store that it writes; it must succeed."""
    result = export(node, target)
    assert result.exit_code == 0, result.output
    return read_rocketmq_store(target, SLOTS)


def facts(record: RocketRecord) -> tuple[Any, ...]:
    """What a consumer sees of a record."""
    body = record.plain_body()
    return (body, record.property_map(), record.born_ms, record.flag, record.sysflag, record.attempts)


@pytest.fixture
def node(tmp_path: Path) -> Callable[[], StoreBuilder]:
    """A new data directory."""
    return lambda: StoreBuilder(tmp_path / "node")


def test_every_message_is_in_its_queue_with_its_offset(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """Plain, tagged, keyed, in batches, compressed in every way, across many files of every kind; and found by its keys."""
    builder = node()
    builder.topic("orders", 2)
    builder.topic("pay")
    sent: dict[tuple[str, int], list[bytes]] = {("orders", 0): [], ("orders", 1): [], ("pay", 0): []}
    for number in range(150):
        builder.now_ms += 7
        key = [("orders", 0), ("orders", 1), ("pay", 0)][number % 3]
        records = [
            message(
                key[0],
                b"body %d/%d " % (number, part) * (number % 40),
                queue=key[1],
                tag=["", "paid", "税"][number % 3],
                keys=[f"k{number}", "all"] if part else (),
                message_id=f"ID-{number}-{part}",
                properties={"名": f"值{number}"},
                compression=list(Compression)[number % 4],
                stored_ms=builder.now_ms,
                flag=number,
            )
            for part in range(1 + number % 4)
        ]
        builder.send(*key, *records)
        sent[key] += records
    store = exported(builder.save(), tmp_path / "out")
    assert set(store.queues) == set(sent)
    for (topic, queue), records in sent.items():
        shown = store.shown(topic, queue)
        assert [facts(record) for record in shown] == [facts(decode_rocketmq_record(record)) for record in records]
        assert [record.queue_offset for record in shown] == list(range(len(records)))
        assert {(record.topic_name, record.queue) for record in shown} == {(topic, queue)}
        for entry, record in zip(store.queues[topic, queue], shown, strict=True):
            assert (entry.position, entry.size_bytes) == (record.position, record.size_bytes)
            assert entry.tag_code == tag_hash(record.property_map().get(TAGS, ""))
    assert len(store.records) == sum(map(len, sent.values()))
    assert all(record.stored_body_crc == record.body_crc for record in store.records.values())
    for record in store.records.values():
        properties = record.property_map()
        assert record in store.find(record.topic_name, properties["UNIQ_KEY"])
        for word in properties.get("KEYS", "all").split():
            assert len(store.find(record.topic_name, word)) > 0
    assert len(store.log_files) > 3
    assert len(store.index_files) > 2


def test_files_are_named_and_sized_as_a_broker_expects(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """Names follow each other, each file but the last ends with a blank that reaches its end, at least 8 bytes of it."""
    builder = node()
    builder.topic("t")
    for number in range(300):
        builder.send("t", 0, message("t", bytes(number)))
    store = exported(builder.save(), tmp_path / "out")
    bases = list(store.log_files)
    assert bases == [number * SEGMENT_SIZE_BYTES for number in range(len(bases))]
    assert set(store.log_files.values()) == {SEGMENT_SIZE_BYTES}
    assert [(at + size) for at, size in store.blanks.items()] == bases[1:]
    assert min(store.blanks.values()) >= 8
    assert {size for files in store.queue_files.values() for size in files.values()} == {50 * 20}
    assert list(store.queue_files["t", 0]) == [number * 50 * 20 for number in range(6)]
    checkpoint = (tmp_path / "out" / "checkpoint").read_bytes()
    newest = max(store.records)
    times = [store.records[newest].stored_ms] * 3
    assert [int.from_bytes(checkpoint[at : at + 8], "big") for at in range(0, 48, 8)] == [*times, 0, 0, newest]
    assert len(checkpoint) == 4096
    assert not (tmp_path / "out" / "abort").exists()


def test_a_trimmed_queue_keeps_its_offsets_and_the_log_begins_behind_0(
    node: Callable[[], StoreBuilder], tmp_path: Path
) -> None:
    """Pre-blanks point at position 0, which counts as gone only below the log's first file; other queues begin at 0."""
    builder = node()
    for topic, count in (("trimmed", 130), ("whole", 5), ("emptied", 3)):
        builder.topic(topic)
        for number in range(count):
            builder.send(topic, 0, message(topic, b"%d" % number))
    builder.trim("trimmed", 0, 120)
    builder.trim("emptied", 0, 3)
    offsets = {"trimmed@g": {"0": 125}, "emptied@g": {"0": 3}}
    store = exported(builder.save(offsets=offsets), tmp_path / "out")
    assert min(store.log_files) == SEGMENT_SIZE_BYTES
    assert [record.queue_offset for record in store.shown("trimmed", 0)] == list(range(120, 130))
    assert [record.body for record in store.shown("trimmed", 0)] == [b"%d" % number for number in range(120, 130)]
    assert list(store.queue_files["trimmed", 0]) == [100 * 20]
    first = (tmp_path / "out" / "consumequeue" / "trimmed" / "0" / f"{2000:020d}").read_bytes()
    assert first[:400] == 20 * (bytes(8) + bytes.fromhex("7fffffff") + bytes(8))
    assert [record.queue_offset for record in store.shown("whole", 0)] == list(range(5))
    # Pre-blanks alone make a broker ignore what comes later, so this queue begins anew, and so do its readers.
    assert ("emptied", 0) not in store.queues
    assert store.config["consumerOffset.json"]["offsetTable"] == {"trimmed@g": {"0": 125}, "emptied@g": {"0": 0}}


def test_messages_by_reference_become_records_of_their_own(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """A late delivery stands where its queue shows it, with the time of its delivery; a dead letter belongs to its new topic."""
    builder = node()
    builder.topic("t", 2)
    builder.topic("u", 2)
    builder.topic("dead")
    late = builder.store("t", 1, message("t", b"late", queue=1, stored_ms=BORN_MS, tag="A"))
    for number in range(5):
        builder.now_ms += 10
        builder.send("t", 1, message("t", b"%d" % number, queue=1, stored_ms=builder.now_ms))
    builder.now_ms += 1000
    builder.deliver("t", 1, *late)
    delivered_ms = builder.now_ms
    builder.deliver("dead", 0, *late)
    builder.deliver("u", 1, *late)
    builder.now_ms += 10
    builder.send("t", 1, message("t", b"after", queue=1, stored_ms=builder.now_ms))
    store = exported(builder.save(), tmp_path / "out")
    shown = store.shown("t", 1)
    assert [record.body for record in shown] == [b"0", b"1", b"2", b"3", b"4", b"late", b"after"]
    assert [record.position for record in shown] == sorted(record.position for record in shown)
    assert [record.stored_ms for record in shown] == sorted(record.stored_ms for record in shown)
    assert shown[5].stored_ms == delivered_ms
    assert shown[5].born_ms == BORN_MS - 5
    (dead,) = store.shown("dead", 0)
    assert (dead.topic_name, dead.queue, dead.queue_offset, dead.body) == ("dead", 0, 0, b"late")
    assert store.queues["dead", 0][0].tag_code == tag_hash("A")
    assert [(record.topic_name, record.queue, record.body) for record in store.shown("u", 1)] == [("u", 1, b"late")]
    assert len(store.records) == 9


def test_a_message_that_retention_has_moved_comes_from_its_copy(
    node: Callable[[], StoreBuilder], tmp_path: Path
) -> None:
    """It keeps its offset; the place that its queue's file names may be gone."""
    builder = node()
    builder.topic("t")
    builder.send("t", 0, *(message("t", b"old-%d" % number) for number in range(3)))
    builder.move("t", 0, 1, message("t", b"copy"))
    store = exported(builder.save(), tmp_path / "out")
    assert [record.body for record in store.shown("t", 0)] == [b"old-0", b"copy", b"old-2"]
    assert [record.queue_offset for record in store.shown("t", 0)] == [0, 1, 2]


def test_a_committed_half_message_is_a_message(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """RocketMQ makes no queue entry for a record that says prepared; what our queue shows is committed."""
    builder = node()
    builder.topic("t")
    half = bytearray(message("t", b"half"))
    half[36:40] = (4).to_bytes(4, "big")
    builder.send("t", 0, message("t", b"one"), bytes(half), message("t", b"two"))
    store = exported(builder.save(), tmp_path / "out")
    assert [record.body for record in store.shown("t", 0)] == [b"one", b"half", b"two"]
    assert [record.sysflag for record in store.shown("t", 0)] == [0, COMMITTED, 0]


@pytest.mark.parametrize("name", PARTS)
def test_a_real_brokers_records_come_out_as_they_went_in(name: str, tmp_path: Path) -> None:
    """Both versions, both kinds of hosts, every compression: all fields but the place survive a stay in our log."""
    builder = StoreBuilder(tmp_path / "node")
    part = golden_part(name)
    wanted: dict[tuple[str, int], list[RocketRecord]] = {}
    for record in part.records:
        if record.topic_name not in NOT_ORDINARY and is_queued_record(record) and "%" not in record.topic_name:
            wanted.setdefault((record.topic_name, record.queue), []).append(record)
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        builder.topic(topic, 1 + max(queue for name, queue in wanted if name == topic))
    for record, raw in zip(part.records, part.raw, strict=True):
        if record in wanted.get((record.topic_name, record.queue), ()):
            builder.now_ms = record.stored_ms
            builder.send(record.topic_name, record.queue, raw)
    result = export(builder.save(), tmp_path / "out", "--segment-size", 65536, "-o", "json")
    assert result.exit_code == 0, result.output
    store = read_rocketmq_store(tmp_path / "out", SLOTS)
    left_out = json.loads(result.stdout)["left_out"]
    assert left_out == sorted(
        {topic for topic, _ in wanted if topic.upper().startswith("RMQ_SYS") or "HeartBeat" in topic}
    )
    ordinary = {key: records for key, records in wanted.items() if key[0] not in left_out}
    assert set(store.queues) == set(ordinary)
    for key, records in ordinary.items():
        shown = store.shown(*key)
        assert [placeless(record) for record in shown] == [placeless(record) for record in records]
        assert [record.queue_offset for record in shown] == [record.queue_offset for record in records]


def is_queued_record(record: RocketRecord) -> bool:
    """Whether the broker made a queue entry for it."""
    return bool(is_queued(np.array([record.sysflag]))[0])


def placeless(record: RocketRecord) -> tuple[Any, ...]:
    """Every field but the place."""
    return tuple(getattr(record, name) for name in RocketRecord.__slots__ if name not in {"position", "queue_offset"})


def test_topics_groups_and_offsets_are_configured(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """Topics without a message too, with all their queues; a name that RocketMQ needs for itself is left out, and said."""
    builder = node()
    builder.topic("orders", 3)
    builder.topic("empty", 5)
    builder.topic("TBW102")
    builder.send("orders", 2, message("orders", b"x", queue=2))
    builder.send("TBW102", 0, message("TBW102", b"x"))
    builder.save(offsets={"orders@billing": {"2": 1}})
    result = export(tmp_path / "node", tmp_path / "out")
    assert result.exit_code == 0
    assert "Left out: TBW102" in result.stderr
    assert f"mappedFileSizeCommitLog={SEGMENT_SIZE_BYTES}" in result.stdout
    store = read_rocketmq_store(tmp_path / "out", SLOTS)
    table = store.config["topics.json"]["topicConfigTable"]
    assert {name: facts["readQueueNums"] for name, facts in table.items()} == {"orders": 3, "empty": 5}
    assert table["orders"] == {
        "topicName": "orders",
        "readQueueNums": 3,
        "writeQueueNums": 3,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }
    assert store.config["consumerOffset.json"]["offsetTable"] == {"orders@billing": {"2": 1}}
    assert store.config["subscriptionGroup.json"]["subscriptionGroupTable"] == {"billing": {"groupName": "billing"}}
    assert set(store.queues) == {("orders", 2)}


def test_a_node_without_a_message_exports_its_topics(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """The broker begins its own log."""
    builder = node()
    builder.topic("t", 2)
    store = exported(builder.save(), tmp_path / "out")
    assert (store.records, store.queues, store.log_files) == ({}, {}, {})
    assert list(store.config["topics.json"]["topicConfigTable"]) == ["t"]


def test_the_node_is_left_as_it_was(node: Callable[[], StoreBuilder], tmp_path: Path) -> None:
    """Not a byte below its directory changes but the lock's; the export has no draft left beside it."""
    builder = node()
    builder.topic("t")
    builder.send("t", 0, message("t", b"x"))
    directory = builder.save()

    def digests() -> dict[str, str]:
        files = [path for path in directory.rglob("*") if path.is_file() and path.name != "lock"]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = digests()
    exported(directory, tmp_path / "out")
    assert digests() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node", "out"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_body_that_a_producer_of_ours_compressed_is_one_that_rocketmq_decompresses(
    encoding: str, node: Callable[[], StoreBuilder], tmp_path: Path
) -> None:
    """From the SDK's message over the proxy's record to the exported file: the flags and bytes of RocketMQ's own clients."""
    body = b"".join(b"order %d of tea\n" % number for number in range(2_500))
    made = Compressor(ENCODINGS[encoding], 4_096).applied(OutgoingMessage(body=body, keys=["k"]))
    assert isinstance(made, CompressedMessage)
    encoded = encode_messages(
        Topic("orders", {"broker-a": TopicRoute(topic_id=7, queues=1, type="MIXED")}),
        [PackedMessage(made.body, keys=list(made.keys), content_encoding=made.content_encoding)],
        ids=MessageIds("0" * 20),
        born_ms=BORN_MS,
        born_host=NO_HOST,
        usable=("broker-a",),
    )
    builder = node()
    builder.topic("orders")
    builder.send("orders", 0, b"".join(encoded.parcels[0].parts))
    (found,) = exported(builder.save(), tmp_path / "store").shown("orders", 0)
    assert (found.compression, found.plain_body()) == (ENCODINGS[encoding], body)
    assert found.stored_body_crc == found.body_crc
