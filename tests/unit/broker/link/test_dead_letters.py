"""Dead letters on a real store: buried once, read, purged; what retention, a restart and the offline check make of them."""

import random

import pytest

from tern_broker.core.dead_topics import NOTES, ORIGINALS
from tern_broker.reading.dead_letter_reader import BURIED_MAX
from tern_store import small_files
from tern_store.checks.verification import verify_directory
from tern_wire.dead_letters import ORIGIN_GONE
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.rows import BURIED, BURY_ROWS, NOT_DYING
from tests.support.broker.dead_letter_broker import DeadLetterBroker
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS
from tests.support.files.faulty_files import FaultyFiles


def test_a_dead_letter_points_at_the_original_and_a_note_says_where_it_came_from_and_why() -> None:
    """Nothing is copied: the entry has the original's place. Then the message is settled, and the group's offset moves on."""
    dead_letters = DeadLetterBroker()
    topic_id, group_id = dead_letters.create(attempts=2)
    dead_letters.broker.send("t", (0, b"one"), (0, b"two"), tag="A")
    dead_letters.reject("no such shop\x01 \x02!")
    for _ in range(2):
        dead_letters.broker.pass_time(60_000)
        assert dead_letters.nack(1) == [(0, 1)]
    assert dead_letters.notes(group_id) == []
    dead_letters.work()
    first, second = dead_letters.notes(group_id)
    assert (first.topic, first.topic_id, first.queue, first.offset) == ("t", topic_id, 0, 0)
    assert (first.attempts, first.cause, first.reason, first.tag) == (1, "rejected", "no such shop   !", "A")
    assert (second.offset, second.attempts, second.cause, second.reason) == (1, 2, "nacked", "")
    assert first.message_id != second.message_id
    assert first.died_ms == dead_letters.broker.state.now_ms
    assert dead_letters.bodies(group_id) == [b"one", b"two"]
    dead = dead_letters.broker.state.dead_letters.topics.of(group_id)
    assert dead is not None
    originals = dead_letters.broker.store.read_queue(dead.topic_id, ORIGINALS, 0, 9)
    assert originals.tolist() == dead_letters.broker.store.read_queue(topic_id, 0, 0, 9).tolist()
    assert len(dead_letters.broker.store.find("%DLQ%g", first.message_id)) == 1
    delivery = dead_letters.broker.state.leasing.find(group_id, topic_id, 0)
    assert delivery is not None
    assert (delivery.committed(), delivery.dying, dead_letters.broker.state.leasing.condemned) == (2, {}, {})


def test_burying_twice_buries_once() -> None:
    """The same command again, as two leaders might propose it, finds nothing dying and adds nothing; broken ones are refused."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(5)))
    dead_letters.nack(5)
    payload = b"".join(dead_letters.reader.bury_parts(7))
    assert dead_letters.broker.ask(CommandKind.BURY, payload) == bytes([BURIED] * 5)
    assert dead_letters.broker.ask(CommandKind.BURY, payload) == bytes([NOT_DYING] * 5)
    dead = dead_letters.broker.state.dead_letters.topics.of(group_id)
    assert dead is not None
    assert (dead.ends, dead_letters.broker.state.dead_letters.count(group_id)) == ([5, 5], 5)
    for broken in (payload[:-1], payload[:20], b"", SEND_HEAD.pack(1 << 30, 0)):
        verdict = dead_letters.broker.ask(CommandKind.BURY, broken)
        assert isinstance(verdict, Exception) or verdict == b""
    assert dead.ends == [5, 5]
    foreign = bytearray(payload)
    foreign[SEND_HEAD.size + BURY_ROWS.fields["dead_topic"][1]] ^= 0xFF  # type: ignore[index]
    dead_letters.broker.send("t", (0, b"more"))
    assert dead_letters.broker.ask(CommandKind.BURY, bytes(foreign)) == bytes([NOT_DYING] * 5)


def test_more_than_one_command_s_worth_is_buried_in_several_and_each_once() -> None:
    """Two groups at a time, each in its own dead-letter topic, both queues of it alike."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    other_id = dead_letters.broker.create(group="h")[1]
    dead_letters.broker.ask(CommandKind.ALTER_GROUP, encode_msgpack({"mode": "alter", "group": "h", "max_attempts": 1}))
    count = BURIED_MAX * 2 + 10
    dead_letters.broker.send("t", *((number % 2, b"%d" % number) for number in range(count)))
    for group in ("g", "h"):
        while dead_letters.nack(50, group):
            pass
    dead_letters.work()
    for found_id in (group_id, other_id):
        assert sorted((note.queue, note.offset) for note in dead_letters.notes(found_id)) == sorted(
            (queue, offset) for queue in (0, 1) for offset in range(count // 2)
        )
        dead = dead_letters.broker.state.dead_letters.topics.of(found_id)
        assert dead is not None
        assert dead.ends == [count, count]


@pytest.mark.parametrize("is_saved", [True, False])
def test_what_was_dying_when_the_node_ended_is_buried_after_the_next_start(is_saved: bool) -> None:
    """From a saved state, or from the log alone: the same offsets, nothing lost, nothing twice."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((0, b"%d" % number) for number in range(6)))
    dead_letters.nack(3)
    dead_letters.work()
    dead_letters.nack(3)
    if is_saved:
        assert dead_letters.broker.save()
    dead_letters.broker.close()
    dead_letters.open()
    assert [note.offset for note in dead_letters.notes(group_id)] == [0, 1, 2]
    dead_letters.work()
    assert [note.offset for note in dead_letters.notes(group_id)] == list(range(6))
    assert dead_letters.bodies(group_id) == [b"%d" % number for number in range(6)]


def test_a_directory_with_dead_letters_is_sound_also_when_its_files_were_made_again_from_the_log() -> None:
    """The offline check knows entries that point at the record of another queue, and notes."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    dead_letters.broker.send("t", *((number % 2, bytes(50)) for number in range(40)), tag="blue")
    dead_letters.nack(17)
    dead_letters.work()
    dead_letters.reject("broken", 5)
    dead_letters.work()
    assert dead_letters.broker.save()
    before = dead_letters.notes(group_id)
    dead_letters.broker.close()
    assert _dead_findings(dead_letters.files) == []
    small_files.write_mark(DIRECTORY, small_files.REBUILD, {"reason": "a test"}, dead_letters.files)
    dead_letters.open()
    assert dead_letters.notes(group_id) == before
    assert len(before) == 22
    assert dead_letters.broker.save()
    dead_letters.broker.close()
    assert _dead_findings(dead_letters.files) == []


def _dead_findings(files: FaultyFiles) -> list[str]:
    """What the offline check says, but for votes, which this node has none of."""
    return [str(finding) for finding in verify_directory(DIRECTORY, files) if "vote" not in str(finding)]


def test_retention_keeps_what_is_dying_rests_or_is_a_young_dead_letter_and_redrives_of_the_rest_are_refused() -> None:
    """Their records are copied before their segment goes. A dead letter whose message is gone from its queue can be read, not redriven."""
    dead_letters = DeadLetterBroker()
    topic_id, group_id = dead_letters.create(attempts=1)
    broker = dead_letters.broker
    broker.create(topic="u")
    broker.send("t", *((0, b"old %d" % number) for number in range(4)))
    broker.send("u", (0, b"filler"))
    broker.fill_segments("u", 2)
    broker.pass_time(80 * HOUR_MS)
    dead_letters.nack(2)
    dead_letters.work()
    dead_letters.nack(1)  # dying, not buried
    broker.fill_segments("u", 1)
    broker.pass_time(1)
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position > 0
    dead_letters.work()
    assert broker.state.names.topics_by_id[topic_id].mins[0] == 4
    assert dead_letters.bodies(group_id) == [b"old 0", b"old 1", b"old 2"]
    assert broker.save()
    dead_letters.start("a")
    dead_letters.work()
    assert dead_letters.task_counts("a") == ("done", 0, 3, 0)
    assert dead_letters.task("a")["failures"] == [[0, ORIGIN_GONE], [1, ORIGIN_GONE], [2, ORIGIN_GONE]]
    broker.close()
    assert _dead_findings(dead_letters.files) == []
    for reason in ("", "a test"):
        if reason:
            small_files.write_mark(DIRECTORY, small_files.REBUILD, {"reason": reason}, dead_letters.files)
        dead_letters.open()
        assert dead_letters.bodies(group_id) == [b"old 0", b"old 1", b"old 2"]
        assert [note.offset for note in dead_letters.notes(group_id)] == [0, 1, 2]
        assert dead_letters.broker.save()
        dead_letters.broker.close()
        assert _dead_findings(dead_letters.files) == []


def test_dead_letters_go_when_they_are_older_than_the_retention() -> None:
    """As every message: age counts from when it died."""
    dead_letters = DeadLetterBroker()
    _, group_id = dead_letters.create()
    broker = dead_letters.broker
    broker.send("t", (0, b"a"), (0, b"b"))
    dead_letters.nack(1)
    dead_letters.work()
    broker.fill_segments("t", 2, queue=1)
    broker.pass_time(80 * HOUR_MS)
    dead_letters.nack(1)
    dead_letters.work()
    broker.fill_segments("t", 1, queue=1)
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    dead_letters.work()
    dead = broker.state.dead_letters.topics.of(group_id)
    assert dead is not None
    assert (dead.mins, dead.ends) == ([1, 1], [2, 2])
    assert dead_letters.bodies(group_id) == [b"b"]


@pytest.mark.parametrize("seed", range(4))
def test_every_message_is_acked_or_a_dead_letter_exactly_once_whatever_happens(seed: int) -> None:
    """Random nacks, rejects, redrives, purges of nothing, saves and restarts; at the end each message is in one place."""
    print("seed", seed)
    rng = random.Random(seed)
    dead_letters = DeadLetterBroker()
    topic_id, group_id = dead_letters.create(attempts=2)
    sent, acked = 0, []
    for number in range(120):
        action = rng.random()
        if action < 0.25:
            count = rng.randrange(1, 10)
            dead_letters.broker.send("t", *((rng.randrange(2), b"%d" % (sent + extra)) for extra in range(count)))
            sent += count
        elif action < 0.45:
            found = dead_letters.broker.receive(messages_max=rng.randrange(1, 8))
            if found:
                dead_letters.broker.ack(*(row for row, _ in found))
                acked += [body for _, body in found]
        elif action < 0.7:
            dead_letters.nack(rng.randrange(1, 12))
        elif action < 0.8:
            dead_letters.start(str(number), **rng.choice(({}, {"offsets": (rng.randrange(9),)}, {"to_ms": 1})))
        elif action < 0.9:
            dead_letters.broker.pass_time(rng.choice((1, 20_000, 70_000)))
        elif rng.random() < 0.3:
            if rng.random() < 0.5:
                dead_letters.broker.save()
            dead_letters.broker.close()
            dead_letters.open()
        dead_letters.work(steps=rng.randrange(3))
    dead_letters.work(steps=20)
    for _ in range(20):
        dead_letters.broker.pass_time(7_200_000)
        dead_letters.work()
        found = dead_letters.broker.receive(messages_max=200)
        if found:
            dead_letters.broker.ack(*(row for row, _ in found))
            acked += [body for _, body in found]
    dead = dead_letters.bodies(group_id)
    assert sorted(acked + dead, key=int) == [b"%d" % number for number in range(sent)]
    for queue in range(2):
        delivery = dead_letters.broker.state.leasing.find(group_id, topic_id, queue)
        assert delivery is None or delivery.unsettled == 0
    topic = dead_letters.broker.state.dead_letters.topics.of(group_id)
    assert topic is None or topic.ends[ORIGINALS] == topic.ends[NOTES]
