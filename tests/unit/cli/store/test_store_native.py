"""`ternmq store dump` and `stat` of a node's own directory: everything that was written, in streams, also after a crash or damage."""

import base64
import fcntl
import json
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.store.native_directory import NodeDirectory as Opened
from tern_cli.store.native_documents import documents
from tern_cli.store.native_selection import Selection, What
from tests.support.files.node_directory import GROUP, QUEUES, TOPIC_IDS, NodeDirectory, Sent, digest, filled

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> NodeDirectory:
    """A directory with some of everything, stopped in order."""
    return filled(tmp_path_factory.mktemp("native") / "node")


@pytest.fixture
def copy(node: NodeDirectory, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(node.directory, tmp_path / "node"))


def run(*words: str | Path | int) -> Result:
    """What `ternmq store` does with *words*."""
    return RUNNER.invoke(app, ["store", *map(str, words)])


def lines(directory: Path, *words: str | Path | int) -> list[dict[str, Any]]:
    """The documents of a dump, which must succeed and change nothing."""
    before = digest(directory)
    result = run("dump", "--data-dir", directory, *words)
    assert result.exit_code == 0, result.output
    assert digest(directory) == before
    return [json.loads(line) for line in result.stdout.splitlines()]


def offset_of(node: NodeDirectory, sent: Sent) -> int | None:
    """The offset of a message, if its queue shows it."""
    queue = node.queues[sent.topic, sent.queue]
    return queue.index(sent) if sent in queue else None


def test_records_are_those_that_were_sent_with_their_offsets(node: NodeDirectory) -> None:
    """Every message in the order of the log: topic, queue, offset, position, size, tag, keys, body; late ones have what is known."""
    found = lines(node.directory, "--bodies")
    assert len(found) == len(node.stored)
    for document, sent in zip(found, node.stored, strict=True):
        facts = (
            sent.topic,
            TOPIC_IDS[sent.topic],
            sent.queue,
            sent.position,
            sent.size,
            sent.tag,
            [sent.key],
            len(sent.body),
        )
        names = ("topic", "topic_id", "queue", "position", "size", "tag", "keys", "body_size")
        assert tuple(document[name] for name in names) == facts
        assert base64.b64decode(document["body"]) == sent.body
        if sent not in node.delayed:
            assert document["offset"] == offset_of(node, sent)
    assert "body" not in lines(node.directory, "--count", 1)[0]


@pytest.mark.parametrize(("topic", "queue"), QUEUES)
def test_one_queue_is_shown_by_offset_late_messages_too(node: NodeDirectory, topic: str, queue: int) -> None:
    """--topic takes a name or an id; --from and --count choose offsets, and the order is the queue's."""
    sent = node.queues[topic, queue]
    for name in (topic, TOPIC_IDS[topic]):
        found = lines(node.directory, "--topic", name, "--queue", queue)
        assert [(row["offset"], row["position"]) for row in found] == [(n, one.position) for n, one in enumerate(sent)]
    part = lines(node.directory, "--topic", topic, "--queue", queue, "--from", 5, "--count", 2)
    assert [row["offset"] for row in part] == [5, 6]


def test_records_begin_at_a_position(node: NodeDirectory) -> None:
    """--from without a queue is a position; whole segments of the log can be named as files."""
    place = node.stored[300].position
    found = lines(node.directory, "--from", place, "--topic", "audit")
    assert [row["position"] for row in found] == [one.position for one in node.stored[300:] if one.topic == "audit"]
    segment = node.directory / "commitlog" / f"{GROUP.segment_size_bytes:020d}"
    result = run("dump", segment, "--what", "records")
    positions = [json.loads(line)["position"] for line in result.stdout.splitlines()]
    size = GROUP.segment_size_bytes
    assert positions == [one.position for one in node.stored if size <= one.position < 2 * size]


def test_entries_tell_their_commands(node: NodeDirectory) -> None:
    """From the genesis to the last one, without a gap, with kinds and counts; --from is an index."""
    found = lines(node.directory, "--what", "entries")
    assert [row["index"] for row in found] == list(range(1, node.saved_index + 1))
    assert (found[0]["kind"], found[0]["members"]) == ("genesis", list(GROUP.members))
    assert found[1]["commands"] == [{"kind": "create_topic", "count": 1, "size": found[1]["commands"][0]["size"]}]
    counts = [command["count"] for row in found for command in row["commands"] if command["kind"] == "send"]
    assert sum(counts) == len(node.stored)
    assert all(row["now_ms"] for row in found[1:])
    assert lines(node.directory, "--what", "entries", "--from", 40, "--count", 3) == found[39:42]


def test_queues_index_timers_and_states_are_shown(node: NodeDirectory) -> None:
    """What follows from the log, as the files have it."""
    queues = lines(node.directory, "--what", "queues")
    heads = [row for row in queues if "min" in row]
    assert {(row["topic"], row["queue"]): (row["min"], row["end"]) for row in heads} == {
        key: (0, len(sent)) for key, sent in node.queues.items()
    }
    entries = [(row["topic"], row["queue"], row["offset"], row["position"]) for row in queues if "offset" in row]
    assert sorted(entries) == sorted(
        (*key, offset, one.position) for key, sent in node.queues.items() for offset, one in enumerate(sent)
    )
    index = lines(node.directory, "--what", "index")
    assert sum(row["entries"] for row in index if "slots" in row) == len([row for row in index if "number" in row])
    visible = {one.position for sent in node.queues.values() for one in sent} - {one.position for one in node.delayed}
    assert {row["position"] for row in index if "number" in row} == visible
    timers = lines(node.directory, "--what", "timers")
    assert [row["deliver_ms"] for row in timers] == sorted(row["deliver_ms"] for row in timers)
    assert {row["position"] for row in timers} == {one.position for one in node.delayed}
    states = lines(node.directory, "--what", "state")
    assert states[0]["index"] == node.saved_index
    assert states[0]["marks"]["queues"]


def test_single_files_are_shown(node: NodeDirectory) -> None:
    """A queue's, an index's and a state's file as PATH; the directory itself; nothing else."""
    queue = next((node.directory / "consumequeue/1/0").glob("0*0"))
    rows = [json.loads(line) for line in run("dump", queue).stdout.splitlines()]
    assert [row["position"] for row in rows[1:]] == [one.position for one in node.queues["orders", 0]]
    for folder, field in (("index", "slots"), ("state", "marks")):
        file = sorted(path for path in (node.directory / folder).iterdir() if path.suffix != ".crc")[0]
        first = json.loads(run("dump", file).stdout.splitlines()[0])
        assert first["file"] == file.name
        assert field in first
    assert len(run("dump", node.directory).stdout.splitlines()) == len(node.stored)
    for path in (node.directory / "votes", node.directory / "commitlog" / "nothing", node.directory.parent):
        assert run("dump", path).exit_code == 2
    assert run("dump").exit_code == 2
    assert run("dump", "--data-dir", node.directory.parent).exit_code == 2
    assert run("dump", "--data-dir", node.directory, "--topic", "nobody", "--queue", 1).exit_code == 2


@pytest.mark.parametrize("what", list(What))
def test_tables_and_one_array_say_the_same(node: NodeDirectory, what: What) -> None:
    """`-o json` is one document; `-o table` has a row for each, under a heading."""
    found = lines(node.directory, "--what", what)
    assert json.loads(run("dump", "--data-dir", node.directory, "--what", what, "-o", "json").stdout) == found
    table = run("dump", "--data-dir", node.directory, "--what", what, "-o", "table")
    assert table.exit_code == 0
    rows = [line for line in table.stdout.splitlines() if line and not line.startswith("---")]
    groups = sum("min" in row or "slots" in row for row in found)
    assert len(rows) == len(found) + (groups or 1)


def test_damage_ends_a_dump_where_it_is(copy: Path, node: NodeDirectory) -> None:
    """Exit code 1, file and byte, and everything before it; entries of the log, records, a queue."""
    sent = node.stored[300]
    segment, at = divmod(sent.position + 30, GROUP.segment_size_bytes)
    path = copy / "commitlog" / f"{segment * GROUP.segment_size_bytes:020d}"
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)
    result = run("dump", "--data-dir", copy)
    assert result.exit_code == 1
    shown = [json.loads(line)["position"] for line in result.stdout.splitlines()]
    assert shown == [one.position for one in node.stored[: len(shown)]]
    assert 250 < len(shown) <= 300
    assert f"{path}, byte " in result.stderr
    queue = copy / "consumequeue/1/0" / ("0" * 20)
    queue.write_bytes(b"\xff" * 20 + queue.read_bytes()[20:])
    result = run("dump", "--data-dir", copy, "--what", "queues")
    assert result.exit_code == 1
    assert str(queue) in result.stderr
    assert "Traceback" not in result.output


def test_after_a_crash_and_beside_a_running_node_there_is_a_note(copy: Path) -> None:
    """Shown all the same, with a line on stderr that says what may be missing."""
    (copy / "abort").write_text("1 b00t\n")
    result = run("dump", "--data-dir", copy, "--what", "queues")
    assert result.exit_code == 0
    assert "not stopped in order" in result.stderr
    with (copy / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in (("dump", "--what", "queues"), ("stat",)):
            result = run(*words, "--data-dir", copy)
            assert result.exit_code == 0
            assert "4711" in result.stderr


def test_without_saved_states_the_log_is_shown_all_the_same(copy: Path, node: NodeDirectory) -> None:
    """Offsets are then unknown; queues have nothing that says how far they reach."""
    shutil.rmtree(copy / "state")
    found = lines(copy)
    assert len(found) == len(node.stored)
    assert {row["offset"] for row in found} == {None}
    result = run("dump", "--data-dir", copy, "--what", "queues")
    assert result.exit_code == 1
    assert "no saved state" in result.stderr
    assert json.loads(run("stat", "--data-dir", copy, "-o", "json").stdout)["problems"]


def test_a_dump_is_a_stream(tmp_path: Path) -> None:
    """Memory does not grow with the log."""
    node = NodeDirectory(tmp_path)
    for _ in range(300):
        node.send(*[("orders", 0)] * 10, body_size=4000)
    node.save()
    node.close()
    dump = documents(Opened(tmp_path), Selection(what=What.RECORDS), lambda text: None)
    next(dump)
    tracemalloc.start()
    count = sum(1 for _ in dump)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 2999
    assert peak < 10 << 20 < sum(one.size for one in node.stored)


def test_stat_counts_without_reading_messages(node: NodeDirectory) -> None:
    """Files by kind, the log's first and last entry with their times, queues, index files, timers, states."""
    before = digest(node.directory)
    result = run("stat", "--data-dir", node.directory, "-o", "json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert digest(node.directory) == before
    files = {row["kind"]: row for row in facts["files"]}
    sizes = {path: path.stat().st_size for path in node.directory.rglob("*") if path.is_file()}
    assert (files["together"]["files"], files["together"]["size"]) == (len(sizes), sum(sizes.values()))
    assert files["commitlog"]["size"] == len(list((node.directory / "commitlog").iterdir())) * GROUP.segment_size_bytes
    log = facts["log"]
    assert (log["first_index"], log["last_index"], log["end_position"]) == (1, node.saved_index, node.end_position)
    assert (log["first_term"], log["last_term"], log["last_ms"]) == (0, 1, node.now_ms)
    assert {(row["topic"], row["queue"]): row["messages"] for row in facts["topics"]} == {
        key: len(sent) for key, sent in node.queues.items()
    }
    assert facts["timers_pending"] == len(node.delayed)
    assert facts["states"][0]["index"] == node.saved_index
    assert sum(row["entries"] for row in facts["index"]) > 0
    assert (facts["is_clean"], facts["problems"]) == (True, [])
    assert "orders" in run("stat", "--data-dir", node.directory).stdout
    assert run("stat", "--data-dir", node.directory / "nowhere").exit_code == 2


def test_help_teaches(node: NodeDirectory) -> None:
    """Each command has examples, and says what its exit codes mean."""
    del node
    for command in ("dump", "verify", "stat"):
        text = run(command, "--help").stdout
        assert f"ternmq store {command} --data-dir" in text
        assert "Exit code 0" in text
