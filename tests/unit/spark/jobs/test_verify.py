"""`verify`: a whole archive passes; each damage is found, and told in a line that names it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.client.job_runs import archive, run, two_days, verify
from tests.support.client.record_server import Script, record_server

FILE = f"data/orders/2024-10-05/orders.broker-a.0.{50:020}-{100:020}.parquet"
MANIFESTS = "manifests"


@pytest.fixture
def script() -> Iterator[Script]:
    """One queue with 120 messages, of which the first 100 are there at first."""
    with record_server(Script(queues={"broker-a:0": two_days(0, 100)}, page_rows_max=16)) as served:
        yield served


@pytest.fixture
def made(script: Script, tmp_path: Path) -> Path:
    """An archive of three runs."""
    for first in (100, 110, 120):
        assert archive(script, tmp_path).code == 0
        script.queues["broker-a:0"] += two_days(0, 10, first=first)
    return tmp_path


def edit(path: Path, change: object) -> None:
    """Replace keys of the first range of a manifest."""
    document = json.loads(path.read_bytes())
    document["ranges"][0] |= change
    path.write_text(json.dumps(document))


def test_a_whole_archive_holds(script: Script, made: Path) -> None:
    """All rows are read from the files and compared with the broker; ten rows are not yet archived."""
    ended = verify(script, made)
    assert (ended.code, ended.faults) == (0, [])
    expected = {"manifests": 3, "rows": 120, "compared rows": 120, "not yet archived": 10, "lost before archiving": 0}
    assert expected.items() <= ended.facts.items()
    assert verify(script, made, "--head", ended.facts["head"]).code == 0


def test_what_the_broker_has_deleted_is_not_compared(script: Script, made: Path) -> None:
    """Retention has reached 70, inside a file: the rows from there on are compared."""
    script.min_offset = 70
    ended = verify(script, made)
    assert (ended.code, ended.facts["rows"], ended.facts["compared rows"]) == (0, 120, 50)


def test_every_damaged_byte_of_a_file_is_found(script: Script, made: Path) -> None:
    """One bit, at places all over the file."""
    path = made / FILE
    whole = path.read_bytes()
    for at in range(0, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        ended = verify(script, made, "--without-broker")
        assert ended.code == 1, at
        assert FILE in ended.faults[0]
    path.write_bytes(whole)
    assert verify(script, made).code == 0


def test_a_cut_file_and_an_absent_file_are_found(script: Script, made: Path) -> None:
    """Half a file, and none."""
    path = made / FILE
    os.truncate(path, path.stat().st_size // 2)
    assert "bytes, " in verify(script, made).faults[0]
    path.unlink()
    ended = verify(script, made)
    assert ended.faults == [f"{FILE} (broker-a:0 of 'orders', 50 to 100): the file is absent"]


def test_an_altered_row_is_found_by_the_file_s_hash_and_by_its_rows(script: Script, made: Path) -> None:
    """A whole and right Parquet file, with one other body; also when its manifest is made to fit the file."""
    table = pq.read_table(made / FILE)
    bodies = table.column("body").to_pylist()
    bodies[7] = b"another"
    table = table.set_column(table.column_names.index("body"), "body", pa.array(bodies, pa.binary()))
    pq.write_table(table, made / FILE)
    faults = verify(script, made, "--without-broker").faults
    assert [fault.split("): ")[1] for fault in faults][1:] == ["the rows are not those that were archived"]
    assert "the rows from 50 on are not those of the broker" in verify(script, made).faults[-1]


def test_a_dropped_row_is_found(script: Script, made: Path) -> None:
    """The file has 49 rows."""
    pq.write_table(pq.read_table(made / FILE).slice(1), made / FILE)
    faults = verify(script, made).faults
    assert any("49 rows, the manifest says 50" in fault for fault in faults)
    assert any("49 rows from 50 on, the broker has 50" in fault for fault in faults)


@pytest.mark.parametrize("number", [1, 2])
def test_an_absent_manifest_is_found(script: Script, made: Path, number: int) -> None:
    """The number is missing, the chain breaks, and so do the offsets."""
    (made / MANIFESTS / f"{number:08}.json").unlink()
    ended = verify(script, made)
    assert ended.code == 1
    assert f"manifest {number:08}.json: absent" in ended.faults[0]
    assert "the chain breaks" in ended.faults[1]
    assert number == 1 or "offsets 100 to 110 are in no range" in ended.faults[2]


def test_the_newest_manifest_is_missed_by_its_hash_or_by_the_broker(script: Script, made: Path) -> None:
    """The chain cannot tell that its end was cut off; whoever kept the hash can."""
    head = verify(script, made).facts["head"]
    (made / MANIFESTS / "00000003.json").unlink()
    ended = verify(script, made, "--head", head)
    assert (ended.code, ended.facts["not yet archived"]) == (1, 20)
    assert head in ended.faults[0]


def test_a_cut_range_is_found(script: Script, made: Path) -> None:
    """The manifest says that a range ends earlier: the next one breaks the chain, and offsets are in no range."""
    edit(made / MANIFESTS / "00000002.json", {"end": 105})
    ended = verify(script, made)
    assert ended.code == 1
    assert "00000003.json: the chain breaks" in ended.faults[0]
    assert "broker-a:0 of 'orders': offsets 105 to 110 are in no range" in ended.faults
    edit(made / MANIFESTS / "00000002.json", {"end": 115})
    assert "broker-a:0 of 'orders': offsets 110 to 115 are in two ranges" in verify(script, made).faults


def test_a_manifest_of_another_release_is_a_fault(script: Script, made: Path) -> None:
    """Its version is told; nobody guesses what it means."""
    path = made / MANIFESTS / "00000003.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"version": 9}))
    assert "version 9; this release reads version 1" in verify(script, made).faults[0]


def test_a_queue_that_the_broker_lost_or_that_is_shorter_there_is_a_fault(script: Script, made: Path) -> None:
    """The broker has 60 messages, then no such queue."""
    script.queues["broker-a:0"] = two_days(0, 60)
    assert "the archive ends at 120, the broker at 60" in verify(script, made).faults[0]
    script.queues = {"broker-b:0": []}
    assert "broker-a:0 of 'orders': in the archive, not at the broker" in verify(script, made).faults


def test_another_record_at_the_broker_is_a_fault(script: Script, made: Path) -> None:
    """One property differs."""
    script.queues["broker-a:0"][60] = two_days(0, 1, first=61)[0].replace(b"id-0-61", b"id-0-60")
    ended = verify(script, made)
    assert [fault.split("): ")[1] for fault in ended.faults] == ["the rows from 50 on are not those of the broker"]


def test_the_text_has_one_line_for_each_fault(script: Script, made: Path) -> None:
    """Without -o json."""
    (made / FILE).unlink()
    ended = run("verify", script, "--archive", str(made), output="table")
    assert ended.code == 1
    assert [line for line in ended.result.splitlines() if line.startswith("fault: ")] == [
        f"fault: {FILE} (broker-a:0 of 'orders', 50 to 100): the file is absent"
    ]


def test_without_an_archive_there_is_nothing_to_prove(script: Script, tmp_path: Path) -> None:
    """An empty folder, and a topic that is not in the archive."""
    assert "has no manifests" in verify(script, tmp_path).stderr
    archive(script, tmp_path)
    assert verify(script, tmp_path, "--topics", "payments").code == 2
