"""Reading a topic by offset: requests and answers of a pull, places in queues, and stores for
places. Nothing here waits.

A pull consumer keeps its own place: in memory, in a file, or at the brokers under a consumer group
of its own. In a broadcast, each client has its own group.

Law: a place counts the messages that were handed out. A program that commits only after its work
sees a message again after a crash, and loses none.
"""

import json
import os
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from tern_client.bodies.decoders import TypedBody
from tern_client.calls.compressed_bodies import decompressed
from tern_client.calls.documents import read_document
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_client.transport.exchange import Request, Response
from tern_wire import paths
from tern_wire.errors import TernError
from tern_wire.names import check_group, check_topic, parse_queue

# New queues of a topic that grows are found after this time.
QUEUES_PERIOD_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PulledMessage(TypedBody):
    """One message that was read by offset; `decode(Order)` returns its body as a value. Times are
    milliseconds since 1970.

    Example:

        from tern_client import BlockingProducer, BlockingPullConsumer, PulledMessage


        def show(message: PulledMessage) -> None:
            print(message.queue, message.offset, message.body)  # -> broker-a:0 0 b'order 17'


        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17")
        with BlockingPullConsumer("http://127.0.0.1:8080", "orders") as consumer:
            for message in consumer.until_idle():
                show(message)
    """

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
    content_encoding: str = ""
    refused: TernError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledPage:
    """Messages of one queue. The next page begins at `next_offset`, behind everything that was
    looked at, whether or not the filter passed it.
    """

    messages: list[PulledMessage]
    next_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Settings of a pull consumer. At most one of *tags* (`A || B`) and *sql*; *start* is for
    queues without a place.
    """

    topic: str
    start: str = "earliest"
    tags: str = ""
    sql: str = ""
    max_messages: int = 256
    max_bytes: int = 1 << 20

    def request(self, queue: str, place: int | None, wait_ms: int) -> Request:
        """Request one page of *queue* from *place* on. None: the consumer's start. The proxy waits
        up to *wait_ms* for a message.
        """
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


def pull(course: Course, request: Request, began_ms: float) -> Generator[Step, Outcome, PulledPage]:
    """Return the steps of one pull, with the bodies of its page decompressed. OffsetExpired."""
    page = read_pulled((yield from call(course, request, began_ms)))
    return replace(page, messages=(yield from decompressed(page.messages)))


def read_pulled(response: Response) -> PulledPage:
    """Return the page in *response*, its bodies as they are stored."""
    document = read_document(response)
    return PulledPage(
        messages=[pulled_message(message, message["body"]) for message in document["messages"]],
        next_offset=int(document["next_offset"]),
        max_offset=int(document["max_offset"]),
    )


def pulled_message(document: Mapping[str, Any], body: bytes) -> PulledMessage:
    """Return the message that *document* describes, with its *body* as it is stored."""
    return PulledMessage(
        message_id=document["message_id"],
        topic=document["topic"],
        queue=document["queue"],
        offset=document["offset"],
        body=body,
        content_type=document.get("content_type", ""),
        tag=document.get("tag", ""),
        keys=tuple(document.get("keys", ())),
        properties=document.get("properties", {}),
        born_at=document["born_at"],
        stored_at=document["stored_at"],
        content_encoding=document.get("content_encoding", ""),
    )


@dataclass(slots=True)
class Places:
    """The places of one consumer in its queues: the next offset to request, and the next offset to
    hand out. Owner: one consumer.
    """

    asked: dict[str, int] = field(default_factory=dict)
    handed: dict[str, int] = field(default_factory=dict)
    # Messages that retention dropped before this consumer read them.
    skipped: int = 0

    def begin(self, known: Mapping[str, int], queues: Iterable[str]) -> None:
        """Continue at the *known* places of *queues*. Other queues begin at the consumer's
        start.
        """
        for queue in queues:
            if queue in known:
                self.asked[queue] = self.handed[queue] = known[queue]

    def hand(self, page: PulledPage, queue: str, number: int) -> None:
        """Note that message *number* of *page* is handed out. The last message also finishes what
        the filter passed over behind it.

        *number* is -1 for a page without messages.
        """
        is_last = number == len(page.messages) - 1
        self.handed[queue] = page.next_offset if is_last else page.messages[number].offset + 1

    def expired(self, queue: str, min_offset: int) -> None:
        """Continue with *min_offset*, the oldest message that is kept, since the requested one was
        dropped.
        """
        self.skipped += max(0, min_offset - self.asked.get(queue, min_offset))
        self.asked[queue] = self.handed[queue] = min_offset


class OffsetStore(Protocol):
    """A store that keeps the places of a consumer from one run of the program to the next."""

    def load(self) -> dict[str, int]:
        """Return the next offset to read of each queue (`broker-a:3`); {} at first."""
        ...

    def save(self, offsets: Mapping[str, int]) -> None:
        """Keep *offsets*, which are all places."""
        ...


class MemoryOffsets:
    """Places that are lost when the process ends. The default of pull consumers.

    Example:

        from tern_client import BlockingProducer, BlockingPullConsumer, MemoryOffsets

        places = MemoryOffsets()
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17")
        with BlockingPullConsumer("http://127.0.0.1:8080", "orders", offsets=places) as consumer:
            print([message.body for message in consumer.until_idle()])  # -> [b'order 17']
            consumer.commit()
        print(places.load())  # -> {'broker-a:0': 1}
    """

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}

    def load(self) -> dict[str, int]:
        """Return the offsets that were saved last."""
        return dict(self._offsets)

    def save(self, offsets: Mapping[str, int]) -> None:
        """Keep *offsets* in memory."""
        self._offsets = dict(offsets)


class FileOffsets:
    """Places in a JSON file that only this client uses: {"queue": offset}. A crash leaves the
    previous content or the new one, both whole.

    Example:

        from tern_client import BlockingProducer, BlockingPullConsumer, FileOffsets

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17")
        for run in (1, 2):
            places = FileOffsets("places.json")
            consumer = BlockingPullConsumer("http://127.0.0.1:8080", "orders", offsets=places)
            with consumer:
                for message in consumer.until_idle():
                    print(run, message.body)  # -> 1 b'order 17'
                consumer.commit()
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> dict[str, int]:
        """Return the offsets in the file, {} when there is no file; ValueError when it holds
        anything else.
        """
        try:
            found: Any = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        if not isinstance(found, dict) or not all(type(offset) is int and offset >= 0 for offset in found.values()):
            raise ValueError(f"{self._path} does not hold offsets; remove it to begin anew")
        return found

    def save(self, offsets: Mapping[str, int]) -> None:
        """Replace the file. Durable here: when this method returns."""
        beside = self._path.with_name(self._path.name + ".new")
        with beside.open("w") as file:
            json.dump(dict(offsets), file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Places committed at the brokers under a consumer *group* that only this client uses, such as
    `billing-host1`. The group is created when it does not exist.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer, BlockingPullConsumer, GroupOffsets

        places = GroupOffsets("billing-host1")
        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 17")
        with BlockingPullConsumer("http://127.0.0.1:8080", "orders", offsets=places) as consumer:
            print([message.body for message in consumer.until_idle()])  # -> [b'order 17']
            consumer.commit()
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            print(admin.group_offsets("billing-host1", "orders"))  # -> {'broker-a:0': 1}
    """

    group: str

    def request(self) -> Request:
        """Request to declare the group with the defaults of a new one."""
        return Request("PUT", paths.group_path(check_group(self.group)), (("Content-Type", paths.JSON),), b"{}")
