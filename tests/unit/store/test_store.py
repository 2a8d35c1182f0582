"""The whole store under a real state machine: restarts, derived files made again, damage, keys."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from tern_store import HEADER_SIZE_BYTES, Checked, DerivedDamage, LogRot, Quarantined, Store
from tern_wire.link.rows import QUEUE_ENTRIES, QueueAppend, QueueAppends
from tern_wire.records.properties import encode_properties, system_properties
from tern_wire.records.write import encode_record
from tests.support.broker.single_broker import DIRECTORY, GROUP, LIMITS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles


def filled(files: FaultyFiles, *, saves: bool = True) -> tuple[SingleBroker, dict[tuple[int, int], list[bytes]]]:
    """A broker with two topics, some acks and several segments; and the bodies in every queue."""
    broker = SingleBroker(files)
    ids = [broker.create("t", 2, "g")[0], broker.create("u", 1, "h")[0]]
    rng, sent = random.Random(3), {(ids[0], 0): [], (ids[0], 1): [], (ids[1], 0): []}  # type: ignore[var-annotated]
    for turn in range(120):
        topic = rng.choice(["t", "u"])
        messages = [(rng.randrange(2 if topic == "t" else 1), rng.randbytes(rng.choice([20, 700]))) for _ in range(4)]
        broker.send(topic, *messages, keys=f"k{turn}", tag="A")
        for queue, body in messages:
            sent[ids[topic == "u"], queue].append(body)
        if turn % 7 == 0:
            broker.ack(*[row for row, _ in broker.receive()][:3])
        if saves and turn in {40, 80}:
            broker.save()
    return broker, sent


def check(broker: SingleBroker, sent: dict[tuple[int, int], list[bytes]]) -> None:
    """Every queue, and every key, is as it should be."""
    for (topic_id, queue), bodies in sent.items():
        assert broker.state.names.topics_by_id[topic_id].ends[queue] == len(bodies)
        assert broker.pull(topic_id, queue, 0) == bodies
    for turn in (0, 50, 119):
        found = [found for topic in ("t", "u") for found in broker.store.find(topic, f"k{turn}")]
        assert len(found) == 4
    assert not broker.store.find("t", "k120")


@pytest.mark.parametrize("saves", [True, False])
def test_a_restart_goes_on_where_the_log_ends(saves: bool) -> None:
    """From the newest state, or from nothing; states and queues are the same as before."""
    files = FaultyFiles()
    broker, sent = filled(files, saves=saves)
    check(broker, sent)
    leases = {key: [d.cursor if d else None for d in row] for key, row in broker.state.leasing.deliveries.items()}
    broker.close()
    for _ in range(2):
        broker = SingleBroker(files)
        assert not broker.store.rebuilding
        check(broker, sent)
        assert leases == {
            key: [d.cursor if d else None for d in row] for key, row in broker.state.leasing.deliveries.items()
        }
        broker.close()


@pytest.mark.parametrize("folder", ["consumequeue", "index"])
def test_a_missing_derived_file_is_made_again_from_the_log(folder: str) -> None:
    """All of them are: nothing is served from what is left, and a save ends it."""
    files = FaultyFiles()
    broker, sent = filled(files)
    broker.save()
    broker.close()
    paths = [path for path in files.paths() if folder in path.parts]
    files.unlink(sorted(paths)[0])
    broker = SingleBroker(files)
    assert str(sorted(paths)[0]).removesuffix(".crc") in broker.store.rebuilding
    check(broker, sent)
    broker.close()
    broker = SingleBroker(files)  # not saved yet: once more
    assert broker.store.rebuilding
    broker.save()
    broker.close()
    assert not SingleBroker(files).store.rebuilding


def test_damage_of_a_derived_file_is_never_served_and_the_next_start_makes_it_again() -> None:
    """A reader gets an error; the note that it leaves leads to new files."""
    files = FaultyFiles()
    broker, sent = filled(files)
    broker.save()
    broker.close()
    broker = SingleBroker(files)
    (topic_id, queue), bodies = next(iter(sent.items()))
    path = DIRECTORY / "consumequeue" / str(topic_id) / str(queue) / f"{0:020d}"
    files.content(path)[33] ^= 1
    with pytest.raises(DerivedDamage) as damage:
        broker.pull(topic_id, queue, 0)
    assert [found for found in broker.store.verify() if isinstance(found, DerivedDamage)]
    broker.store.note_damage(damage.value)
    broker.close()
    broker = SingleBroker(files)
    assert str(path) in broker.store.rebuilding
    assert broker.pull(topic_id, queue, 0) == bodies
    assert all(isinstance(found, Checked) for found in broker.store.verify())


def test_damage_of_the_log_quarantines_the_node_for_good() -> None:
    """Found by the verification though it lies before the saved state; said again by every start, with place and reason."""
    files = FaultyFiles()
    broker, _ = filled(files)
    broker.save()
    broker.close()
    broker = SingleBroker(files)
    path = DIRECTORY / "commitlog" / f"{0:020d}"
    files.content(path)[5000] ^= 1
    (rot,) = [found for found in broker.store.verify() if isinstance(found, LogRot)]
    assert rot.file == path
    broker.store.note_damage(rot)
    broker.close()
    files.content(path)[5000] ^= 1
    for _ in range(2):
        with pytest.raises(Quarantined, match=f"position {rot.position}"):
            SingleBroker(files)


def test_damage_in_what_a_start_reads_quarantines_at_once() -> None:
    """The rot is noted, so that a later start does not read over it."""
    files = FaultyFiles()
    broker, _ = filled(files, saves=False)
    broker.close()
    files.content(DIRECTORY / "commitlog" / f"{0:020d}")[5000] ^= 1
    with pytest.raises(LogRot):
        Store.open(DIRECTORY, group=GROUP, limits=LIMITS, files=files)
    with pytest.raises(Quarantined):
        Store.open(DIRECTORY, group=GROUP, limits=LIMITS, files=files)


def test_a_state_of_another_format_is_replaced_by_the_log() -> None:
    """The owner does not accept it."""
    files = FaultyFiles()
    broker, _ = filled(files)
    broker.save()
    broker.close()
    store = Store.open(DIRECTORY, group=GROUP, accepts=lambda _: False, limits=LIMITS, files=files)
    assert store.payload is None
    assert "another format" in store.rebuilding


def test_what_no_save_covers_is_kept_in_memory_on_a_full_disk() -> None:
    """A save without space changes nothing; the next one with space is as good as any."""
    files = FaultyFiles()
    broker, sent = filled(files)
    files.capacity_bytes = files.used_bytes + 600
    assert [broker.save() for _ in range(3)] == [False, False, False]
    check(broker, sent)
    files.capacity_bytes = None
    assert broker.save()
    broker.close()
    broker = SingleBroker(files)
    assert not broker.store.rebuilding
    check(broker, sent)


def test_an_entry_for_many_topics_puts_each_message_under_its_own_topic() -> None:
    """Found by its key in its topic and in no other, at its own place; what is delivered by reference is indexed no second time."""
    files = FaultyFiles()
    broker = SingleBroker(files)
    ids = {broker.create(f"t{number}", 2, "g")[0]: f"t{number}" for number in range(40)}
    broker.send("t0", (0, b"old"), keys="old")
    (old,) = broker.store.read_queue(min(ids), 0, 0, 1)
    order = random.Random(1).sample(sorted(ids), 40)
    parts, entry_position = [], broker.store.log.end_position
    at = HEADER_SIZE_BYTES
    records = {}
    for topic_id in order:
        properties = encode_properties(system_properties("0" * 32, "", [f"key{topic_id}"], ""))
        records[topic_id] = (at, encode_record(ids[topic_id].encode(), 0, b"body", properties, born_ms=1))
        parts.append(records[topic_id][1])
        at += len(parts[-1])
    appends = []
    for topic_id in sorted(ids):
        entries = np.zeros(2, QUEUE_ENTRIES)
        begin, record = records[topic_id]
        entries["position"] = old["position"], entry_position + begin
        entries["size"] = old["size"], len(record)
        first = broker.store.queues.end(topic_id, 0)
        appends.append(QueueAppend(topic_id, 0, first, entries))
    raw = bytes(HEADER_SIZE_BYTES) + b"".join(parts)
    entry = SimpleNamespace(position=entry_position, raw=raw)
    broker.store.dispatch(entry, QueueAppends.of(appends), {key: name.encode() for key, name in ids.items()}, 5)  # type: ignore[arg-type]
    for topic_id, name in ids.items():
        assert broker.store.keys.find(name, f"key{topic_id}") == [entry_position + records[topic_id][0]]
        assert broker.store.keys.find("t1" if name == "t0" else "t0", f"key{topic_id}") == []
    assert broker.store.keys.find("t0", "old") == [old["position"]]
    assert broker.store.keys.find("t1", "old") == []
    broker.close()
