"""Deleted topics and the files of a real store: queues go, records stay until retention takes them, restarts and trims get along."""

from tern_broker.proposal import Proposal
from tern_store.retention import RetentionRules
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tests.support.broker.single_broker import DIRECTORY, HOUR_MS, SingleBroker
from tests.support.files.faulty_files import FaultyFiles


def delete(broker: SingleBroker, topic: str) -> None:
    """Delete *topic*."""
    request = {"topic": topic, "topic_id": broker.state.names.topics[topic].topic_id}
    assert broker.ask(CommandKind.DELETE_TOPIC, encode_msgpack(request))["deleted"]


def again(files: FaultyFiles, broker: SingleBroker) -> SingleBroker:
    """The broker after a kill: what was not saved is replayed."""
    broker.close()
    files.end_process()
    return SingleBroker(files)


def queue_files(files: FaultyFiles, topic_id: int) -> list[str]:
    """Names of the queue files of a topic."""
    folder = DIRECTORY / "consumequeue" / str(topic_id)
    return [name for queue in files.listdir(folder) for name in files.listdir(folder / queue) if name != "times"]


def test_a_deleted_topics_queues_leave_the_store_and_then_the_disk() -> None:
    """Two saved states later nothing needs the files; another topic's are as they were."""
    files = FaultyFiles()
    broker = SingleBroker(files)
    gone, _ = broker.create("gone")
    kept, _ = broker.create("kept", group="h")
    for topic in ("gone", "kept"):
        broker.send(topic, (0, b"a"), (1, b"b"))
    assert broker.save()
    assert queue_files(files, gone)
    delete(broker, "gone")
    assert {topic_id for topic_id, _ in broker.store.queues.all_keys()} == {kept}
    for _ in range(3):
        broker.send("kept", (0, b"c"))
        assert broker.save()
    assert queue_files(files, gone) == []
    assert broker.pull(kept, 0, 0) == [b"a", b"c", b"c", b"c"]
    broker.close()


def test_a_replay_over_a_deletion_comes_to_the_same() -> None:
    """From a state in which the topic was, from one in which it was not yet, and from none."""
    for saves_after in (("create",), ("send",), ("delete",), ("create", "send", "delete"), ()):
        files = FaultyFiles()
        broker = SingleBroker(files)
        for name in ("create", "send", "delete", "anew", "send anew"):
            if name in {"create", "anew"}:
                broker.create("t")
            elif name == "delete":
                delete(broker, "t")
            else:
                broker.send("t", (0, b"old" if name == "send" else b"new"))
            if name in saves_after:
                assert broker.save()
        broker = again(files, broker)
        topic = broker.state.names.topics["t"]
        assert (topic.ends, topic.topic_id > 1) == ([1, 0], True), saves_after
        assert broker.pull(topic.topic_id, 0, 0) == [b"new"]
        assert {topic_id for topic_id, _ in broker.store.queues.all_keys()} == {topic.topic_id}
        broker.close()


def test_retention_goes_on_over_a_deleted_topic() -> None:
    """Its records keep no segment; what a lease of another topic needs is copied as always."""
    files = FaultyFiles()
    broker = SingleBroker(files, rules=RetentionRules())
    gone, _ = broker.create("gone")
    kept, _ = broker.create("kept")
    broker.send("gone", (0, b"x"))
    broker.receive("gone")
    broker.send("kept", (0, b"held"))
    held = broker.receive("kept")
    broker.fill_segments("gone", 2)
    delete(broker, "gone")
    broker.pass_time(100 * HOUR_MS)
    broker.fill_segments("kept", 1, queue=1)
    broker.hour = 4
    assert broker.save()
    broker.retain()
    assert broker.store.log.start.index > 1, "nothing was dropped"
    assert [body for _, body in held] == [b"held"]
    assert broker.pull(kept, 0, 0, 1) == [b"held"]
    broker = again(files, broker)
    assert gone not in broker.state.names.topics_by_id
    broker.close()


def test_a_deletion_has_an_entry_of_its_own() -> None:
    """Else one entry could both add to a topic and drop it."""
    broker = SingleBroker(FaultyFiles())
    broker.create("t")
    before = broker.store.log.end_index

    def submit(kind: CommandKind, request: dict[str, object]) -> None:
        payload = encode_msgpack(request)
        broker.proposer.submit(
            Proposal(kind, len(payload), lambda _verdict, _picks: None, build=lambda _now: [payload])
        )

    for number in range(3):
        submit(CommandKind.CREATE_GROUP, {"group": f"g{number}"})
    submit(CommandKind.DELETE_TOPIC, {"topic": "t"})
    submit(CommandKind.CREATE_TOPIC, {"topic": "t"})
    broker.run()
    assert broker.store.log.end_index == before + 3
    broker.close()
