"""Batches of records for the key index, and what an index of them must answer, by the simplest means."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from tern_store.index.key_index import KeyIndex
from tern_wire.records.java_hashes import Numbers, slot_hash
from tern_wire.records.properties import encode_properties, system_properties
from tern_wire.records.write import encode_record

TOPICS = ("orders", "größe")
# Few, so that chains are long; two of them have one hash.
KEYS = ("Aa", "BB", "k1", "k2", "straße", "never")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records of one topic, as one call of `add` takes them, and their keys."""

    data: bytes
    starts: Numbers
    positions: Numbers
    stored_ms: int
    topic: str
    keys: list[list[str]]

    @property
    def end(self) -> int:
        """Where the next batch may begin in the log."""
        return int(self.positions[-1]) + 1000

    def add_to(self, index: KeyIndex) -> None:
        """Index this."""
        index.add(self.data, self.starts, self.positions, self.stored_ms, topic=self.topic.encode())


def batches(rng: random.Random, count: int, *, size_max: int = 12) -> list[Batch]:
    """*count* batches one behind the other in the log, their times rising by up to 3 s."""
    found, position, stored_ms = [], 100, 1_700_000_000_000
    for _ in range(count):
        records, keys = [], []
        for _ in range(rng.randint(1, size_max)):
            words = [rng.choice(KEYS[:-1]) for _ in range(rng.choice([0, 1, 1, 3]))]
            message_id = f"{rng.getrandbits(128):032X}"
            pairs = system_properties(message_id, "red", words, "")
            records.append(encode_record(b"any", 0, b"body", encode_properties(pairs), born_ms=1))
            keys.append([message_id, *words])
        sizes = np.array([len(record) for record in records], np.int64)
        starts = np.cumsum(sizes) - sizes
        topic = rng.choice(TOPICS)
        batch = Batch(
            data=b"".join(records),
            starts=starts,
            positions=starts + position,
            stored_ms=stored_ms,
            topic=topic,
            keys=keys,
        )
        found.append(batch)
        position, stored_ms = batch.end, stored_ms + rng.choice([0, 0, 1, 700, 3000])
    return found


def answers(indexed: list[Batch], topic: str, key: str, first_position: int = 0) -> list[int]:
    """Positions of the entries with the hash of `topic#key`, newest first."""
    wanted = _hash(topic, key)
    found = [
        int(position)
        for batch in indexed
        for position, keys in zip(batch.positions, batch.keys, strict=True)
        for one in keys
        if _hash(batch.topic, one) == wanted and position >= first_position
    ]
    return found[::-1]


@cache
def _hash(topic: str, key: str) -> int:
    return slot_hash(f"{topic}#{key}")


def questions(indexed: list[Batch]) -> Iterator[tuple[str, str]]:
    """Every key in every topic, and every 7th id."""
    for topic in TOPICS:
        yield from ((topic, key) for key in KEYS)
    ids = [(batch.topic, keys[0]) for batch in indexed for keys in batch.keys]
    yield from ids[::7]


def assert_answers(index: KeyIndex, indexed: list[Batch], first_position: int = 0) -> None:
    """The index finds exactly what it must, no more and nothing else, newest first."""
    for topic, key in questions(indexed):
        assert index.find(topic, key, count=1 << 20) == answers(indexed, topic, key, first_position)
