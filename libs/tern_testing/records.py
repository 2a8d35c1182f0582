"""What a test asks the mesh about: messages that were sent, and dead letters, as values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_proxy.core.documents.messages import ReadMessage
from tern_proxy.core.reading.delivery import put_bytes, read_records

# Queue entries that are read at a time.
_PAGE_ENTRIES = 1_024
_EVER_MS = 1 << 47
# Positions and sizes of records in the log, and the offset of the first one; None: they wait.
_Run = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message that is stored in a topic. Times are milliseconds since 1970.

    `offset` is -1 while the message waits for its delivery time, `deliver_at`.

    Example:

        import asyncio

        from tern_testing import SentMessage, TestMesh


        async def main() -> None:
            async with TestMesh() as mesh, mesh.producer() as producer:
                await producer.send("orders", b"order 1", tag="new")
                sent: list[SentMessage] = mesh.sent("orders")
                print(sent[0].body, sent[0].tag)  # -> b'order 1' new


        asyncio.run(main())
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
    message_group: str = ""
    deliver_at: int = 0
    born_at: int = 0
    stored_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that a consumer group has given up. Times are milliseconds since 1970.

    `topic`, `queue` and `offset` are those of the message in its topic. `cause` is
    `expired`, `nacked` or `rejected`; `reason` is what the consumer gave with `dead_letter`.

    Example:

        import asyncio

        from tern_testing import DeadLetter, TestMesh


        async def main() -> None:
            async with TestMesh() as mesh, mesh.producer() as producer:
                await producer.send("orders", b"order 1")
                async with mesh.consumer("orders", "billing") as consumer:
                    (message,) = await consumer.receive()
                    await consumer.dead_letter("no such shop", message)
                letters: list[DeadLetter] = mesh.dead_letters("billing")
                print(letters[0].body, letters[0].reason)  # -> b'order 1' no such shop


        asyncio.run(main())
    """

    message_id: str
    topic: str
    queue: str
    offset: int
    body: bytes
    attempts: int
    cause: str
    reason: str
    dead_at: int
    tag: str = ""
    keys: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def sent_messages(engine: Engine, name: str, broker_group: str) -> list[SentMessage]:
    """All messages of topic *name* in the order in which they were stored; [] without the topic."""
    topic = engine.state.names.topics.get(name)
    if topic is None:
        return []
    found: dict[int, SentMessage] = {}
    for positions, sizes, offset in (*_queued(engine, topic), *_waiting(engine, topic)):
        data = bytes(engine.store.log.read_records(positions, sizes))
        for at, message in enumerate(read_records(data, name, broker_group, put_bytes)):
            # A redriven message has two entries and one record.
            found.setdefault(int(positions[at]), _sent(message, offset + at if offset is not None else -1))
    return [found[position] for position in sorted(found)]


def _queued(engine: Engine, topic: Topic) -> Iterator[_Run]:
    for queue, end in enumerate(topic.ends):
        offset = topic.mins[queue]
        while offset < end:
            entries = engine.store.read_queue(topic.topic_id, queue, offset, min(_PAGE_ENTRIES, end - offset))
            if not len(entries):
                break
            yield entries["position"].astype(np.int64), entries["size"].astype(np.int64), offset
            offset += len(entries)


def _waiting(engine: Engine, topic: Topic) -> Iterator[_Run]:
    for _, rows in engine.store.timers.walk(0, _EVER_MS):
        own = rows[rows["topic_id"] == topic.topic_id]
        if len(own):
            yield own["position"].astype(np.int64), own["size"].astype(np.int64), None


def _sent(message: ReadMessage, offset: int) -> SentMessage:
    fields = ("content_type", "tag", "message_group", "deliver_at", "properties")
    given = {name: value for name in fields if (value := getattr(message, name)) is not UNSET}
    assert isinstance(message.body, bytes)
    return SentMessage(
        message_id=message.message_id,
        topic=message.topic,
        queue=message.queue,
        offset=offset,
        body=message.body,
        keys=tuple(message.keys) if message.keys is not UNSET else (),
        born_at=message.born_at,
        stored_at=message.stored_at,
        **given,
    )


def dead_letter(row: Mapping[str, Any]) -> DeadLetter:
    """The value of one row of the API's list of dead letters."""
    death = row["dlq"]
    return DeadLetter(
        message_id=row["message_id"],
        topic=death["origin"]["topic"],
        queue=death["origin"]["queue"],
        offset=death["origin"]["offset"],
        body=row["body"],
        attempts=death["attempts"],
        cause=death["cause"],
        reason=death["reason"],
        dead_at=death["dead_at"],
        tag=row.get("tag", ""),
        keys=tuple(row.get("keys", ())),
        properties=row.get("properties", {}),
    )
