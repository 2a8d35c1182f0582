"""`ternmq store import`: what a real broker's store becomes on the wire, what is skipped and said, and going on after a failure."""

import asyncio
import json
import shutil
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.store.rocketmq_message import OWN_PROPERTIES, message_of
from tern_wire.errors import IdempotencyKeyReused, IllegalProperty, NoLeader, TernError
from tern_wire.records.read import RocketRecord, decode_rocketmq_record
from tests.support.client.scripted_proxy import Asked, Reply, ScriptedProxy, packed, refused, said
from tests.support.files.rocketmq_golden import GOLDEN, PARTS, golden_part
from tests.support.files.store_builder import message

RUNNER = CliRunner()
Refusal = Callable[[str, dict[str, Any]], TernError | None]


class FakeMesh:
    """What a mesh would answer: topics with their queues, messages by topic in order of arrival, keys remembered."""

    def __init__(self, refuse: Refusal = lambda _topic, _message: None) -> None:
        self.refuse = refuse
        self.queues: dict[str, int] = {}
        self.messages: dict[str, list[dict[str, Any]]] = {}
        self._keys: dict[tuple[str, str], bytes] = {}

    def answer(self, asked: Asked) -> Reply:
        """The reply to one request."""
        topic = asked.path.split("/")[3]
        if asked.method == "PUT":
            self.queues[topic] = max(self.queues.get(topic, 0), asked.document["queues"])
            return said({"topic": topic, "queues": self.queues[topic]}, 201)
        if asked.method == "GET":
            rows = [
                {"queue": f"broker-a:{queue}", "min_offset": 0, "max_offset": 0} for queue in range(self.queues[topic])
            ]
            return said({"queues": rows})
        results = []
        for sent in asked.document["messages"]:
            error = self.refuse(topic, sent)
            if isinstance(error, NoLeader):
                return refused(error)
            results.append({"error": error.problem()} if error is not None else self._store(topic, sent))
        return packed({"results": results, "failed": 0})

    def _store(self, topic: str, sent: dict[str, Any]) -> dict[str, Any]:
        key = (topic, sent["idempotency_key"])
        receipt = {"message_id": "m", "queue": sent["queue"], "offset": 0, "born_at": 1}
        if key in self._keys:
            if self._keys[key] != sent["body"]:
                return {"error": IdempotencyKeyReused().problem()}
            return {**receipt, "replayed": True}
        self._keys[key] = sent["body"]
        self.messages.setdefault(topic, []).append(sent)
        return receipt


@contextmanager
def serving(mesh: FakeMesh) -> Iterator[str]:
    """The mesh behind a proxy in a thread of its own; its URL."""
    made = ScriptedProxy(answer=mesh.answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result(10)
    try:
        yield made.url
    finally:
        asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def run_import(mesh: FakeMesh, store: Path, note: Path, *words: object) -> Result:
    """What `ternmq store import` does against *mesh*."""
    with serving(mesh) as url:
        return RUNNER.invoke(
            app, [str(word) for word in ("store", "import", store, "--state", note, "--endpoint", url, *words)]
        )


def store_of(directory: Path, *records: bytes, segment: int = 1 << 16) -> Path:
    """A store of one commit-log file and nothing else."""
    (directory / "commitlog").mkdir(parents=True)
    (directory / "commitlog" / f"{0:020d}").write_bytes(b"".join(records).ljust(segment, b"\0"))
    return directory


def ordinary(name: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """RocketMQ's own description of the messages of users' topics, by queue in order of their offsets."""
    part = golden_part(name)
    rows = {row["physicalOffset"]: row for row in part.described["records"]}
    return {
        (queue["topic"], queue["queueId"]): [rows[entry["physicalOffset"]] for entry in queue["entries"]]
        for queue in part.described["consumeQueues"]
        if queue["topic"].startswith(("GoldA", "T1"))
    }


@pytest.mark.parametrize("name", PARTS)
def test_a_real_brokers_messages_arrive_whole_and_in_order(name: str, tmp_path: Path) -> None:
    """Every message of every user's topic in its queue, body unpacked, tag, keys and properties as RocketMQ describes them."""
    mesh = FakeMesh()
    result = run_import(mesh, GOLDEN / name, tmp_path / "note.json")
    assert result.exit_code == 0, result.output
    wanted = ordinary(name)
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for topic, messages in mesh.messages.items():
        for sent in messages:
            found.setdefault((topic, int(sent["queue"].partition(":")[2])), []).append(sent)
    assert found.keys() == wanted.keys()
    for key, rows in wanted.items():
        for row, sent in zip(rows, found[key], strict=True):
            described = row["properties"]
            assert sent["body"] == b64decode(row["body"])
            properties = dict(sent.get("properties", {}))
            rest = json.loads("".join(properties.pop(f"rocketmq-rest-{at}", "") for at in range(8)) or "{}")
            assert properties.pop("rocketmq-message-id") == described["UNIQ_KEY"] == sent["idempotency_key"]
            assert int(properties.pop("rocketmq-born-ms")) == row["bornTimestamp"]
            assert int(properties.pop("rocketmq-flag", 0)) == row["flag"]
            assert rest.pop("TAGS", sent.get("tag", "")) == described.get("TAGS", "")
            assert sent.get("keys", []) == described.get("KEYS", "").split()
            assert properties | rest == {name: value for name, value in described.items() if name not in OWN_PROPERTIES}
    assert mesh.queues == {topic: 1 + max(queue for name, queue in wanted if name == topic) for topic, _ in wanted}


def test_what_is_skipped_is_counted_by_topic(tmp_path: Path) -> None:
    """RocketMQ's own topics, retries and dead letters are no messages of a user; each is said with its number."""
    result = run_import(FakeMesh(), GOLDEN, tmp_path / "note.json", "-o", "json")
    tally = json.loads(result.stdout)
    assert tally["skipped"] == {
        "SCHEDULE_TOPIC_XX" + "XX: a system topic": 8,
        "rmq_sys_wheel_timer: a system topic": 4,
        "RMQ_SYS_TRANS_HALF_TOPIC: a system topic": 12,
        "RMQ_SYS_TRANS_OP_HALF_TOPIC: a system topic": 2,
        "%RETRY%GoldA_CG: retries of a group": 3,
        "%DLQ%GoldA_CG: dead letters of a group": 1,
    }
    assert tally["messages"] + sum(tally["skipped"].values()) == golden_part(".").described["recordCount"]
    table = run_import(FakeMesh(), GOLDEN, tmp_path / "other.json")
    assert "Skipped: 12 of RMQ_SYS_TRANS_HALF_TOPIC: a system topic." in table.stderr


def test_only_records_that_their_queue_shows_are_messages(tmp_path: Path) -> None:
    """An entry that points elsewhere; a queue that does not reach so far (its broker crashed) hides nothing."""
    records = [message("t", b"shown"), message("t", b"hidden"), message("t", b"later")]
    raw = []
    for number, record in enumerate(records):
        changed = bytearray(record)
        changed[20:28] = number.to_bytes(8, "big")
        raw.append(bytes(changed))
    store = store_of(tmp_path / "store", *raw)
    folder = store / "consumequeue" / "t" / "0"
    folder.mkdir(parents=True)
    entry = len(raw[0]).to_bytes(4, "big") + bytes(8)
    (folder / f"{0:020d}").write_bytes((bytes(8) + entry + (7).to_bytes(8, "big") + entry).ljust(200, b"\0"))
    mesh = FakeMesh()
    result = run_import(mesh, store, tmp_path / "note.json")
    assert [sent["body"] for sent in mesh.messages["t"]] == [b"shown", b"later"]
    assert "Skipped: 1 of t: in no queue" in result.stderr


def test_names_that_are_not_allowed_here_can_be_changed(tmp_path: Path) -> None:
    """Skipped with the option that helps, and imported with it; dead letters too, if they are given a name."""
    store = store_of(tmp_path / "store", message("_odd", b"1"), message("%DLQ%g", b"2"), message("good", b"3"))
    mesh = FakeMesh()
    result = run_import(mesh, store, tmp_path / "note.json")
    assert list(mesh.messages) == ["good"]
    assert "--rename '_odd=NEW'" in result.stderr
    renamed = ("--rename", "_odd=odd", "--rename", "%DLQ%g=g-dead", "--topics", "_odd,%DLQ%g")
    result = run_import(mesh, store, tmp_path / "other.json", *renamed)
    assert result.exit_code == 0
    assert {topic: [sent["body"] for sent in sents] for topic, sents in mesh.messages.items()} == {
        "good": [b"3"],
        "odd": [b"1"],
        "g-dead": [b"2"],
    }
    assert run_import(mesh, store, tmp_path / "x.json", "--rename", "no").exit_code == 2
    assert run_import(mesh, store, tmp_path / "x.json", "--rename", "a=b.c").exit_code == 2


def test_an_interrupted_import_goes_on_where_it_was(tmp_path: Path) -> None:
    """The mesh loses its leader in the middle: what is confirmed is not sent again, the rest is, nothing is twice."""
    store = store_of(
        tmp_path / "store", *(message("t", b"%d" % number, message_id=f"M{number}") for number in range(100))
    )
    mesh = FakeMesh()
    sent_again: list[bytes] = []

    def lose_leader(_topic: str, sent: dict[str, Any]) -> TernError | None:
        return NoLeader(broker_group="broker-a") if sent["body"] == b"42" else None

    mesh.refuse = lose_leader
    note = tmp_path / "note.json"
    with serving(mesh) as url:
        words = [str(word) for word in ("store", "import", store, "--state", note, "--endpoint", url, "--batch", 10)]
        # Only who is to fail is impatient: a slow machine takes longer than that for any answer.
        stopped = RUNNER.invoke(app, [*words, "--patience", "50ms"])
        assert stopped.exit_code == 1
        assert str(note) in stopped.stderr
        # The round of 40 to 49 got half through before its request failed: that half is sent again, and known by its keys.
        assert len(mesh.messages["t"]) == 42
        mesh.refuse = lambda _topic, sent: sent_again.append(sent["body"])
        resumed = RUNNER.invoke(app, words)
        assert resumed.exit_code == 0
        assert sent_again[0] == b"40"
        assert [sent["body"] for sent in mesh.messages["t"]] == [b"%d" % number for number in range(100)]
        sent_again.clear()
        again = RUNNER.invoke(app, words)
        assert (again.exit_code, sent_again) == (0, [])
        assert "done already" in again.stdout
        note.unlink()
        anew = RUNNER.invoke(app, [*words, "-o", "json"])
        assert json.loads(anew.stdout)["replayed"] == 100
        assert len(mesh.messages["t"]) == 100


def test_a_note_of_another_import_is_refused(tmp_path: Path) -> None:
    """Another store, mesh or choice must not go on from there; a broken note is said."""
    store, note = store_of(tmp_path / "store", message("t", b"x")), tmp_path / "note.json"
    mesh = FakeMesh()
    with serving(mesh) as url:
        words = ["store", "import", str(store), "--state", str(note), "--endpoint", url]
        assert RUNNER.invoke(app, words).exit_code == 0
        other = RUNNER.invoke(app, [*words, "--topics", "t"])
        assert other.exit_code == 2
        assert "--state" in other.stderr
        note.write_text("{")
        assert RUNNER.invoke(app, words).exit_code == 2


def test_the_note_lies_beside_the_store(tmp_path: Path) -> None:
    """Unless --state says otherwise: whatever the working directory, the same command finds it again."""
    store = store_of(tmp_path / "store", message("t", b"x"))
    with serving(FakeMesh()) as url:
        assert RUNNER.invoke(app, ["store", "import", str(store), "--endpoint", url]).exit_code == 0
    assert json.loads((tmp_path / "store.ternmq-import.json").read_text())["done"] is True


def test_refused_messages_are_named_and_the_others_go_in(tmp_path: Path) -> None:
    """Exit code 1, with place and reason of each."""
    store = store_of(tmp_path / "store", *(message("t", b"%d" % number) for number in range(3)))

    def refuse(_topic: str, sent: dict[str, Any]) -> TernError | None:
        return IllegalProperty(reason="No", pointer="/messages/1") if sent["body"] == b"1" else None

    mesh = FakeMesh(refuse)
    result = run_import(mesh, store, tmp_path / "note.json")
    assert result.exit_code == 1
    assert [sent["body"] for sent in mesh.messages["t"]] == [b"0", b"2"]
    assert "Refused: t, queue 0, offset 0 (for t): No" in result.stderr


def test_different_messages_with_one_id_all_go_in(tmp_path: Path) -> None:
    """A producer that sets UNIQ_KEY itself: the second gets a key of its own; a true repeat does not."""
    records = [message("t", body, message_id="SAME") for body in (b"one", b"two", b"one")]
    placed, at = [], 0
    for record in records:
        changed = bytearray(record)
        changed[28:36] = at.to_bytes(8, "big")
        placed.append(bytes(changed))
        at += len(record)
    mesh = FakeMesh()
    result = run_import(mesh, store_of(tmp_path / "store", *placed), tmp_path / "note.json", "-o", "json")
    assert sorted(sent["body"] for sent in mesh.messages["t"]) == [b"one", b"two"]
    assert (result.exit_code, json.loads(result.stdout)["replayed"]) == (0, 1)


def test_damage_is_said_with_its_place(tmp_path: Path) -> None:
    """What stands before it is in; a broker that crashed may have half a last record, which was never confirmed."""
    good, bad = message("t", b"good"), bytearray(message("t", b"damaged"))
    bad[8] ^= 1
    store = store_of(tmp_path / "store", good, bytes(bad), message("t", b"behind"))
    mesh = FakeMesh()
    result = run_import(mesh, store, tmp_path / "note.json", "--batch", 1)
    assert result.exit_code == 1
    assert f"byte {len(good)}" in result.stderr
    assert [sent["body"] for sent in mesh.messages["t"]] == [b"good"]
    (store / "abort").touch()
    assert run_import(FakeMesh(), store, tmp_path / "other.json").exit_code == 0


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """Exit code 2 and which folder is meant."""
    result = run_import(FakeMesh(), tmp_path, tmp_path / "note.json")
    assert result.exit_code == 2
    assert "storePathRootDir" in result.stderr


def test_an_unreachable_mesh_is_said(tmp_path: Path) -> None:
    """Exit code 1, and that the command may be repeated."""
    store = store_of(tmp_path / "store", message("t", b"x"))
    with serving(FakeMesh()) as url:
        pass
    words = ["store", "import", str(store), "--state", str(tmp_path / "n"), "--endpoint", url, "--patience", "50ms"]
    result = RUNNER.invoke(app, words)
    assert result.exit_code == 1
    assert "repeat the command" in result.stderr


def test_queue_counts_come_from_the_configuration(tmp_path: Path) -> None:
    """Queues without a message are made too; without config/ and consumequeue/ the records say how many there must be."""
    store = store_of(tmp_path / "store", message("t", b"x", queue=2))
    mesh = FakeMesh()
    run_import(mesh, store, tmp_path / "a.json")
    assert mesh.queues == {"t": 3}
    (store / "config").mkdir()
    table = {"topicConfigTable": {"t": {"topicName": "t", "readQueueNums": 6, "writeQueueNums": 4}}}
    (store / "config" / "topics.json").write_text(json.dumps(table))
    shutil.copytree(store, tmp_path / "copy")
    mesh = FakeMesh()
    run_import(mesh, tmp_path / "copy", tmp_path / "b.json")
    assert mesh.queues == {"t": 6}


# A record as a message -------------------------------------------------------------------------------------------
def decoded(**facts: Any) -> RocketRecord:
    """One record."""
    return decode_rocketmq_record(message("t", b"x", **facts))


def rest_of(properties: dict[str, str]) -> dict[str, str]:
    """What did not fit, put together again."""
    pieces = [properties[name] for name in sorted(properties) if name.startswith("rocketmq-rest-")]
    found: dict[str, str] = json.loads("".join(pieces) or "{}")
    return found


@pytest.mark.parametrize(
    "facts",
    [
        {"tag": "a||b"},
        {"tag": "x" * 256},
        {"tag": "bell\x07"},
        {"properties": {"p": "bell\x07"}},
        {"properties": {"p": "del\x7f"}},
        {"properties": {"n" * 129: "v"}},
        {"properties": {"p": "界" * 3000}},
        {"properties": {f"p{number}": "v" for number in range(200)}},
        {"keys": [f"k{number}" for number in range(33)]},
        {"keys": ["a\u3000b"]},
    ],
)
def test_what_ternmq_does_not_allow_travels_in_json(facts: dict[str, Any]) -> None:
    """Nothing is lost, every property is legal, and there are no more than 64."""
    made = message_of(decoded(**facts), "broker-a:0")
    rest = rest_of(dict(made.properties))
    assert rest
    assert rest.get("TAGS", made.tag) == facts.get("tag", "")
    assert rest.get("KEYS", " ".join(made.keys)) == " ".join(facts.get("keys", ()))
    users = {name: value for name, value in made.properties.items() if not name.startswith("rocketmq-")}
    assert users | {name: rest[name] for name in rest if name not in {"TAGS", "KEYS"}} == facts.get("properties", {})
    assert len(made.properties) <= 64
    for name, value in made.properties.items():
        assert len(name.encode()) <= 128
        assert len(value.encode()) <= 8192
        assert not any(sign < " " or sign == "\x7f" for sign in name + value)


def test_without_a_message_id_the_place_stands_for_it() -> None:
    """RocketMQ's offset id: store host and position."""
    record = decoded()
    assert message_of(record, "broker-a:0").idempotency_key == record.offset_id
    long = decoded(message_id="x" * 300)
    assert message_of(long, "broker-a:0").idempotency_key == long.offset_id
