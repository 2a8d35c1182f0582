"""Transactions of a whole broker with its files: found by key after the commit only, kept by retention while open, there after every restart."""

import random
from pathlib import Path

import pytest

from tern_broker.core.transactions.open_transactions import PARKED, read_messages
from tern_broker.reading.queries import KeyQuery
from tern_store import small_files
from tern_store.errors import DerivedDamage
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import FLAG_HALF, FLAG_SAME_TRANSACTION, NO_KEY, PREPARED, SEND_ROW
from tern_wire.records.layout import AT_STORE_STAMP
from tern_wire.records.properties import KEYS, MESSAGE_ID, PRODUCER_GROUP, TRANSACTIONAL, encode_properties
from tern_wire.records.write import encode_record
from tern_wire.transactions import BY_CLIENT, COMMIT, END_ROW, ENDED, ROLLBACK
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles

QUEUES, DAY_MS = 2, 24 * HOUR_MS
TOPICS = ("t", "u")
# How the messages of `fill_segments` begin; they have no keys.
FILLER = bytes(6)


class Model:
    """One broker and what must be so. Every message has a key of its own, its body's number. Owner: one test."""

    def __init__(self, seed: int) -> None:
        self.rng, self.files = random.Random(seed), FaultyFiles()
        self.broker = SingleBroker(self.files)
        self.topics = {name: self.broker.create(name, QUEUES, f"g{name}")[0] for name in TOPICS}
        request = {"producer_group": "p", "create": True, "check_after_ms": HOUR_MS, "max_checks": 1}
        verdict = self.broker.ask(CommandKind.ALTER_PRODUCER_GROUP, encode_msgpack(request))
        self.producer_group_id = int(verdict["producer_group_id"])
        # Number -> [(topic, queue, body)]; the bodies of every queue by offset; what was rolled back.
        self.open: dict[int, list[tuple[str, int, bytes]]] = {}
        self.queues: dict[tuple[str, int], list[bytes]] = {
            (name, queue): [] for name in TOPICS for queue in range(QUEUES)
        }
        self.gone: list[tuple[str, bytes]] = []
        self._sent = 0

    # Steps -----------------------------------------------------------------------------------------------------
    def begin(self, count: int = 0) -> None:
        """Some transactions of one to three messages, in one entry."""
        rows, records, wanted = [], [], []
        for _ in range(count or self.rng.choice([1, 1, 5])):
            messages = []
            for number in range(self.rng.choice([1, 1, 3])):
                self._sent += 1
                name, queue, body = self.rng.choice(TOPICS), self.rng.randrange(QUEUES), b"%06d" % self._sent
                row, record = self._half(name, queue, body, number)
                rows.append(row)
                records.append(record)
                messages.append((name, queue, body))
            wanted.append(messages)
        verdicts = self.broker.ask(CommandKind.SEND, SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records))
        assert set(verdicts["status"].tolist()) == {PREPARED}
        numbers = list(dict.fromkeys(verdicts["offset"].tolist()))
        self.open |= dict(zip(numbers, wanted, strict=True))

    def _half(self, name: str, queue: int, body: bytes, number: int) -> tuple[bytes, bytes]:
        pairs = [
            (MESSAGE_ID, f"{self._sent:032X}"),
            (KEYS, body.decode()),
            (TRANSACTIONAL, "true"),
            (PRODUCER_GROUP, "p"),
        ]
        record = encode_record(name.encode(), queue, body + bytes(1_800), encode_properties(pairs), born_ms=5)
        record = (
            record[:AT_STORE_STAMP] + self.broker.proposer.now_ms().to_bytes(8, "big") + record[AT_STORE_STAMP + 8 :]
        )
        crc, flags = int.from_bytes(record[8:12], "big"), FLAG_HALF | (FLAG_SAME_TRANSACTION if number else 0)
        row = (len(record), self.topics[name], queue, flags, 0, crc, self.producer_group_id, NO_KEY, 0, 0)
        return SEND_ROW.pack(*row), record

    def send(self) -> None:
        """An ordinary message, which is visible at once."""
        self._sent += 1
        name, queue, body = self.rng.choice(TOPICS), self.rng.randrange(QUEUES), b"%06d" % self._sent
        self.broker.send(name, (queue, body + bytes(9_000)), keys=body.decode())
        self.queues[name, queue].append(body)

    def end(self, outcome: int = 0) -> None:
        """Some of the open ones, any age, in one entry; by hand, since time may have parked them."""
        for number in self.rng.sample(sorted(self.open), min(len(self.open), self.rng.choice([1, 1, 4]))):
            messages, chosen = self.open.pop(number), outcome or self.rng.choice([COMMIT, COMMIT, ROLLBACK])
            request = {"number": number, "producer_group_id": self.producer_group_id, "outcome": chosen, "reason": "r"}
            verdict = self.broker.ask(CommandKind.RESOLVE_TRANSACTION, encode_msgpack(request))
            assert (verdict["status"], verdict["messages"]) == (ENDED, len(messages))
            for name, queue, body in messages:
                if chosen == COMMIT:
                    self.queues[name, queue].append(body)
                else:
                    self.gone.append((name, body))

    def end_together(self) -> None:
        """All that a client may still end, committed by one entry."""
        table = self.broker.state.transactions.table
        numbers = [number for number in self.open if table.get("phase", table.slots[number]) != PARKED]
        if not numbers:
            return
        rows = b"".join(END_ROW.pack(number, 0, self.producer_group_id, COMMIT, BY_CLIENT) for number in numbers)
        verdicts = self.broker.ask(CommandKind.END_TRANSACTIONS, rows)
        assert set(verdicts["status"].tolist()) == {ENDED}
        for number in numbers:
            for name, queue, body in self.open.pop(number):
                self.queues[name, queue].append(body)

    def pass_time(self) -> None:
        """A moment, or days; checks come due, and nobody asks."""
        self.broker.pass_time(self.rng.choice([1, 60_000, 7 * HOUR_MS, 2 * DAY_MS]))

    def save(self) -> None:
        """A saved state."""
        self.broker.save()

    def retain(self) -> None:
        """Days later retention copies what is open in old segments, and drops them."""
        self.broker.pass_time(4 * DAY_MS)
        self.broker.save()
        self.broker.trimmer.trim_now()
        self.broker.retain(steps=6)

    def restart(self) -> None:
        """The process ends, or the machine; perhaps everything is made again from the log."""
        mono_ms = self.broker.mono_ms
        self.broker.close()
        if self.rng.random() < 0.5:
            self.files.crash(self.rng)
        if self.rng.random() < 0.4:
            small_files.request_rebuild(
                DIRECTORY, DerivedDamage(Path("/data/index/0"), 0, "a test says so"), self.files
            )
        self.broker = SingleBroker(self.files)
        self.broker.mono_ms = mono_ms

    # What must be so -------------------------------------------------------------------------------------------
    def found(self, name: str, key: str) -> list[tuple[bytes, int]]:
        """Bodies and offsets of what a query by *key* gives."""
        broker = self.broker
        topic = broker.state.names.topics[name]
        limits = {"begin_ms": 0, "end_ms": 1 << 60, "count": 9, "size_max_bytes": 1 << 20}
        query = KeyQuery(store=broker.store, topic=topic, key=key, **limits)  # type: ignore[arg-type]
        for _ in query.steps():
            pass
        return [(found.record.body[:6], found.offset) for found in query.found]

    def check(self) -> None:
        """Queues hold what was committed, in that order; keys find that and nothing else."""
        state = self.broker.state
        assert sorted(state.transactions.table.slots) == sorted(self.open)
        for (name, queue), bodies in self.queues.items():
            topic = state.names.topics[name]
            assert topic.ends[queue] == len(bodies)
            first = topic.mins[queue]
            assert [body[:6] for body in self.broker.pull(topic.topic_id, queue, first)] == bodies[first:]
            for offset in (offset for offset in range(first, len(bodies)) if bodies[offset] != FILLER):
                assert self.found(name, bodies[offset].decode()) == [(bodies[offset], offset)]
        hidden = [(name, body) for messages in self.open.values() for name, _, body in messages]
        for name, body in [*hidden, *self.gone]:
            assert self.found(name, body.decode()) == []
        for number in self.open:
            data = state.transactions.table.messages[state.transactions.table.slots[number]]
            assert [body[:6] for body in self.broker.bodies(read_messages(data))] == [
                body for _, _, body in self.open[number]
            ]


@pytest.mark.parametrize("seed", range(10))
def test_transactions_survive_whatever_happens_to_a_broker(seed: int) -> None:
    """Begins, ends, days, saves, retention and restarts by chance: nothing shows too early, nothing committed is lost or moved."""
    model = Model(seed)
    steps = [model.begin, model.begin, model.begin, model.send, model.send, model.end, model.end, model.end_together]
    steps += [model.pass_time, model.save, model.retain, model.retain, model.restart]
    for _ in range(90):
        model.rng.choice(steps)()
        if model.rng.random() < 0.2:
            model.check()
    model.check()


def test_retention_keeps_what_is_open_and_commits_it_from_the_copy() -> None:
    """The segment of the half messages is gone, and with it all that was older; a client commits weeks later, by hand."""
    model = Model(1)
    model.begin(4)
    table = model.broker.state.transactions.table
    before = {number: data for number, slot in table.slots.items() for data in [table.messages[slot]]}
    model.broker.fill_segments("t", 2)
    model.broker.pass_time(9 * DAY_MS)
    model.retain()
    store = model.broker.store
    assert store.log.start.position > 0
    table = model.broker.state.transactions.table
    for number, data in before.items():
        moved = read_messages(table.messages[table.slots[number]])["position"]
        assert (moved > read_messages(data)["position"]).all()
        assert (moved >= store.log.start.position).all()
    model.queues["t", 0] = [FILLER] * model.broker.state.names.topics["t"].ends[0]
    while model.open:
        model.end(COMMIT)
    model.check()
    small_files.request_rebuild(DIRECTORY, DerivedDamage(Path("/data/index/0"), 0, "a test says so"), model.files)
    model.broker.close()
    model.broker = SingleBroker(model.files)
    model.check()


def test_a_commit_before_the_logs_beginning_is_made_again_from_its_copy() -> None:
    """Committed, then copied forward as a message and its old segment dropped; derived files made again find it under its key once."""
    model = Model(2)
    model.begin(3)
    model.broker.fill_segments("u", 1)
    fillers = {key: model.broker.state.names.topics[key[0]].ends[key[1]] for key in model.queues}
    model.queues = {key: [FILLER] * count for key, count in fillers.items()}
    model.broker.pass_time(9 * DAY_MS)
    while model.open:
        model.end(COMMIT)
    model.retain()
    assert model.broker.store.log.start.position > 0
    model.check()
    for _ in range(2):
        model.broker.close()
        small_files.request_rebuild(DIRECTORY, DerivedDamage(Path("/data/index/0"), 0, "a test says so"), model.files)
        model.broker = SingleBroker(model.files)
        model.check()
