"""What a broker in memory holds, and what tests put there without a proxy: topics, groups, producer groups, transactions, principals."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tern_broker.core.transactions.open_transactions import PARKED, read_messages
from tern_broker.core.transactions.producers import ProducerGroup
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import FLAG_HALF, FLAG_SAME_TRANSACTION, NO_KEY, PREPARED, SEND_ROW
from tern_wire.records.properties import (
    MESSAGE_ID,
    PRODUCER_GROUP,
    TRANSACTIONAL,
    encode_properties,
    system_properties,
)
from tern_wire.records.write import encode_record
from tern_wire.routing.placement import Placement
from tern_wire.settings.producer_settings import ProducerSettings
from tern_wire.settings.topic_settings import ALTER, DECLARE
from tests.support.broker.loop_runtime import NOW_MS
from tests.support.broker.memory_broker import MemoryBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that has not ended. *halves*: topic, queue, record of each half message; *check_at_ms*: of its next check."""

    number: int
    producer_group: str
    begun_ms: int
    check_at_ms: int
    attempts: int
    is_expired: bool
    halves: list[tuple[str, int, bytes]]


def open_transactions(broker: MemoryBroker) -> dict[int, OpenTransaction]:
    """Transactions that have not ended, by number."""
    transactions, names = broker.engine.state.transactions, broker.engine.state.names
    table = transactions.table
    found = {}
    for slot in table.used().tolist():
        halves = [
            (names.topics_by_id[int(row["topic"])].name, int(row["queue"]), record_at(broker, row))
            for row in read_messages(table.messages[slot])
        ]
        number = table.get("number", slot)
        found[number] = OpenTransaction(
            number=number,
            producer_group=transactions.producers.by_id[table.get("group", slot)].name,
            begun_ms=table.get("begun_ms", slot),
            check_at_ms=table.get("at_ms", slot),
            attempts=table.get("attempts", slot),
            is_expired=table.get("phase", slot) == PARKED,
            halves=halves,
        )
    return found


def record_at(broker: MemoryBroker, row: Any) -> bytes:
    """The record that a row with `position` and `size` names."""
    return bytes(broker.engine.store.log.read_records(row["position"].reshape(1), row["size"].reshape(1).astype("<i8")))


def producer_groups(broker: MemoryBroker) -> dict[str, ProducerGroup]:
    """Producer groups by name."""
    return broker.engine.state.producers.by_name


def declare_producers(
    broker: MemoryBroker, names: Iterable[str], settings: ProducerSettings | None = None, *, revision: int = 0
) -> None:
    """Producer groups, decided by nobody unless *revision* says so."""
    for name in names:
        change = {"producer_group": name, "create": True, **(settings or ProducerSettings()).packed()}
        broker.propose(CommandKind.ALTER_PRODUCER_GROUP, change | ({"least_revision": revision} if revision else {}))


def delete_producers(broker: MemoryBroker, name: str) -> None:
    """No producer group *name* any more."""
    assert broker.propose(CommandKind.DELETE_PRODUCER_GROUP, {"producer_group": name})["deleted"]


def expire_transactions(broker: MemoryBroker, producer_group: str) -> None:
    """Let all checks of the group's open transactions be in vain, since nobody asks for them."""
    kept = producer_groups(broker)[producer_group].settings

    def alter(**settings: int) -> None:
        change = {"producer_group": producer_group, **settings}
        broker.propose(CommandKind.ALTER_PRODUCER_GROUP, change)

    alter(max_checks=1, check_interval_ms=1_000)
    for _ in range(4):
        broker.pass_time(3_600_000)
    alter(max_checks=kept.max_checks, check_interval_ms=kept.check_interval_ms)
    left = [one for one in open_transactions(broker).values() if one.producer_group == producer_group]
    assert all(one.is_expired for one in left)


def store(broker: MemoryBroker, topic: str, queue: int, bodies: Iterable[bytes]) -> None:
    """Messages in one queue, as if a proxy had sent them."""
    topic_id, rows, records = broker.topics[topic].topic_id, [], []
    for number, body in enumerate(bodies):
        properties = encode_properties([(MESSAGE_ID, f"{broker.engine.store.log.end_index:016X}{number:016X}")])
        record = encode_record(topic.encode(), queue, body, properties, born_ms=NOW_MS)
        crc = int.from_bytes(record[8:12], "big")
        rows.append(SEND_ROW.pack(len(record), topic_id, queue, 0, 0, crc, 0, NO_KEY, 0, 0))
        records.append(record)
    payload = SEND_HEAD.pack(len(rows), 0) + b"".join(rows) + b"".join(records)
    broker.submit(CommandKind.SEND, payload)


def begin_transactions(
    broker: MemoryBroker, topic: str, producer_group: str, transactions: Iterable[tuple[bytes, ...]]
) -> list[int]:
    """Begin transactions, each of messages with these bodies in queue 0, in one entry; return their
    numbers. The n-th one, from 0, has messages with the ids `IDn-0`, `IDn-1`, ...
    """
    topic_id, group_id = broker.topics[topic].topic_id, producer_groups(broker)[producer_group].producer_group_id
    rows, records = [], []
    for number, bodies in enumerate(transactions):
        for at, body in enumerate(bodies):
            own = system_properties(f"ID{number}-{at}", "TagA", ["k1", "k2"], "text/plain")
            others = [(PRODUCER_GROUP, producer_group), (TRANSACTIONAL, "true"), ("colour", "blue")]
            record = encode_record(topic.encode(), 0, body, encode_properties([*own, *others]), born_ms=NOW_MS)
            crc, flags = int.from_bytes(record[8:12], "big"), FLAG_HALF | (FLAG_SAME_TRANSACTION if at else 0)
            rows.append(SEND_ROW.pack(len(record), topic_id, 0, flags, 0, crc, group_id, NO_KEY, 0, 0))
            records.append(record)
    verdicts = broker.submit(CommandKind.SEND, SEND_HEAD.pack(len(rows), 0) + b"".join((*rows, *records)))
    assert set(verdicts["status"].tolist()) == {PREPARED}
    return list(dict.fromkeys(verdicts["offset"].tolist()))


def replicate(broker: MemoryBroker, leader: MemoryBroker) -> None:
    """Append to the log of *broker*, and apply, what that of *leader* has beyond it, as a follower
    does.
    """
    raft, log = broker.engine.raft, broker.engine.store.log
    for index in range(log.end_index + 1, leader.engine.raft.applied_index + 1):
        entry = leader.engine.store.log.entry(index)
        raft._consensus.journal.append_parts([entry.body], entry.term, entry.version, kind=entry.kind)
    raft._consensus._SyncObj__raftCommitIndex = log.end_index
    raft._consensus._end_gathering()  # a follower's run, which otherwise waits for a timer
    broker.runtime.turn()
    assert raft.applied_index == leader.engine.raft.applied_index


def commit_offsets(broker: MemoryBroker, group: str, topic: str, offsets: dict[int, int]) -> None:
    """The group has read the topic up to *offsets*, by queue."""
    command = {"group": group, "topic": topic, "offsets": {str(queue): offset for queue, offset in offsets.items()}}
    broker.propose(CommandKind.COMMIT_OFFSETS, {**command, "expected": {}})


def forget_messages(broker: MemoryBroker, topic: str, queue: int, before: int) -> None:
    """The oldest offset of the queue is *before*, as retention leaves it."""
    broker.topics[topic].mins[queue] = before


def forget_principals(broker: MemoryBroker) -> None:
    """The broker group was made anew: it has no principals."""
    principals = broker.engine.state.principals
    principals.unpack(type(principals)().pack())


def delete_topic(broker: MemoryBroker, name: str) -> None:
    """No topic *name* any more."""
    assert broker.propose(CommandKind.DELETE_TOPIC, {"topic": name})["deleted"]


def delete_group(broker: MemoryBroker, name: str) -> None:
    """No consumer group *name* any more."""
    assert broker.propose(CommandKind.DELETE_GROUP, {"group": name})["deleted"]


def place_topic(broker: MemoryBroker, name: str, placement: Placement, queues: int = 4) -> None:
    """The broker group has the topic, and was told *placement*."""
    mode = ALTER if name in broker.topics else DECLARE
    broker.create_topic(name, queues, mode=mode, placement=str(placement), own=broker.broker_group)


def placements(brokers: Iterable[MemoryBroker], topic: str) -> list[str]:
    """The placement of *topic* in each broker group; `-` where it is not."""
    return [broker.topics[topic].placement_text if topic in broker.topics else "-" for broker in brokers]
