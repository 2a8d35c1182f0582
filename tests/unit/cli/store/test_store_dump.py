"""`ternmq store dump --format rocketmq`: a real broker's files in its own words, streams, damage with its place."""

import json
import shutil
import tracemalloc
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from tern_cli.app import app
from tern_cli.store.rocketmq_files import open_rocketmq_file
from tern_wire.link.rows import QUEUE_ENTRIES
from tern_wire.records.queue_entry import PRE_BLANK
from tern_wire.records.write import encode_record
from tests.support.files.rocketmq_golden import GOLDEN, PARTS, golden_part

RUNNER = CliRunner()
LOG = GOLDEN / "commitlog" / ("0" * 20)
INDEX = GOLDEN / "index" / "20261121054934754"


def dump(*words: str | Path) -> Result:
    """What `ternmq store dump --format rocketmq` does with *words*."""
    return RUNNER.invoke(app, ["store", "dump", "--format", "rocketmq", *map(str, words)])


def lines(*words: str | Path) -> list[dict[str, Any]]:
    """The documents that it prints; it must succeed."""
    result = dump(*words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("name", PARTS)
def test_commit_logs_come_out_as_described(name: str) -> None:
    """Every record of every part in file order, across files, blanks left out, under RocketMQ's names and no others."""
    part = golden_part(name)
    files = sorted((part.folder / "commitlog").iterdir())
    expected = [
        {key: value for key, value in row.items() if key != "sameThroughMessageStore"}
        for row in part.described["records"]
    ]
    assert lines(*files) == expected


@pytest.mark.parametrize("name", PARTS)
def test_consume_queues_and_indexes_come_out_as_described(name: str) -> None:
    """Entries with their offsets across files; an index's header first, then its entries."""
    part = golden_part(name)
    for queue in part.described["consumeQueues"]:
        folder = part.folder / "consumequeue" / queue["topic"] / str(queue["queueId"])
        assert lines(*sorted(folder.iterdir())) == queue["entries"]
    for header in part.described["index"]["files"]:
        found, *entries = lines(part.folder / "index" / header["file"])
        assert found == header
        assert [entry["index"] for entry in entries] == list(range(1, header["indexCount"]))
        assert min(entry["physicalOffset"] for entry in entries) == header["beginPhyOffset"]
        assert max(entry["physicalOffset"] for entry in entries) == header["endPhyOffset"]


def test_files_at_their_full_size_end_where_the_broker_was(tmp_path: Path) -> None:
    """The zeros that RocketMQ preallocates; files recognised by content where the path says nothing."""
    second = GOLDEN / "commitlog" / f"{65536:020}"
    queue = GOLDEN / "consumequeue" / "T1" / "0" / ("0" * 20)
    for source, size_bytes in ((second, 65536), (queue, 200), (INDEX, 8440)):
        copy = tmp_path / source.name
        copy.write_bytes(source.read_bytes().ljust(size_bytes, b"\0"))
        renamed = {"file": copy.name} if source is INDEX else {}
        found = lines(copy)
        assert [{**found[0], **renamed}, *found[1:]] == lines(source)


def test_one_array_and_tables_say_the_same(tmp_path: Path) -> None:
    """`-o json` is one document, also of nothing; `-o table` has a row per record and lets no control character through."""
    assert json.loads(dump(LOG, "-o", "json").stdout) == lines(LOG)
    for file, head in ((LOG, "storeTimestamp"), (INDEX, "slotHash")):
        result = dump(file, "-o", "table")
        assert result.exit_code == 0
        assert str(file) in result.stdout
        assert head in result.stdout
    rows = dump(LOG, "-o", "table").stdout.splitlines()
    # The file's name, a heading and its line, the records, an empty line.
    assert len(rows) == 3 + 79 + 1
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / ("0" * 20)).write_bytes(bytes(64))
    assert json.loads(dump(folder / ("0" * 20), "-o", "json").stdout) == []
    (folder / ("0" * 20)).write_bytes(encode_record(b"\x1b[2J", 0, b"", b"", born_ms=1))
    assert "\x1b" not in dump(folder / ("0" * 20), "-o", "table").stdout


def test_damage_is_named_with_file_and_byte_after_what_stands_before_it(tmp_path: Path) -> None:
    """Exit code 1: a wrong magic, a size beyond the file, a cut, a body that does not unpack, a hole of zeros."""
    whole = LOG.read_bytes()
    places = [row["physicalOffset"] for row in golden_part(".").described["records"]]
    packed = next(row for row in golden_part(".").described["records"] if row["compression"] == "ZLIB")
    body_at = packed["physicalOffset"] + 88
    damaged = {
        "magic": (whole[: places[3] + 4] + b"\xff" + whole[places[3] + 5 :], 3),
        "size": (whole[: places[2]] + b"\x7f" + whole[places[2] + 1 :], 2),
        "cut": (whole[: places[5] + 100], 5),
        "short": (whole[: places[5] + 3] + b"x", 5),
        "body": (whole[:body_at] + bytes(40) + whole[body_at + 40 :], places.index(packed["physicalOffset"])),
        "hole": (whole[: places[4]] + bytes(places[5] - places[4]) + whole[places[5] :], 4),
    }
    for name, (data, number) in damaged.items():
        file = tmp_path / name / "commitlog" / ("0" * 20)
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
        result = dump(file)
        assert result.exit_code == 1, name
        assert len(result.stdout.splitlines()) == number, name
        assert f"{name}/commitlog/{'0' * 20}, byte {places[number]}: " in result.stderr, name
        assert "Traceback" not in result.output


def test_damaged_queues_and_indexes_are_named_too(tmp_path: Path) -> None:
    """A negative position, an entry behind zeros, a chain that leads forward, an index of another proportion."""
    entry = np.array([(7, 100, 5)], QUEUE_ENTRIES).tobytes()
    queue = tmp_path / "queue"
    for data, at, shown in (
        (entry + np.array([(-7, 100, 5)], QUEUE_ENTRIES).tobytes(), 20, 1),
        (entry + bytes(20) + entry, 20, 1),
        (entry + entry[:7], 20, 1),
    ):
        queue.write_bytes(data)
        result = dump(queue, "--kind", "consumequeue")
        assert (result.exit_code, len(result.stdout.splitlines())) == (1, shown)
        assert f"byte {at}: " in result.stderr
    whole = INDEX.read_bytes()
    damaged = tmp_path / "index" / INDEX.name
    damaged.parent.mkdir()
    damaged.write_bytes(whole[: 460 + 16] + b"\0\0\xff\xff" + whole[460 + 20 :])
    result = dump(damaged)
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 1)
    assert "byte 460: entry 1" in result.stderr
    damaged.write_bytes(whole + bytes(20))
    result = dump(damaged)
    assert result.exit_code == 1
    assert "--index-slots" in result.stderr
    assert dump(damaged, "--index-slots", "100").exit_code == 0


def test_pre_blanks_are_left_out_and_count(tmp_path: Path) -> None:
    """A queue that begins in the middle of a file, as after old files were removed."""
    queue = tmp_path / f"{200:020}"
    queue.write_bytes(PRE_BLANK * 3 + np.array([(7, 100, 5)], QUEUE_ENTRIES).tobytes() + bytes(120))
    assert lines(queue) == [{"queueOffset": 13, "physicalOffset": 7, "size": 100, "tagsCode": 5}]


def test_what_is_no_file_of_rocketmq_s_is_asked_wrongly(tmp_path: Path) -> None:
    """Exit code 2, before anything is shown, also when a good file stands first."""
    other = tmp_path / "notes.txt"
    other.write_text("no store at all, but long enough for every header there is\n" * 20)
    for words in ((other,), (LOG, other), (LOG, tmp_path / "missing"), (GOLDEN / "messages.json",), (tmp_path,)):
        result = dump(*words)
        assert (result.exit_code, result.stdout) == (2, ""), words
        assert "error:" in result.stderr
    assert RUNNER.invoke(app, ["store", "dump", str(LOG)]).exit_code == 2


def test_a_large_file_is_a_stream(tmp_path: Path) -> None:
    """64 MiB of records and 448 MiB of nothing behind them (a sparse file): memory stays below 8 MiB."""
    file = tmp_path / "commitlog" / ("0" * 20)
    file.parent.mkdir()
    record = encode_record(b"t", 0, bytes(1 << 20), b"", born_ms=1)
    with file.open("wb") as log:
        for _ in range(64):
            log.write(record)
        log.truncate(512 << 20)
    tracemalloc.start()
    sizes = [document["bodyLength"] for document in open_rocketmq_file(file, None, 0).documents()]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(size, len(list(same))) for size, same in groupby(sizes)] == [(1 << 20, 64)]
    assert peak_bytes < 8 << 20
    shutil.rmtree(file.parent)


def test_the_help_teaches() -> None:
    """Examples, kinds of files, exit codes."""
    text = " ".join(RUNNER.invoke(app, ["store", "dump", "--help"]).stdout.split())
    for piece in ("Examples", "store dump --format rocketmq", "Exit code 0", "--kind", "--index-slots", "ndjson"):
        assert piece in text
