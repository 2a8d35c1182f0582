"""Delta tables that cannot be written, or that others have changed: the archive goes on, and each fault is told."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.catalog import delta
from tern_spark.schema import COLUMNS, arrow_schema
from tern_wire import extras
from tests.support.client.job_runs import DAY_MS, archive, run, stored_on, two_days, verify
from tests.support.client.record_server import Script, record_server
from tests.unit.spark.jobs.tables import archived_rows, compact, table_of, table_rows, two_queues


@pytest.fixture
def script() -> Iterator[Script]:
    """Two queues with 160 messages."""
    with record_server(two_queues()) as served:
        yield served


def test_nothing_is_removed_that_a_stale_table_names(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table cannot be written: compact tells it, ends with 1, and --delete waits for the next run."""
    archive(script, tmp_path, "--catalog", "--rows-per-file", "10")
    before = table_rows(tmp_path)

    def failing(*_: Any, **__: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", failing)
        ended = compact(script, tmp_path, "--delete")
    assert (ended.code, ended.facts["removed"]) == (1, 0)
    assert "table of 'orders': no space left on device" in ended.faults[0]
    assert table_rows(tmp_path) == before
    again = compact(script, tmp_path, "--delete")
    assert (again.code, again.facts["removed"]) == (0, 15), again.stderr
    assert table_rows(tmp_path) == before


def test_rows_are_archived_though_the_table_fails(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention does not wait for a table: the manifest counts, the fault is told, the next run has the table."""

    def failing(*_: Any, **__: Any) -> None:
        raise OSError(
            "\x1b[31mKernel error\x1b[0m ->\n   \x1b[31m\u21b3\x1b[0m refused\n   0: <unknown>\n   1: <unknown>"
        )

    with monkeypatch.context() as patch:
        patch.setattr(delta, "create_table_with_add_actions", failing)
        ended = archive(script, tmp_path, "--catalog")
    assert (ended.code, ended.facts["rows"], ended.facts["tables"]) == (1, 160, 0)
    assert ended.faults == ["table of 'orders': Kernel error -> refused"]
    assert archive(script, tmp_path, "--catalog").code == 0
    assert table_rows(tmp_path) == archived_rows(tmp_path)


def foreign_rows(at: Path) -> None:
    """Another program appends to the table."""
    one = pa.Table.from_pylist(table_rows(at)[:1], arrow_schema(COLUMNS))
    write_deltalake(str(at / "data/orders"), one, mode="append")


def foreign_log(at: Path) -> None:
    """Another program has made a table there."""
    shutil.rmtree(at / "data/orders/_delta_log")
    DeltaTable.create(str(at / "data/orders"), pa.schema([("other", pa.string())]))


def broken_log(at: Path) -> None:
    """The log is damaged."""
    (at / "data/orders/_delta_log" / f"{0:020}.json").write_bytes(b"{")


def later_table(at: Path) -> None:
    """The manifests are those of an older backup."""
    (at / "manifests/00000002.json").unlink()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (foreign_rows, "is in the table and in no manifest"),
        (foreign_log, "another program has made it"),
        (broken_log, "Json error"),
        (later_table, "it is of manifest 2, the archive has 1"),
    ],
)
def test_a_table_that_is_not_ours_any_more_is_left_alone(
    script: Script, tmp_path: Path, change: Any, text: str
) -> None:
    """archive and verify tell what is wrong, nothing is written over, and a table made anew is right."""
    archive(script, tmp_path, "--catalog")
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    archive(script, tmp_path)
    change(tmp_path)
    log = sorted((path.name, path.read_bytes()) for path in (tmp_path / "data/orders/_delta_log").iterdir())
    proof = verify(script, tmp_path)
    assert proof.code == 1 and text in proof.faults[-1], proof.faults
    ended = archive(script, tmp_path, "--catalog")
    if change is not later_table:
        assert ended.code == 1 and text in ended.faults[0] and "_delta_log" in ended.faults[0], ended.faults
        assert log == sorted((path.name, path.read_bytes()) for path in (tmp_path / "data/orders/_delta_log").iterdir())
    shutil.rmtree(tmp_path / "data/orders/_delta_log")
    assert archive(script, tmp_path, "--catalog").code == 0
    assert table_rows(tmp_path) == archived_rows(tmp_path)


def test_another_run_at_the_same_time_writes_no_version_twice(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read the table; one commits, the other is told, and writes nothing."""
    archive(script, tmp_path, "--catalog")
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    real = delta.TopicTable.apply

    def overtaken(self: Any, *given: Any) -> None:
        monkeypatch.setattr(delta.TopicTable, "apply", real)
        assert archive(script, tmp_path).code == 0
        real(self, *given)

    monkeypatch.setattr(delta.TopicTable, "apply", overtaken)
    ended = archive(script, tmp_path)
    assert ended.code == 1
    assert "another run was faster" in ended.faults[0]
    assert table_of(tmp_path).version() == 1
    assert table_rows(tmp_path) == archived_rows(tmp_path)


@pytest.mark.parametrize("place", ["%41/archive", "x%20y"])
def test_a_place_that_the_library_would_write_otherwise_is_refused(script: Script, tmp_path: Path, place: str) -> None:
    """It would be unescaped on the way: wrong usage, before a row is read. Without a table it is a place like others."""
    ended = archive(script, tmp_path / place, "--catalog")
    assert (ended.code, ended.result) == (2, None)
    assert "%" in json.loads(ended.stderr.splitlines()[-1])["error"]["detail"]
    assert archive(script, tmp_path / place).code == 0


def test_without_the_package_the_archive_goes_on_and_says_what_to_install(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--catalog is refused at once; a table that is there is told as stale; verify says that it did not look."""
    archive(script, tmp_path, "--catalog")
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "deltalake")
    refused = archive(script, tmp_path, "--catalog")
    assert (refused.code, refused.result) == (1, None)
    assert "pip install 'ternmq[tables]'" in refused.stderr
    ended = archive(script, tmp_path)
    assert (ended.code, ended.facts["rows"]) == (1, 5)
    assert "pip install 'ternmq[tables]'" in ended.faults[0]
    proof = verify(script, tmp_path)
    assert (proof.code, proof.facts["tables"], proof.facts["tables not compared"]) == (0, 0, 1)


def test_a_table_refuses_to_lose_rows(script: Script, tmp_path: Path) -> None:
    """DELETE is refused, and VACUUM removes no file, even one that no manifest has made the table's yet."""
    archive(script, tmp_path, "--catalog")
    fresh = tmp_path / "data/orders/2024-10-06/orders.broker-a.0.new.parquet"
    fresh.parent.mkdir()
    fresh.write_bytes(b"x")
    with pytest.raises(Exception, match="append-only"):
        table_of(tmp_path).delete("queue_offset > 5")
    assert table_of(tmp_path).vacuum(dry_run=False) == []
    with pytest.raises(Exception, match="retention"):
        table_of(tmp_path).vacuum(retention_hours=200, dry_run=False)
    assert fresh.exists()
    assert table_rows(tmp_path) == archived_rows(tmp_path)


def test_each_topic_has_a_table_and_one_that_fails_holds_up_no_other(script: Script, tmp_path: Path) -> None:
    """Two topics in one archive, the table of one of them damaged."""
    archive(script, tmp_path, "--catalog")
    queues = {"broker-b:0": [stored_on(at, b"x", 20_000 * DAY_MS) for at in range(9)]}
    with record_server(Script(queues=queues, topic="payments")) as other:
        given = ("--topics", "payments", "--to", str(tmp_path))
        assert run("archive", other, *given, "--catalog").facts["tables"] == 2
        (tmp_path / "data/orders/_delta_log" / f"{0:020}.json").write_bytes(b"{")
        other.queues["broker-b:0"] += [stored_on(9, b"y", 20_000 * DAY_MS)]
        ended = run("archive", other, *given)
        assert (ended.code, ended.facts["tables"], len(ended.faults)) == (1, 1, 1)
        assert "'orders'" in ended.faults[0]
        assert len(table_rows(tmp_path, "payments")) == 10
        assert run("verify", other, "--archive", str(tmp_path), "--topics", "payments").code == 0


def test_a_store_that_fails_when_it_is_asked_for_tables_is_a_fault_of_them(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run has archived its rows, and says so; compact keeps the replaced files; verify tells what it could not see."""
    archive(script, tmp_path, "--catalog", "--rows-per-file", "10")
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    real = ArchiveFolder.names

    def failing(self: ArchiveFolder, folder: str) -> list[str]:
        if folder.endswith("_delta_log"):
            raise OSError("no route to the store")
        return real(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveFolder, "names", failing)
        for ended in (archive(script, tmp_path), compact(script, tmp_path, "--delete"), verify(script, tmp_path)):
            assert (ended.code, ended.faults) == (1, ["table of 'orders': no route to the store"]), ended.stderr
        assert ended.facts["rows"] == 165
    assert compact(script, tmp_path, "--delete").facts["removed"] > 0
    assert table_rows(tmp_path) == archived_rows(tmp_path)
