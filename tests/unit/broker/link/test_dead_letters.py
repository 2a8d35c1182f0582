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
from tests.support.broker.morgue import Morgue
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS
from tests.support.files.faulty_files import FaultyFiles


def test_a_dead_letter_points_at_the_original_and_a_note_says_where_it_came_from_and_why() -> None:
    """Nothing is copied: the entry has the original's place. Then the message is settled, and the group's offset moves on."""
    morgue = Morgue()
    topic_id, group_id = morgue.create(attempts=2)
    morgue.broker.send("t", (0, b"one"), (0, b"two"), tag="A")
    morgue.reject("no such shop\x01 \x02!")
    for _ in range(2):
        morgue.broker.pass_time(60_000)
        assert morgue.nack(1) == [(0, 1)]
    assert morgue.notes(group_id) == []
    morgue.work()
    first, second = morgue.notes(group_id)
    assert (first.topic, first.topic_id, first.queue, first.offset) == ("t", topic_id, 0, 0)
    assert (first.attempts, first.cause, first.reason, first.tag) == (1, "rejected", "no such shop   !", "A")
    assert (second.offset, second.attempts, second.cause, second.reason) == (1, 2, "nacked", "")
    assert first.message_id != second.message_id
    assert first.died_ms == morgue.broker.state.now_ms
    assert morgue.bodies(group_id) == [b"one", b"two"]
    dead = morgue.broker.state.dead_letters.topics.of(group_id)
    assert dead is not None
    originals = morgue.broker.store.read_queue(dead.topic_id, ORIGINALS, 0, 9)
    assert originals.tolist() == morgue.broker.store.read_queue(topic_id, 0, 0, 9).tolist()
    assert len(morgue.broker.store.find("%DLQ%g", first.message_id)) == 1
    delivery = morgue.broker.state.leasing.find(group_id, topic_id, 0)
    assert delivery is not None
    assert (delivery.committed(), delivery.dying, morgue.broker.state.leasing.condemned) == (2, {}, {})


def test_burying_twice_buries_once() -> None:
    """The same command again, as two leaders might propose it, finds nothing dying and adds nothing; broken ones are refused."""
    morgue = Morgue()
    _, group_id = morgue.create()
    morgue.broker.send("t", *((0, b"%d" % number) for number in range(5)))
    morgue.nack(5)
    payload = b"".join(morgue.reader.bury_parts(7))
    assert morgue.broker.ask(CommandKind.BURY, payload) == bytes([BURIED] * 5)
    assert morgue.broker.ask(CommandKind.BURY, payload) == bytes([NOT_DYING] * 5)
    dead = morgue.broker.state.dead_letters.topics.of(group_id)
    assert dead is not None
    assert (dead.ends, morgue.broker.state.dead_letters.count(group_id)) == ([5, 5], 5)
    for broken in (payload[:-1], payload[:20], b"", SEND_HEAD.pack(1 << 30, 0)):
        verdict = morgue.broker.ask(CommandKind.BURY, broken)
        assert isinstance(verdict, Exception) or verdict == b""
    assert dead.ends == [5, 5]
    foreign = bytearray(payload)
    foreign[SEND_HEAD.size + BURY_ROWS.fields["dead_topic"][1]] ^= 0xFF  # type: ignore[index]
    morgue.broker.send("t", (0, b"more"))
    assert morgue.broker.ask(CommandKind.BURY, bytes(foreign)) == bytes([NOT_DYING] * 5)


def test_more_than_one_command_s_worth_is_buried_in_several_and_each_once() -> None:
    """Two groups at a time, each in its own dead-letter topic, both queues of it alike."""
    morgue = Morgue()
    _, group_id = morgue.create()
    other_id = morgue.broker.create(group="h")[1]
    morgue.broker.ask(CommandKind.ALTER_GROUP, encode_msgpack({"mode": "alter", "group": "h", "max_attempts": 1}))
    count = BURIED_MAX * 2 + 10
    morgue.broker.send("t", *((number % 2, b"%d" % number) for number in range(count)))
    for group in ("g", "h"):
        while morgue.nack(50, group):
            pass
    morgue.work()
    for found_id in (group_id, other_id):
        assert sorted((note.queue, note.offset) for note in morgue.notes(found_id)) == sorted(
            (queue, offset) for queue in (0, 1) for offset in range(count // 2)
        )
        dead = morgue.broker.state.dead_letters.topics.of(found_id)
        assert dead is not None
        assert dead.ends == [count, count]


@pytest.mark.parametrize("is_saved", [True, False])
def test_what_was_dying_when_the_node_ended_is_buried_after_the_next_start(is_saved: bool) -> None:
    """From a saved state, or from the log alone: the same offsets, nothing lost, nothing twice."""
    morgue = Morgue()
    _, group_id = morgue.create()
    morgue.broker.send("t", *((0, b"%d" % number) for number in range(6)))
    morgue.nack(3)
    morgue.work()
    morgue.nack(3)
    if is_saved:
        assert morgue.broker.save()
    morgue.broker.close()
    morgue.open()
    assert [note.offset for note in morgue.notes(group_id)] == [0, 1, 2]
    morgue.work()
    assert [note.offset for note in morgue.notes(group_id)] == list(range(6))
    assert morgue.bodies(group_id) == [b"%d" % number for number in range(6)]


def test_a_directory_with_dead_letters_is_sound_also_when_its_files_were_made_again_from_the_log() -> None:
    """The offline check knows entries that point at the record of another queue, and notes."""
    morgue = Morgue()
    _, group_id = morgue.create()
    morgue.broker.send("t", *((number % 2, bytes(50)) for number in range(40)), tag="blue")
    morgue.nack(17)
    morgue.work()
    morgue.reject("broken", 5)
    morgue.work()
    assert morgue.broker.save()
    before = morgue.notes(group_id)
    morgue.broker.close()
    assert _dead_findings(morgue.files) == []
    small_files.write_mark(DIRECTORY, small_files.REBUILD, {"reason": "a test"}, morgue.files)
    morgue.open()
    assert morgue.notes(group_id) == before
    assert len(before) == 22
    assert morgue.broker.save()
    morgue.broker.close()
    assert _dead_findings(morgue.files) == []


def _dead_findings(files: FaultyFiles) -> list[str]:
    """What the offline check says, but for votes, which this node has none of."""
    return [str(finding) for finding in verify_directory(DIRECTORY, files) if "vote" not in str(finding)]


def test_retention_keeps_what_is_dying_rests_or_is_a_young_dead_letter_and_redrives_of_the_rest_are_refused() -> None:
    """Their records are copied before their segment goes. A dead letter whose message is gone from its queue can be read, not redriven."""
    morgue = Morgue()
    topic_id, group_id = morgue.create(attempts=1)
    broker = morgue.broker
    broker.create(topic="u")
    broker.send("t", *((0, b"old %d" % number) for number in range(4)))
    broker.send("u", (0, b"filler"))
    broker.fill_segments("u", 2)
    broker.pass_time(80 * HOUR_MS)
    morgue.nack(2)
    morgue.work()
    morgue.nack(1)  # dying, not buried
    broker.fill_segments("u", 1)
    broker.pass_time(1)
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    assert broker.store.log.start.position > 0
    morgue.work()
    assert broker.state.names.topics_by_id[topic_id].mins[0] == 4
    assert morgue.bodies(group_id) == [b"old 0", b"old 1", b"old 2"]
    assert broker.save()
    morgue.start("a")
    morgue.work()
    assert morgue.task_counts("a") == ("done", 0, 3, 0)
    assert morgue.task("a")["failures"] == [[0, ORIGIN_GONE], [1, ORIGIN_GONE], [2, ORIGIN_GONE]]
    broker.close()
    assert _dead_findings(morgue.files) == []
    for reason in ("", "a test"):
        if reason:
            small_files.write_mark(DIRECTORY, small_files.REBUILD, {"reason": reason}, morgue.files)
        morgue.open()
        assert morgue.bodies(group_id) == [b"old 0", b"old 1", b"old 2"]
        assert [note.offset for note in morgue.notes(group_id)] == [0, 1, 2]
        assert morgue.broker.save()
        morgue.broker.close()
        assert _dead_findings(morgue.files) == []


def test_dead_letters_go_when_they_are_older_than_the_retention() -> None:
    """As every message: age counts from when it died."""
    morgue = Morgue()
    _, group_id = morgue.create()
    broker = morgue.broker
    broker.send("t", (0, b"a"), (0, b"b"))
    morgue.nack(1)
    morgue.work()
    broker.fill_segments("t", 2, queue=1)
    broker.pass_time(80 * HOUR_MS)
    morgue.nack(1)
    morgue.work()
    broker.fill_segments("t", 1, queue=1)
    broker.save()
    broker.trimmer.trim_now()
    broker.retain()
    morgue.work()
    dead = broker.state.dead_letters.topics.of(group_id)
    assert dead is not None
    assert (dead.mins, dead.ends) == ([1, 1], [2, 2])
    assert morgue.bodies(group_id) == [b"b"]


@pytest.mark.parametrize("seed", range(4))
def test_every_message_is_acked_or_a_dead_letter_exactly_once_whatever_happens(seed: int) -> None:
    """Random nacks, rejects, redrives, purges of nothing, saves and restarts; at the end each message is in one place."""
    print("seed", seed)
    rng = random.Random(seed)
    morgue = Morgue()
    topic_id, group_id = morgue.create(attempts=2)
    sent, acked = 0, []
    for number in range(120):
        action = rng.random()
        if action < 0.25:
            count = rng.randrange(1, 10)
            morgue.broker.send("t", *((rng.randrange(2), b"%d" % (sent + extra)) for extra in range(count)))
            sent += count
        elif action < 0.45:
            found = morgue.broker.receive(messages_max=rng.randrange(1, 8))
            if found:
                morgue.broker.ack(*(row for row, _ in found))
                acked += [body for _, body in found]
        elif action < 0.7:
            morgue.nack(rng.randrange(1, 12))
        elif action < 0.8:
            morgue.start(str(number), **rng.choice(({}, {"offsets": (rng.randrange(9),)}, {"to_ms": 1})))
        elif action < 0.9:
            morgue.broker.pass_time(rng.choice((1, 20_000, 70_000)))
        elif rng.random() < 0.3:
            if rng.random() < 0.5:
                morgue.broker.save()
            morgue.broker.close()
            morgue.open()
        morgue.work(steps=rng.randrange(3))
    morgue.work(steps=20)
    for _ in range(20):
        morgue.broker.pass_time(7_200_000)
        morgue.work()
        found = morgue.broker.receive(messages_max=200)
        if found:
            morgue.broker.ack(*(row for row, _ in found))
            acked += [body for _, body in found]
    dead = morgue.bodies(group_id)
    assert sorted(acked + dead, key=int) == [b"%d" % number for number in range(sent)]
    for queue in range(2):
        delivery = morgue.broker.state.leasing.find(group_id, topic_id, queue)
        assert delivery is None or delivery.unsettled == 0
    topic = morgue.broker.state.dead_letters.topics.of(group_id)
    assert topic is None or topic.ends[ORIGINALS] == topic.ends[NOTES]
