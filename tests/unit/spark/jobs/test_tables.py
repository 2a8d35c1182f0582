"""Delta tables of an archive: the rows that the manifests name, one version for each manifest, whatever is killed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tern_jobs.archive import folder
from tern_jobs.archive.manifests import archived_files
from tern_jobs.catalog import delta
from tests.support.client.job_runs import archive, run, two_days, verify
from tests.support.client.record_server import Script, record_server
from tests.unit.spark.jobs.tables import (
    KilledHere,
    actions,
    archived_rows,
    asked,
    compact,
    table_of,
    table_rows,
    two_queues,
)


@pytest.fixture
def script() -> Iterator[Script]:
    """Two queues with 160 messages."""
    with record_server(two_queues()) as served:
        yield served


def test_the_table_has_the_rows_of_the_archive(script: Script, tmp_path: Path) -> None:
    """Every column of every row, read by an engine with a Parquet reader of its own."""
    ended = archive(script, tmp_path, "--catalog")
    assert (ended.code, ended.facts["rows"], ended.facts["tables"]) == (0, 160, 1), ended.stderr
    rows = table_rows(tmp_path)
    assert len(rows) == 160 and rows[4]["body"] == b"0/4 xxxx" and rows[4]["properties"] == [("size", "L")]
    assert rows == archived_rows(tmp_path)
    assert verify(script, tmp_path).code == 0


def test_a_table_is_only_made_when_it_is_asked_for(script: Script, tmp_path: Path) -> None:
    """And then of what was archived before as well, compacted files included, in one version."""
    archive(script, tmp_path, "--rows-per-file", "10")
    assert not (tmp_path / "data/orders/_delta_log").exists()
    compact(script, tmp_path, "--delete")
    ended = archive(script, tmp_path, "--catalog")
    assert (ended.code, ended.facts["rows"], ended.facts["tables"]) == (0, 0, 1), ended.stderr
    assert table_of(tmp_path).version() == 0
    assert table_rows(tmp_path) == archived_rows(tmp_path)


def test_each_manifest_is_a_version_and_a_run_without_news_is_none(script: Script, tmp_path: Path) -> None:
    """A table that is there is kept up to date without the argument; an older version reads as it was."""
    archive(script, tmp_path, "--catalog")
    script.queues["broker-a:1"] += two_days(1, 20, first=60)
    assert archive(script, tmp_path).facts["tables"] == 1
    assert archive(script, tmp_path, "--catalog").facts["rows"] == 0
    assert table_of(tmp_path).version() == 1
    assert table_rows(tmp_path) == archived_rows(tmp_path)
    old = table_of(tmp_path)
    old.load_as_version(0)
    assert len(asked(old)) == 160


def test_compaction_replaces_files_and_changes_no_data(script: Script, tmp_path: Path) -> None:
    """Whoever follows the table's changes gets no row again, and --delete leaves no file behind that the table names."""
    archive(script, tmp_path, "--catalog", "--rows-per-file", "10")
    before = table_rows(tmp_path)
    ended = compact(script, tmp_path, "--delete")
    assert (ended.code, ended.facts["removed"], ended.facts["tables"]) == (0, 15, 1), ended.stderr
    assert table_rows(tmp_path) == before == archived_rows(tmp_path)
    changes = [*actions(tmp_path, 1, "add"), *actions(tmp_path, 1, "remove")]
    assert len(changes) == 3 + 15 and not any(found["dataChange"] for found in changes)
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    archive(script, tmp_path)
    assert [found["dataChange"] for found in actions(tmp_path, 2, "add")] == [True]
    proof = verify(script, tmp_path)
    assert (proof.code, proof.facts["tables"]) == (0, 1), proof.faults
    assert "1 table names the same files" in proof.result["headline"]


@pytest.mark.parametrize("moment", ["before", "behind"])
@pytest.mark.parametrize("call", ["create", "apply"])
def test_a_run_killed_at_the_table_is_finished_by_the_next(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, moment: str
) -> None:
    """Before or behind the commit, of a new table or of one more version: the next run has the rest, each row once."""
    if call == "apply":
        archive(script, tmp_path, "--catalog")
        script.queues["broker-a:0"] += two_days(0, 5, first=100)
    real = getattr(delta.TopicTable, call)

    def dying(self: Any, *given: Any) -> None:
        if moment == "behind":
            real(self, *given)
        raise KilledHere

    with monkeypatch.context() as patch:
        patch.setattr(delta.TopicTable, call, dying)
        with pytest.raises(KilledHere):
            archive(script, tmp_path, "--catalog")
    script.queues["broker-a:1"] += two_days(1, 7, first=60)
    ended = archive(script, tmp_path, "--catalog")
    assert (ended.code, ended.facts["rows"]) == (0, 7), ended.stderr
    assert table_rows(tmp_path) == archived_rows(tmp_path)
    assert verify(script, tmp_path).code == 0


def test_runs_that_were_killed_are_caught_up_manifest_by_manifest(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New rows, then a compaction with them in it: as one version, either rows would come again or be no change."""
    archive(script, tmp_path, "--catalog", "--rows-per-file", "10")
    with monkeypatch.context() as patch:

        def dying(*_: Any) -> None:
            raise KilledHere

        patch.setattr(delta.TopicTable, "apply", dying)
        script.queues["broker-a:1"] += two_days(1, 20, first=60)
        for killed in (archive, compact):
            with pytest.raises(KilledHere):
                killed(script, tmp_path)
    stale = verify(script, tmp_path)
    assert stale.code == 1
    assert "table of 'orders': it is of manifest 1, the archive has 3" in stale.faults[0]
    assert archive(script, tmp_path).code == 0
    assert {found["dataChange"] for found in actions(tmp_path, 1, "add")} == {True}
    assert {found["dataChange"] for found in actions(tmp_path, 2, "add")} == {False}
    assert table_rows(tmp_path) == archived_rows(tmp_path)
    assert verify(script, tmp_path).code == 0


def test_statistics_are_those_of_the_rows(script: Script, tmp_path: Path) -> None:
    """Exact for each file, so that a reader may skip by them and answer min, max and count; a filter at an edge finds the row."""
    archive(script, tmp_path, "--catalog", "--rows-per-file", "30")
    table = table_of(tmp_path)
    told = pa.table(table.get_add_actions()).to_pylist()
    assert len(told) == len(archived_files(str(tmp_path)))
    for file in told:
        rows = pq.read_table(tmp_path / "data/orders" / file["path"]).to_pylist()
        assert file["num_records"] == len(rows)
        for name in ("topic", "broker", "queue_id", "queue_offset", "store_ts"):
            values = [row[name] for row in rows]
            assert (file["min"][name], file["max"][name]) == (min(values), max(values)), name
            assert file["null_count"][name] == 0
        newest = max(row["store_ts"] for row in rows)
        query = f"SELECT store_ts FROM found WHERE store_ts = TIMESTAMP '{newest.isoformat()}'"
        assert {"store_ts": newest} in asked(table, query)
    (edges,) = asked(table, "SELECT min(queue_offset), max(queue_offset), count(*) FROM found")
    assert list(edges.values()) == [0, 99, 160]


def test_a_range_with_absent_offsets_tells_no_bounds_of_them(script: Script, tmp_path: Path) -> None:
    """The manifest knows where the range ends and not which offset is the last."""
    script.queues = {"broker-a:0": two_days(0, 40)}
    archive(script, tmp_path)
    manifest = tmp_path / "manifests/00000001.json"
    document = json.loads(manifest.read_bytes())
    document["ranges"][0]["end"] = 45
    manifest.write_text(json.dumps(document))
    script.queues["broker-a:0"] = two_days(0, 45)
    archive(script, tmp_path, "--catalog")
    (told,) = pa.table(table_of(tmp_path).get_add_actions()).to_pylist()
    assert (told["min"]["queue_offset"], told["max"]["queue_offset"], told["num_records"]) == (None, None, 40)


def test_an_empty_topic_has_an_empty_table(script: Script, tmp_path: Path) -> None:
    """A query over it works; its first rows are the next version."""
    script.queues = {"broker-a:0": []}
    ended = archive(script, tmp_path, "--catalog")
    assert (ended.code, ended.facts["tables"]) == (0, 1), ended.stderr
    assert table_rows(tmp_path) == []
    script.queues["broker-a:0"] += two_days(0, 5)
    archive(script, tmp_path)
    assert len(table_rows(tmp_path)) == 5


def test_an_archive_that_was_moved_is_the_same_table(script: Script, tmp_path: Path) -> None:
    """The log names files by their place below the table. A blank and a percent sign in the path are no trouble."""
    here, there = tmp_path / "here 100% now", tmp_path / "there ö"
    assert archive(script, here, "--catalog").code == 0
    here.rename(there)
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    assert archive(script, there).code == 0
    assert len(table_rows(there)) == 165
    assert verify(script, there).code == 0


def test_many_versions_are_read_from_a_checkpoint(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library writes one now and then; the number of the manifest and the statistics are in it."""
    monkeypatch.setitem(delta.CONFIGURATION, "delta.checkpointInterval", "3")
    archive(script, tmp_path, "--catalog")
    for at in range(8):
        script.queues["broker-a:0"] += two_days(0, 1, first=100 + at)
        assert archive(script, tmp_path).code == 0
    assert list((tmp_path / "data/orders/_delta_log").glob("*.checkpoint.parquet"))
    assert verify(script, tmp_path).facts["tables"] == 1
    assert len(table_rows(tmp_path)) == 168


def test_the_page_of_a_run_shows_its_tables(script: Script, tmp_path: Path) -> None:
    """A row each, with what one opens."""
    page = tmp_path / "archive.html"
    archive(script, tmp_path / "archive", "--catalog", "--html", str(page))
    assert str(tmp_path / "archive/data/orders") in page.read_text("utf-8")


def test_the_topic_of_a_namespace_has_a_table(tmp_path: Path) -> None:
    """Its files have a percent sign in their names, which the log escapes; the table is continued and compared all the same."""
    queues = {"broker-a:0": two_days(0, 60)}
    with record_server(Script(queues=queues, topic="shop%orders")) as script:
        given = ("--topics", "shop%orders", "--to", str(tmp_path), "--rows-per-file", "10")
        assert run("archive", script, *given, "--catalog").facts["tables"] == 1
        assert run("compact", script, "--archive", str(tmp_path), "--delete").facts["tables"] == 1
        script.queues["broker-a:0"] += two_days(0, 5, first=60)
        assert run("archive", script, *given).code == 0
        assert len(table_rows(tmp_path, "shop%orders")) == 65
        assert run("verify", script, "--archive", str(tmp_path)).facts["tables"] == 1


def test_each_version_is_synced_and_so_is_its_name(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library leaves that to the operating system; of a new table the folder's name is synced as well."""
    real, synced = folder._sync, list[str]()

    def recorded(path: Path) -> None:
        synced.append(str(path.relative_to(tmp_path)))
        real(path)

    monkeypatch.setattr(folder, "_sync", recorded)
    log = "data/orders/_delta_log"
    archive(script, tmp_path, "--catalog")
    assert synced[-4:] == [f"{log}/{0:020}.json", log, log, "data/orders"]
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    archive(script, tmp_path)
    assert synced[-2:] == [f"{log}/{1:020}.json", log]
