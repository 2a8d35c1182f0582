"""`archive`: every offset once, by topic and day, whatever is killed and run again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tern_jobs import archive_job
from tern_jobs.archive import planning
from tern_jobs.archive.folder import ArchiveFolder
from tern_jobs.archive.manifests import archived_files
from tests.support.client.job_runs import archive, files, run, two_days, verify
from tests.support.client.record_server import Script, record_server

DATA = "data/orders"


@pytest.fixture
def script() -> Iterator[Script]:
    """Two queues with 100 and 60 messages of two days."""
    queues = {"broker-a:0": two_days(0, 100), "broker-a:1": two_days(1, 60)}
    with record_server(Script(queues=queues, page_rows_max=16)) as served:
        yield served


def offsets(at: Path) -> dict[int, list[int]]:
    """The offsets in the files that the manifests name, by queue, in file order."""
    found: dict[int, list[int]] = {}
    for path in archived_files(str(at)):
        for row in pq.read_table(at / path, columns=["queue_id", "queue_offset"]).to_pylist():
            found.setdefault(row["queue_id"], []).append(row["queue_offset"])
    return found


def test_a_topic_becomes_files_by_day_whose_names_tell_their_ranges(script: Script, tmp_path: Path) -> None:
    """Four files: two queues, two days each. One manifest, and no plan is left."""
    ended = archive(script, tmp_path)
    assert (ended.code, ended.facts["rows"]) == (0, 160), ended.stderr
    assert files(tmp_path) == [
        f"{DATA}/2024-10-04/orders.broker-a.0.{0:020}-{50:020}.parquet",
        f"{DATA}/2024-10-04/orders.broker-a.1.{0:020}-{50:020}.parquet",
        f"{DATA}/2024-10-05/orders.broker-a.0.{50:020}-{100:020}.parquet",
        f"{DATA}/2024-10-05/orders.broker-a.1.{50:020}-{60:020}.parquet",
        "manifests/00000001.json",
    ]
    assert offsets(tmp_path) == {0: list(range(100)), 1: list(range(60))}


def test_retention_waits_for_the_tasks_of_a_run(script: Script, tmp_path: Path) -> None:
    """Its planned ranges are leased, and free when it has ended; a run without news leases nothing."""
    archive(script, tmp_path)
    ((asked,),) = script.leased
    ends = {queue: len(records) for queue, records in script.queues.items()}
    assert asked == {"topic": "orders", "begin": dict.fromkeys(ends, 0), "end": ends}
    assert script.ended == ["lease-1"]
    archive(script, tmp_path)
    assert len(script.leased) == 1


def test_rows_in_the_files_are_those_that_the_source_reads(script: Script, tmp_path: Path) -> None:
    """All columns, properties and NULLs included; anything that reads Parquet reads them."""
    archive(script, tmp_path)
    row = pq.read_table(tmp_path / DATA / f"2024-10-04/orders.broker-a.0.{0:020}-{50:020}.parquet").to_pylist()[4]
    assert (row["message_id"], row["tags"], row["keys"], row["body"]) == ("id-0-4", "red", None, b"0/4 xxxx")
    assert (row["properties"], row["broker"], row["topic"]) == ([("size", "L")], "broker-a", "orders")


def test_the_next_run_continues_and_a_run_without_news_adds_nothing(script: Script, tmp_path: Path) -> None:
    """20 more messages: a second manifest with only those; then no third."""
    archive(script, tmp_path)
    script.queues["broker-a:1"] += two_days(1, 20, first=60)
    second, third = archive(script, tmp_path), archive(script, tmp_path)
    assert (second.facts["rows"], second.facts["manifest"]) == (20, 2)
    assert (third.code, third.facts["rows"], third.facts["manifest"]) == (0, 0, 2)
    assert third.facts["head"] == second.facts["head"]
    assert offsets(tmp_path)[1] == list(range(80))
    assert verify(script, tmp_path).code == 0


def test_ranges_are_cut_at_multiples_so_that_later_runs_cut_alike(script: Script, tmp_path: Path) -> None:
    """--rows-per-file 40: offsets 0, 40, 50 (the day), 80."""
    archive(script, tmp_path, "--rows-per-file", "40")
    starts = [int(name.split(".")[3].split("-")[0]) for name in archived_files(str(tmp_path)) if ".0.0" in name]
    assert starts == [0, 40, 50, 80]


def test_the_same_range_gives_the_same_bytes_whatever_the_pages(script: Script, tmp_path: Path) -> None:
    """A task that runs again, or twice at a time, changes nothing in the file that counts."""
    hashes = []
    for at, page_rows in enumerate((9, 35, 1_000)):
        script.page_rows_max = page_rows
        archive(script, tmp_path / str(at))
        manifest = json.loads((tmp_path / str(at) / "manifests/00000001.json").read_bytes())
        hashes.append([(found["file_sha256"], found["checksum"]) for found in manifest["ranges"]])
    assert hashes[0] == hashes[1] == hashes[2]


class KilledHere(BaseException):
    """Stands for SIGKILL: no handler of the product stops it."""


@pytest.mark.parametrize("step", range(1, 7))
def test_a_run_killed_at_any_write_is_finished_by_the_next(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Writes: the plan, four files, the manifest. What came after planning is archived too, once, and the archive verifies."""
    real, count = ArchiveFolder.sink, 0

    def dying(self: ArchiveFolder, path: str, attempt: str) -> Any:
        nonlocal count
        count += 1
        if count == step:
            raise KilledHere
        return real(self, path, attempt)

    with monkeypatch.context() as patch:
        patch.setattr(ArchiveFolder, "sink", dying)
        with pytest.raises(KilledHere):
            archive(script, tmp_path)
    assert archived_files(str(tmp_path)) == []
    script.queues["broker-a:0"] += two_days(0, 5, first=100)
    ended = archive(script, tmp_path)
    assert ended.code == 0, ended.stderr
    assert offsets(tmp_path) == {0: list(range(105)), 1: list(range(60))}
    assert [name for name in files(tmp_path) if "part" in name or "plans" in name] == []
    proof = verify(script, tmp_path)
    assert (proof.code, proof.facts["rows"], proof.facts["compared rows"]) == (0, 165, 165), proof.faults


def test_a_run_killed_after_publishing_is_not_repeated(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plan is left; the manifest counts."""

    def dying(*_: Any) -> None:
        raise KilledHere

    with monkeypatch.context() as patch:
        patch.setattr(archive_job, "drop_plans", dying)
        with pytest.raises(KilledHere):
            archive(script, tmp_path)
    ended = archive(script, tmp_path)
    assert (ended.code, ended.facts["rows"], ended.facts["manifest"]) == (0, 0, 1)
    assert offsets(tmp_path) == {0: list(range(100)), 1: list(range(60))}


def test_deleted_offsets_fail_the_run_or_are_recorded(script: Script, tmp_path: Path) -> None:
    """Retention reaches 110 of a queue that was archived to 100."""
    script.queues.pop("broker-a:1")
    archive(script, tmp_path)
    script.queues["broker-a:0"] += two_days(0, 50, first=100)
    script.min_offset = 110
    refused = archive(script, tmp_path)
    assert (refused.code, refused.result) == (1, None)
    assert "offset 100 was wanted, the oldest one kept is 110" in refused.stderr
    allowed = archive(script, tmp_path, "--allow-gaps")
    assert (allowed.code, allowed.facts["rows"], allowed.facts["lost"]) == (0, 40, 10)
    proof = verify(script, tmp_path)
    assert (proof.code, proof.facts["lost before archiving"], proof.facts["compared rows"]) == (0, 10, 40)


def test_offsets_deleted_during_the_run_keep_what_was_read_before(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task reads 48 rows, then retention reaches 70: 48 rows, a recorded gap of 22, and 30 rows."""
    script.queues.pop("broker-a:1")
    planned = planning.plan_archive

    def overtaken(*given: Any, **named: Any) -> Any:
        found = planned(*given, **named)
        script.before_page = lambda offset: setattr(script, "min_offset", 70 if offset >= 48 else 0)
        return found

    monkeypatch.setattr(archive_job, "plan_archive", overtaken)
    ended = archive(script, tmp_path, "--allow-gaps")
    assert (ended.code, ended.facts["rows"], ended.facts["lost"]) == (0, 78, 22), ended.stderr
    assert offsets(tmp_path) == {0: [*range(48), *range(70, 100)]}
    script.before_page = lambda offset: None
    assert verify(script, tmp_path).code == 0


def test_a_second_run_at_the_same_time_does_not_replace_the_first_one_s_manifest(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both plan, both read; one publishes, the other ends with 1. The archive is that of the first."""
    planned = planning.plan_archive

    def overtaken(*given: Any, **named: Any) -> Any:
        found = planned(*given, **named)
        monkeypatch.setattr(archive_job, "plan_archive", planned)
        assert archive(script, tmp_path).code == 0
        return found

    monkeypatch.setattr(archive_job, "plan_archive", overtaken)
    ended = archive(script, tmp_path)
    assert ended.code == 1
    assert "Manifest 00000001.json is there" in ended.stderr
    assert verify(script, tmp_path).code == 0
    assert archive(script, tmp_path).facts["manifest"] == 1


def test_a_topic_that_was_made_again_is_refused(script: Script, tmp_path: Path) -> None:
    """Its queue ends before its archive does."""
    archive(script, tmp_path)
    script.queues["broker-a:0"] = two_days(0, 3)
    ended = archive(script, tmp_path)
    assert ended.code == 1
    assert "broker-a:0 of 'orders' ends at 3, its archive at 100" in ended.stderr


def test_a_topic_that_was_made_again_with_as_many_messages_is_refused(script: Script, tmp_path: Path) -> None:
    """Between two runs: its offsets go on where the archive ends, and what lies before would be missing in silence."""
    archive(script, tmp_path)
    script.queues["broker-a:0"] += two_days(0, 20, first=100)
    script.created_ms = 2
    ended = archive(script, tmp_path)
    assert ended.code == 1 and "deleted and made again" in ended.stderr
    script.created_ms = 1
    assert archive(script, tmp_path).facts["rows"] == 20


def test_a_topic_that_is_made_again_during_the_run_fails_it(script: Script, tmp_path: Path) -> None:
    """And is refused when the run is repeated, whose plan is still there."""

    def made_again(_: int) -> None:
        script.created_ms = 2

    script.before_page = made_again
    for _ in range(2):
        ended = archive(script, tmp_path)
        assert ended.code == 1 and "deleted and made again" in ended.stderr
    assert archived_files(str(tmp_path)) == []


def test_nothing_is_added_to_a_damaged_chain(script: Script, tmp_path: Path) -> None:
    """The manifest is no JSON any more."""
    archive(script, tmp_path)
    (tmp_path / "manifests/00000001.json").write_bytes(b"{")
    ended = archive(script, tmp_path)
    assert ended.code == 1
    assert "manifest 00000001.json: not readable" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--to", "s3://key:secret@bucket/archive"), "AWS_ACCESS_KEY_ID"),
        (("--to", "gopher://there"), "gopher"),
        (("--rows-per-file", "0"), "--rows-per-file"),
        (("--topics", "no topic"), "no topic"),
    ],
)
def test_wrong_arguments_end_with_2_or_tell_the_limit(
    script: Script, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    """A sentence on stderr, as JSON with -o json; nothing on stdout."""
    ended = run("archive", script, "--topics", "orders", "--to", str(tmp_path), *arguments)
    assert ended.code in {1, 2}
    assert ended.result is None
    assert text in json.loads(ended.stderr.splitlines()[-1])["error"]["detail"]
