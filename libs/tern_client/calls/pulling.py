"""Reading a topic by offset: what a pull asks and answers, places in queues, and where they are kept. Nothing here waits.

A reader of its own keeps its own place: in memory, in a file, or at the brokers under a group that is its alone (a broadcast: a group a
client). Law: a place says what was handed out. Whoever commits only after the work is done sees a message again after a crash, and
loses none.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from tern_client.calls.documents import read_document
from tern_client.transport.exchange import Request, Response
from tern_wire import paths
from tern_wire.names import check_group, check_topic, parse_queue

# A topic that grows has new queues; its readers see them after this.
QUEUES_PERIOD_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledMessage:
    """One message that was read by offset. Times are ms since the epoch."""

    message_id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    content_type: str = ""
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    born_at: int
    stored_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledPage:
    """Messages of one queue, and where the next page begins: behind everything that was looked at, wanted or not."""

    messages: list[PulledMessage]
    next_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """What a pull consumer asks for. At most one of *tags* (`A || B`) and *sql*; *start* is for queues without a place."""

    topic: str
    start: str = "earliest"
    tags: str = ""
    sql: str = ""
    max_messages: int = 256
    max_bytes: int = 1 << 20

    def request(self, queue: str, place: int | None, wait_ms: int) -> Request:
        """One page of *queue* from *place* on (None: where this consumer starts)."""
        query: dict[str, str | int] = {
            "offset": self.start if place is None else place,
            "max_messages": self.max_messages,
            "max_bytes": self.max_bytes,
        }
        query |= {name: text for name, text in (("tags", self.tags), ("sql", self.sql)) if text}
        if wait_ms:
            query["wait"] = wait_ms
        path = paths.pull_path(check_topic(self.topic), str(parse_queue(queue, self.topic)))
        return Request("GET", f"{path}?{urlencode(query)}", (("Accept", paths.MSGPACK),), wait_ms=wait_ms)


def read_pulled(response: Response) -> PulledPage:
    """The page in an answer."""
    document = read_document(response)
    messages = [
        PulledMessage(
            message_id=message["message_id"],
            topic=message["topic"],
            queue=message["queue"],
            offset=message["offset"],
            body=message["body"],
            content_type=message.get("content_type", ""),
            tag=message.get("tag", ""),
            keys=tuple(message.get("keys", ())),
            properties=message.get("properties", {}),
            born_at=message["born_at"],
            stored_at=message["stored_at"],
        )
        for message in document["messages"]
    ]
    return PulledPage(
        messages=messages, next_offset=int(document["next_offset"]), max_offset=int(document["max_offset"])
    )


@dataclass(slots=True)
class Places:
    """Where a consumer is in each queue: what it asks next, and behind which message that it has handed out. Owned by one consumer."""

    asked: dict[str, int] = field(default_factory=dict)
    handed: dict[str, int] = field(default_factory=dict)
    # Messages that retention dropped before this consumer came to them.
    skipped: int = 0

    def begin(self, known: Mapping[str, int], queues: Iterable[str]) -> None:
        """Go on at *known* places of *queues*; others begin where the consumer starts."""
        for queue in queues:
            if queue in known:
                self.asked[queue] = self.handed[queue] = known[queue]

    def hand(self, page: PulledPage, queue: str, number: int) -> None:
        """Message *number* of *page* is handed out; with the last one, what the page passed over behind it is done as well.

        A page without messages is done with number -1.
        """
        is_last = number == len(page.messages) - 1
        self.handed[queue] = page.next_offset if is_last else page.messages[number].offset + 1

    def expired(self, queue: str, min_offset: int) -> None:
        """What was asked for is gone: go on with the oldest message kept."""
        self.skipped += max(0, min_offset - self.asked.get(queue, min_offset))
        self.asked[queue] = self.handed[queue] = min_offset


class OffsetStore(Protocol):
    """Where places are kept between two lives of a consumer."""

    def load(self) -> dict[str, int]:
        """Queue, written `broker-a:3`, to the next offset to read; {} at first."""
        ...

    def save(self, offsets: Mapping[str, int]) -> None:
        """Keep *offsets*, all of them."""
        ...


class MemoryOffsets:
    """Places that end with the process."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}

    def load(self) -> dict[str, int]:
        """As OffsetStore."""
        return dict(self._offsets)

    def save(self, offsets: Mapping[str, int]) -> None:
        """As OffsetStore."""
        self._offsets = dict(offsets)


class FileOffsets:
    """Places in a JSON file of this client's own: {"queue": offset}. Written whole: a crash leaves the old one or the new one."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> dict[str, int]:
        """As OffsetStore; ValueError when the file holds anything else."""
        try:
            found: Any = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        if not isinstance(found, dict) or not all(type(offset) is int and offset >= 0 for offset in found.values()):
            raise ValueError(f"{self._path} does not hold offsets; remove it to begin anew")
        return found

    def save(self, offsets: Mapping[str, int]) -> None:
        """As OffsetStore. Durable here: when it returns."""
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("w") as file:
            json.dump(dict(offsets), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Places committed at the brokers, under a consumer *group* that this client has for itself (`billing-host1`); made if need be."""

    group: str

    def request(self) -> Request:
        """Declare the group, with the defaults of a new one."""
        return Request("PUT", paths.group_path(check_group(self.group)), (("Content-Type", paths.JSON),), b"{}")
