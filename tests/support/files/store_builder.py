"""A stopped node's data directory with given messages, made with the store's own parts: log, consume queues, saved state, config."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tern_store.files import REAL_FILES
from tern_store.log.entry import HEADER_SIZE_BYTES, EntryKind
from tern_store.log.genesis import Genesis
from tern_store.small_files import write_abort, write_config
from tern_store.store import Store
from tern_wire.link.commands import COMMAND_HEAD, ENTRY_HEAD, SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import NO_KEY, QUEUE_ENTRIES, SEND_ROW, QueueAppend, QueueAppends
from tern_wire.records.compression import Compression, compress
from tern_wire.records.hosts import NO_HOST
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import KEYS, MESSAGE_ID, TAGS, encode_properties
from tern_wire.records.read import RocketRecord, decode_rocketmq_record
from tern_wire.records.write import encode_rocketmq_record
from tests.support.files.rocketmq_writing import compressed_sysflag

GROUP = Genesis(bytes(range(16)), ("broker-a-0",), 1 << 16)
BORN_MS = 1_795_000_000_000


class StoreBuilder:
    """One data directory being made. `send` and the like, then `save` once; nothing has the directory open afterwards."""

    def __init__(self, directory: Path, *, group: Genesis = GROUP) -> None:
        self.directory = directory
        self._store = Store.open(directory, group=group)
        self._topics: dict[str, tuple[int, int]] = {}
        self._tags: dict[int, int] = {}
        self.now_ms = BORN_MS

    def topic(self, name: str, queues: int = 1) -> int:
        """A topic; its id."""
        self._topics[name] = (len(self._topics) + 1, queues)
        return self._topics[name][0]

    def send(self, topic: str, queue: int, *records: bytes) -> list[tuple[int, int]]:
        """One entry with *records*, all for one queue, visible now; position and size of each."""
        return self._apply(topic, queue, records, [])

    def store(self, topic: str, queue: int, *records: bytes) -> list[tuple[int, int]]:
        """One entry with *records* that no queue shows yet, as those of delayed messages; position and size of each."""
        return self._apply(topic, queue, records, None)

    def deliver(self, topic: str, queue: int, *places: tuple[int, int]) -> None:
        """Records that are in the log, by reference, visible now."""
        self._apply(topic, queue, (), list(places))

    def move(self, topic: str, queue: int, offset: int, record: bytes) -> None:
        """What retention does for a message that is still needed: *record*, a copy, stands for it from now on."""
        ((position, size),) = self.store(topic, queue, record)
        self._store.moved.put(self._topics[topic][0], queue, offset, (position, size, self._tags[position]))

    def trim(self, topic: str, queue: int, min_offset: int) -> None:
        """Messages below *min_offset* are gone."""
        self._store.queues.trim(self._topics[topic][0], queue, min_offset)

    def save(self, *, clean: bool = True, offsets: Mapping[str, Mapping[str, int]] | None = None) -> Path:
        """Stop the node: *clean* without `abort`. *offsets*: `TOPIC@GROUP` to queue to committed offset. Returns the directory."""
        log = self._store.log
        save = self._store.save(log.mark(log.end_index), lambda: [b"the state machine's"])
        assert save.run()
        self._store.saved(save, is_saved=True)
        self._store.close()
        write_config(self.directory, "topics.json", {"topicConfigTable": self._table()}, REAL_FILES)
        groups = {key.partition("@")[2] for key in offsets or {}}
        table = {group: {"groupName": group} for group in groups}
        write_config(self.directory, "subscriptionGroup.json", {"subscriptionGroupTable": table}, REAL_FILES)
        write_config(self.directory, "consumerOffset.json", {"offsetTable": offsets or {}}, REAL_FILES)
        if not clean:
            write_abort(self.directory, 1, REAL_FILES)
        return self.directory

    def _apply(
        self, topic: str, queue: int, records: Sequence[bytes], shown: list[tuple[int, int]] | None
    ) -> list[tuple[int, int]]:
        """One entry with *records*; the queue shows *shown*, or the records themselves if that is empty, or nothing (None)."""
        topic_id = self._topics[topic][0]
        raw = [
            encode_rocketmq_record(replace(decode_rocketmq_record(record), queue_offset=0, position=0))
            for record in records
        ]
        rows = [SEND_ROW.pack(len(one), topic_id, queue, 0, 0, 0, 0, NO_KEY, 0, 0) for one in raw]
        payload: list[bytes | bytearray | memoryview] = [SEND_HEAD.pack(len(raw), 0), *rows, *raw]
        log = self._store.log
        parts = entry_parts(self.now_ms, [(CommandKind.SEND, payload)])
        entry = log.append(EntryKind.COMMANDS, log.end_index + 1, 1, parts, 1)
        at = entry.position + HEADER_SIZE_BYTES + ENTRY_HEAD.size + COMMAND_HEAD.size + SEND_HEAD.size
        at += len(rows) * SEND_ROW.size
        places = []
        for one in raw:
            self._tags[at] = tag_hash(decode_rocketmq_record(one).property_map().get(TAGS, ""))
            places.append((at, len(one)))
            at += len(one)
        if shown is not None:
            entries = np.zeros(len(shown or places), QUEUE_ENTRIES)
            for number, (position, size) in enumerate(shown or places):
                entries[number] = (position, size, self._tags[position])
            append = QueueAppend(topic_id, queue, self._store.queues.end(topic_id, queue), entries)
            self._store.dispatch(entry, QueueAppends.of([append]), {topic_id: topic.encode()}, self.now_ms)
        return places

    def _table(self) -> dict[str, object]:
        return {name: self._topic(name) for name in self._topics}

    def _topic(self, name: str) -> dict[str, object]:
        topic_id, queues = self._topics[name]
        attributes = {"+ternmq.topic.id": str(topic_id)}
        return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "attributes": attributes}


def message(
    topic: str,
    body: bytes,
    *,
    queue: int = 0,
    tag: str = "",
    keys: Sequence[str] = (),
    message_id: str = "",
    properties: Mapping[str, str] | None = None,
    compression: Compression = Compression.NONE,
    stored_ms: int = BORN_MS,
    flag: int = 0,
) -> bytes:
    """One record as a client of RocketMQ or a proxy would have it stored; *body* is compressed here."""
    pairs = {MESSAGE_ID: message_id, KEYS: " ".join(keys), TAGS: tag, **(properties or {})}
    stored = compress(body, compression)
    record = RocketRecord(
        version=1,
        body_crc=0,
        queue=queue,
        flag=flag,
        queue_offset=0,
        position=0,
        sysflag=compressed_sysflag(0, compression),
        born_ms=stored_ms - 5,
        born_host=NO_HOST,
        stored_ms=stored_ms,
        store_host=NO_HOST,
        attempts=0,
        prepared_position=0,
        body=stored,
        topic=topic.encode(),
        properties=encode_properties((name, value) for name, value in pairs.items() if value),
    )
    return encode_rocketmq_record(replace(record, body_crc=record.stored_body_crc))
