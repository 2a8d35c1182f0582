"""Reads of dead letters on the leader: pages of notes, and the notes of messages that are about to
be buried.

Law: nothing here changes anything, and every call reads a bounded number of bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.dead_topics import NOTES, ORIGINALS
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.lease import Cause, Death
from tern_broker.core.machine import StateMachine
from tern_broker.core.topics import Topic
from tern_store import Store
from tern_wire.dead_letters import EXPIRED, NACKED, REJECTED, Note
from tern_wire.link.commands import SEND_HEAD
from tern_wire.link.requests import Parts
from tern_wire.link.rows import BURY_ROWS
from tern_wire.records.columns import record_starts
from tern_wire.records.layout import HEAD_SIZE_BYTES
from tern_wire.records.properties import MESSAGE_GROUP, MESSAGE_ID, TAGS, decode_properties
from tern_wire.records.read import decode_record
from tern_wire.records.write import stamp_stored

# Messages buried by one command, with notes of some 300 bytes each; with the longest reasons 100
# KiB.
BURIED_MAX = 64
_CAUSES = {Cause.EXPIRED: EXPIRED, Cause.NACKED: NACKED, Cause.REJECTED: REJECTED}
_AT_BODY_SIZE = HEAD_SIZE_BYTES - 4


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter: its offset, its note (None: unreadable), and the place of the original."""

    offset: int
    note: Note | None
    original: npt.NDArray[Any]


class DeadLetterReader:
    """Of one node. Owner: the core loop. LogRot, DerivedDamage, StoreError if bytes that were read
    are damaged.
    """

    def __init__(self, store: Store, state: Callable[[], StateMachine], *, host: bytes) -> None:
        """*host*: this node's, in the form of records."""
        self._store, self._state, self._host = store, state, host

    def letters(self, group_id: int, offset: int, count: int) -> list[Letter]:
        """Return up to *count* dead letters from *offset* on; purged and redriven ones are left
        out.
        """
        letters = self._state().dead_letters
        topic = letters.topics.of(group_id)
        if topic is None:
            return []
        offset, count = max(offset, topic.mins[NOTES]), min(count, topic.ends[NOTES] - max(offset, topic.mins[NOTES]))
        if count <= 0:
            return []
        notes = self._store.read_queue(topic.topic_id, NOTES, offset, count)
        originals = self._store.read_queue(topic.topic_id, ORIGINALS, offset, len(notes))
        held = [number for number in range(len(originals)) if letters.holds(topic, group_id, offset + number)]
        data = self._read(notes["position"][held], notes["size"][held])
        return [
            Letter(offset + number, _note_at(data, start), originals[number : number + 1])
            for number, start in zip(held, record_starts(data).tolist(), strict=True)
        ]

    def bury_parts(self, now_ms: int) -> Parts:
        """Return a BURY of the messages that are dying now; an empty one if there are none."""
        rows: list[tuple[int, ...]] = []
        notes: list[bytes] = []
        for place, offset, death, dead in self._dying():
            _, topic_id, queue = place
            entry = self._store.read_queue(topic_id, queue, offset, 1)
            position, size, tag = entry[0].tolist() if len(entry) else (0, 0, 0)
            properties = self._properties(position, size) if size else {}
            note = Note(
                topic=self._state().names.topics_by_id[topic_id].name,
                topic_id=topic_id,
                queue=queue,
                offset=offset,
                message_id=properties.get(MESSAGE_ID, ""),
                tag=properties.get(TAGS, ""),
                attempts=death.attempts,
                cause=_CAUSES[Cause(death.cause)],
                reason=death.reason,
                died_ms=now_ms,
                message_group=properties.get(MESSAGE_GROUP, ""),
            ).record(dead.name, NOTES)
            rows.append((*place, size, offset, position, tag, len(note), dead.topic_id))
            notes.append(note)
        data = bytearray(b"".join(notes))
        stamp_stored(data, record_starts(data), now_ms, self._host)
        return [SEND_HEAD.pack(len(rows), 0), np.array(rows, BURY_ROWS).tobytes(), data]

    def _dying(self) -> Iterator[tuple[tuple[int, int, int], int, Death, Topic]]:
        """Yield (place, offset, death, dead-letter topic) of the first dying messages; places
        without any are dropped.
        """
        leasing, count = self._state().leasing, 0
        for place in list(leasing.condemned):
            delivery: Delivery | None = leasing.find(*place)
            dead = leasing.dead_topics.of(place[0])
            if delivery is None or dead is None or not delivery.dying:
                del leasing.condemned[place]
                continue
            for offset, death in delivery.dying.items():
                yield place, offset, death, dead
                count += 1
                if count == BURIED_MAX:
                    return

    def _properties(self, position: int, size: int) -> dict[str, str]:
        """Return the properties of the record at *position*; its body, which may be large, is not
        read.
        """
        head = self._read([position], [HEAD_SIZE_BYTES])
        skip = HEAD_SIZE_BYTES + int.from_bytes(head[_AT_BODY_SIZE:HEAD_SIZE_BYTES], "big")
        tail = self._read([position + skip], [size - skip])
        return decode_properties(bytes(tail[1 + tail[0] + 2 :]))

    def _read(self, positions: Any, sizes: Any) -> memoryview:
        return self._store.log.read_records(np.asarray(positions, np.int64), np.asarray(sizes, np.int64))


def _note_at(data: memoryview, start: int) -> Note | None:
    try:
        return Note.read(decode_record(data, start).properties)
    except (KeyError, ValueError):
        return None
