"""What a real RocketMQ broker wrote (tests/golden/rocketmq-5), part by part, and its own description of it."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tern_wire.records.read import RocketRecord, decode_rocketmq_record

GOLDEN = Path(__file__).parents[2] / "golden" / "rocketmq-5"
PARTS = (".", "v2", "ipv6")
# Tag codes in these are times, or the queue is made of records that are stored elsewhere.
NOT_ORDINARY = {"SCHEDULE_TOPIC_XX" + "XX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPart:
    """One store: its folder, RocketMQ's description, and each record's bytes in commit-log order."""

    folder: Path
    described: dict[str, Any]
    raw: list[bytes]

    @property
    def records(self) -> list[RocketRecord]:
        """The records, decoded."""
        return [decode_rocketmq_record(raw) for raw in self.raw]

    def index_files(self) -> list[bytes]:
        """The index files, the newest first."""
        return [path.read_bytes() for path in sorted((self.folder / "index").iterdir(), reverse=True)]


@cache
def golden_part(name: str) -> GoldenPart:
    """The part called *name*, one of PARTS."""
    folder = GOLDEN / name
    described = json.loads((folder / "messages.json").read_text("utf-8"))
    size_bytes, raw = described["commitLogFileSize"], []
    files = {int(path.name): path.read_bytes() for path in (folder / "commitlog").iterdir()}
    for row in described["records"]:
        first = row["physicalOffset"] // size_bytes * size_bytes
        at = row["physicalOffset"] - first
        raw.append(files[first][at : at + row["totalSize"]])
    return GoldenPart(folder=folder, described=described, raw=raw)
