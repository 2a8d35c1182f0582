"""An exported store, and how tests read it: the slow and plain way, by the facts of RocketMQ's format."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_wire.records.index_layout import look_up
from tern_wire.records.layout import BLANK, MAGIC_BLANK
from tern_wire.records.queue_entry import QueueEntry, read_queue_entries
from tern_wire.records.read import RocketRecord, decode_rocketmq_record

# Small, so that a few messages fill several files of every kind.
SEGMENT_SIZE_BYTES, QUEUE_ENTRIES_PER_FILE, SLOTS, INDEX_ENTRIES = 16 << 10, 50, 64, 256


def export(node: Path, target: Path, *words: object) -> Result:
    """What `ternmq store export` does, with small files."""
    log = ("--segment-size", SEGMENT_SIZE_BYTES, "--queue-entries", QUEUE_ENTRIES_PER_FILE)
    index = ("--index-slots", SLOTS, "--index-entries", INDEX_ENTRIES)
    return CliRunner().invoke(
        app, [str(word) for word in ("store", "export", target, "--data-dir", node, *log, *index, *words)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketStore:
    """Everything in a small store's files. *records*: by position; *queues*: by topic and queue; *blanks*: position to size."""

    records: dict[int, RocketRecord]
    queues: dict[tuple[str, int], list[QueueEntry]]
    blanks: dict[int, int]
    log_files: dict[int, int]
    queue_files: dict[tuple[str, int], dict[int, int]]
    index_files: list[bytes]
    config: dict[str, Any]
    slots: int

    def shown(self, topic: str, queue: int) -> list[RocketRecord]:
        """The queue's records by its entries."""
        return [self.records[entry.position] for entry in self.queues[topic, queue]]

    def find(self, topic: str, key: str) -> list[RocketRecord]:
        """The records that the index finds, the newest first."""
        return [self.records[position] for position in look_up(self.index_files, topic, key, slots=self.slots)]


def read_rocketmq_store(directory: Path, slots: int) -> RocketStore:
    """The store in *directory*, whose index files have *slots*."""
    log = sorted((directory / "commitlog").iterdir())
    records: dict[int, RocketRecord] = {}
    blanks: dict[int, int] = {}
    for path in log:
        data, at = path.read_bytes(), 0
        while at + BLANK.size <= len(data) and any(data[at : at + BLANK.size]):
            size, magic = BLANK.unpack_from(data, at)
            if magic == MAGIC_BLANK:
                blanks[int(path.name) + at] = size
                at = len(data)
                continue
            records[int(path.name) + at] = decode_rocketmq_record(data, at)
            at += size
        assert not any(data[at:]), f"{path}: something behind the end of the log, at {at}"
    queues: dict[tuple[str, int], list[QueueEntry]] = {}
    queue_files: dict[tuple[str, int], dict[int, int]] = {}
    for folder in sorted((directory / "consumequeue").glob("*/*")):
        key = (folder.parent.name, int(folder.name))
        queue_files[key] = {int(path.name): path.stat().st_size for path in sorted(folder.iterdir())}
        queues[key] = []
        for path in sorted(folder.iterdir()):
            queues[key] += read_queue_entries(path.read_bytes(), int(path.name) // 20)[0]
    return RocketStore(
        records=records,
        queues=queues,
        blanks=blanks,
        log_files={int(path.name): path.stat().st_size for path in log},
        queue_files=queue_files,
        index_files=[path.read_bytes() for path in sorted((directory / "index").iterdir(), reverse=True)],
        config={path.name: json.loads(path.read_text()) for path in (directory / "config").iterdir()},
        slots=slots,
    )
