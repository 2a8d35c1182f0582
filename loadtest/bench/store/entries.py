"""Entries as in a broker, made fast: one template of records, with ids and keys written in.

Queues and ids are written with arrays. Law: every byte is where `tern_broker` and the proxy put it
(entry head, command head, rows, records stamped with time and host). Two entries differ in message
ids, keys, queues and times, so that an index gets as many keys as there are messages.
"""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tern_wire.link.commands import COMMAND_HEAD, ENTRY_HEAD, SEND_HEAD, CommandKind, entry_parts
from tern_wire.link.rows import SEND_ROWS
from tern_wire.records.hosts import host_bytes
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.layout import AT_QUEUE_OFFSET, AT_STORE_STAMP
from tern_wire.records.properties import encode_properties, system_properties
from tern_wire.records.write import encode_record, stamp_stored

Parts = list[bytes | bytearray | memoryview]

ENTRY_SIZE_BYTES = 512 << 10
BODY_SIZE_BYTES = 1024
BORN_MS = 1_790_000_000_000
TAG = "paid"
_HOST = host_bytes("127.0.0.1", 10911)
_DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_NUMBER_LENGTH = 12
_ID_PREFIX = "7F000001A1B2C3D4E5F6"
_KEY_PREFIX = "order-"
_AT_QUEUE = AT_QUEUE_OFFSET - 8
_TOPIC_LENGTH = len("bench-000")
QUEUES_PER_TOPIC_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The form of the messages.

    *run* messages in a row go to one queue, then as many to the next; 0: a whole entry.
    """

    queues: int = 1
    run: int = 0
    has_key: bool = False
    has_tag: bool = False
    properties: int = 0
    entry_size_bytes: int = ENTRY_SIZE_BYTES
    body_size_bytes: int = BODY_SIZE_BYTES

    @property
    def topics(self) -> list[tuple[str, int]]:
        """Return name and queues of each topic; ids count from 1 if created in this order."""
        left, found = self.queues, list[tuple[str, int]]()
        while left:
            found.append((f"bench-{len(found):03d}", min(left, QUEUES_PER_TOPIC_MAX)))
            left -= found[-1][1]
        return found


class EntryMaker:
    """Entries of one shape, one after the other. The parts are valid until the next call."""

    def __init__(self, shape: Shape, seed: int = 1) -> None:
        rng = random.Random(seed)
        record = self._record(shape, rng.randbytes(shape.body_size_bytes))
        heads = ENTRY_HEAD.size + COMMAND_HEAD.size + SEND_HEAD.size
        self.count = max(1, (shape.entry_size_bytes - heads) // (len(record) + SEND_ROWS.itemsize))
        self.shape, self.record_size_bytes = shape, len(record)
        self.made = 0
        records = [self._record(shape, rng.randbytes(shape.body_size_bytes)) for _ in range(self.count)]
        self._records = bytearray(b"".join(records))
        self._table: npt.NDArray[np.uint8] = np.frombuffer(self._records, np.uint8).reshape(self.count, len(record))
        self._starts = np.arange(self.count, dtype=np.int64) * len(record)
        self._rows = np.zeros(self.count, SEND_ROWS)
        self._rows["size"], self._rows["tag"] = len(record), tag_hash(TAG) if shape.has_tag else 0
        self._rows["crc"] = self._table[:, 8:12].copy().view(">u4").reshape(-1)
        self._at_id = record.index(_ID_PREFIX.encode()) + len(_ID_PREFIX)
        self._at_key = record.index(_KEY_PREFIX.encode()) + len(_KEY_PREFIX) if shape.has_key else 0
        # The topic's three digits, behind the body.
        self._at_topic = record.index(b"bench-", AT_STORE_STAMP + shape.body_size_bytes) + len("bench-")

    def take(self) -> Parts:
        """Return the parts of the next entry's body."""
        numbers = np.arange(self.made, self.made + self.count, dtype=np.int64)
        self._write_number(self._at_id, numbers)
        if self._at_key:
            self._write_number(self._at_key, key_number(numbers))
        queues = numbers // (self.shape.run or self.count) % self.shape.queues
        topics, queues = queues // QUEUES_PER_TOPIC_MAX, queues % QUEUES_PER_TOPIC_MAX
        self._table[:, _AT_QUEUE : _AT_QUEUE + 4] = queues.astype(">u4").view(np.uint8).reshape(-1, 4)
        for place, power in enumerate((100, 10, 1)):
            self._table[:, self._at_topic + place] = ord("0") + topics // power % 10
        self._rows["topic"], self._rows["queue"] = topics + 1, queues
        now_ms = BORN_MS + self.made // self.count
        stamp_stored(self._records, self._starts, now_ms, _HOST)
        self.made += self.count
        send: Parts = [SEND_HEAD.pack(self.count, 0), self._rows.tobytes(), self._records]
        return entry_parts(now_ms, [(CommandKind.SEND, send)])

    def _write_number(self, at: int, numbers: npt.NDArray[np.int64]) -> None:
        for place in range(_NUMBER_LENGTH):
            self._table[:, at + place] = _DIGITS[numbers >> 4 * (_NUMBER_LENGTH - 1 - place) & 15]

    @staticmethod
    def _record(shape: Shape, body: bytes) -> bytes:
        keys = [_KEY_PREFIX + "0" * _NUMBER_LENGTH] if shape.has_key else []
        pairs = system_properties(_ID_PREFIX + "0" * _NUMBER_LENGTH, TAG if shape.has_tag else "", keys, "")
        pairs += [(f"name{number}", f"value-{number}") for number in range(shape.properties)]
        return encode_record(b"bench-000", 0, body, encode_properties(pairs), born_ms=BORN_MS, born_host=_HOST)


def key_number(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number in the key of each message.

    Neighbours have distant numbers, so that hashes do not run in order.
    """
    return numbers * 0x9E3779B1 & (1 << 4 * _NUMBER_LENGTH) - 1


def key_of(number: int) -> str:
    """Return the key of message *number*."""
    return f"{_KEY_PREFIX}{int(key_number(np.array([number]))[0]):012X}"


def id_of(number: int) -> str:
    """Return the id of message *number*."""
    return f"{_ID_PREFIX}{number:012X}"
