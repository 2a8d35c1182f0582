"""`compact`: fewer files, the same rows, and an archive that still verifies and goes on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tern_jobs import compact_job
from tern_jobs.archive.manifests import archived_files
from tests.support.client.job_runs import Ended, archive, files, run, two_days, verify
from tests.support.client.record_server import Script, record_server


@pytest.fixture
def script() -> Iterator[Script]:
    """Two queues with 100 messages of two days."""
    queues = {"broker-a:0": two_days(0, 100), "broker-a:1": two_days(1, 100)}
    with record_server(Script(queues=queues, page_rows_max=64)) as served:
        yield served


@pytest.fixture
def made(script: Script, tmp_path: Path) -> Path:
    """An archive of two runs with files of 10 rows: 22 in all, 20 of the first run."""
    archive(script, tmp_path, "--rows-per-file", "10")
    script.queues["broker-a:1"] += two_days(1, 20, first=100)
    archive(script, tmp_path, "--rows-per-file", "10")
    return tmp_path


def compact(script: Script, at: Path, *arguments: str) -> Ended:
    """Compact the archive."""
    return run("compact", script, "--archive", str(at), *arguments)


def rows(at: Path) -> list[dict[str, Any]]:
    """All rows of the archive, by queue and offset."""
    found = [row for path in archived_files(str(at)) for row in pq.read_table(at / path).to_pylist()]
    return sorted(found, key=lambda row: (row["queue_id"], row["queue_offset"]))


def test_files_of_a_queue_and_day_are_joined_and_the_rows_stay(script: Script, made: Path) -> None:
    """22 files become four; old ones stay until --delete; another archive run goes on behind them."""
    before = rows(made)
    ended = compact(script, made)
    assert (ended.code, ended.facts["files before"], ended.facts["files after"]) == (0, 22, 4), ended.stderr
    assert rows(made) == before
    assert len([name for name in files(made) if name.endswith(".parquet")]) == 26
    proof = verify(script, made)
    assert (proof.code, proof.facts["rows"], proof.facts["compared rows"]) == (0, 220, 220), proof.faults
    again = compact(script, made, "--delete")
    assert (again.facts["removed"], again.facts["head"]) == (22, ended.facts["head"])
    assert [name for name in files(made) if name.endswith(".parquet")] == sorted(archived_files(str(made)))
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    assert archive(script, made).facts["rows"] == 5
    assert verify(script, made).code == 0
    assert compact(script, made, "--delete").facts["removed"] == 2


def test_a_run_killed_before_its_manifest_changes_nothing(
    script: Script, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The joined files are there, and no part of the archive; the next run writes them again."""

    def dying(*_: Any) -> str:
        raise KeyboardInterrupt

    named = archived_files(str(made))
    with monkeypatch.context() as patch:
        patch.setattr(compact_job, "publish_manifest", dying)
        with pytest.raises(KeyboardInterrupt):
            compact(script, made, "--delete")
    assert archived_files(str(made)) == named
    assert verify(script, made).code == 0
    assert compact(script, made, "--delete").facts["removed"] == 22
    assert verify(script, made).code == 0


def test_a_damaged_file_is_never_joined(script: Script, made: Path) -> None:
    """A whole Parquet file with one row less: the archive stays as it is."""
    path = made / archived_files(str(made))[3]
    pq.write_table(pq.read_table(path).slice(1), path)
    ended = compact(script, made)
    assert (ended.code, ended.result) == (1, None)
    assert path.name in ended.stderr
    assert len(archived_files(str(made))) == 22


def test_no_file_becomes_larger_than_allowed(script: Script, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for three files at a time, and none for two."""
    size_bytes = max((made / name).stat().st_size for name in archived_files(str(made)))
    monkeypatch.setattr(compact_job, "MIB", 3 * size_bytes + 100)
    ended = compact(script, made, "--file-mib", "1")
    parts = [row["parts"] for row in ended.result["tables"][0]["rows"]]
    assert parts and set(parts) <= {2, 3}
    assert verify(script, made).code == 0
    monkeypatch.setattr(compact_job, "MIB", size_bytes)
    assert "No files are to be joined." in compact(script, made, "--file-mib", "1").result["headline"]


def test_without_an_archive_there_is_nothing_to_join(script: Script, tmp_path: Path) -> None:
    """And a size of nothing is wrong usage."""
    assert compact(script, tmp_path).code == 1
    assert compact(script, tmp_path, "--file-mib", "0").code == 2
