"""Starts, ends, filters, namespaces and groups of the source against a real mesh: what the options mean to real brokers. No Java."""

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.sql.streaming.datasource import ReadMaxRows

from tern_spark import read_options
from tern_spark.pages import Page, ProxyPages
from tern_spark.schema import HEAD_COLUMNS
from tern_spark.source import TernReader
from tern_spark.stream.reader import TernStreamReader
from tern_wire.records.layout import HEAD_SIZE_BYTES
from tests.support.mesh.mesh import Mesh, eventually, running_mesh

COLUMNS = ("queue_offset", "body", "store_ts")


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """One broker is enough: how it replicates is not what is read."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        yield running


def send(mesh: Mesh, topic: str, bodies: list[str], **headers: str) -> None:
    """One message after the other."""
    for body in bodies:
        sent = mesh.settled(
            "POST",
            f"/v1/topics/{topic}/messages",
            content=body.encode(),
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        assert sent.status_code == 201, sent.text


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def is_later_than(moment_ms: int) -> bool:
    """Whether the clock has passed *moment_ms*."""
    return now_ms() > moment_ms


def rows_of(mesh: Mesh, **options: str) -> list[dict[str, Any]]:
    """The rows of a batch read, without Spark."""
    reader = TernReader(read_options({"endpoint": mesh.endpoint, **options}), COLUMNS)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def bodies_of(mesh: Mesh, **options: str) -> list[str]:
    """Their bodies, sorted."""
    return sorted(row["body"].decode() for row in rows_of(mesh, **options))


def test_a_start_by_time_is_a_filter_by_store_time(mesh: Mesh) -> None:
    """Begin and end at the store times of messages: exactly the rows that a filter on `store_ts` keeps."""
    mesh.create("by-time", queues=2)
    for number in range(6):
        send(mesh, "by-time", [str(number)])
        eventually(partial(is_later_than, now_ms()), within_s=5, what="the next millisecond")
    times = sorted(int(row["store_ts"].timestamp() * 1_000) for row in rows_of(mesh, subscribe="by-time"))
    low, high = times[1], times[4]
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    found = rows_of(mesh, subscribe="by-time", startingTimestamp=str(low), endingTimestamp=str(high), **late)
    kept = [each for each in times if low <= each < high]
    assert sorted(int(row["store_ts"].timestamp() * 1_000) for row in found) == kept
    assert len(rows_of(mesh, subscribe="by-time", startingOffsets="-1h")) == 6
    assert len(rows_of(mesh, subscribe="by-time", startingOffsets="-1")) == 2


def test_filters_are_evaluated_in_the_broker(mesh: Mesh) -> None:
    """By tags and by SQL92."""
    mesh.create("filtered", queues=2)
    for body, tag, size in (("a", "red", "1"), ("b", "blue", "2"), ("c", "green", "3")):
        send(mesh, "filtered", [body], MQ_Tag=tag, MQ_Properties=f'{{"size": "{size}"}}')
    assert bodies_of(mesh, subscribe="filtered", filter="red || green") == ["a", "c"]
    assert bodies_of(mesh, subscribe="filtered", filter="size > 1 AND TAGS <> 'green'") == ["b"]
    assert bodies_of(mesh, subscribe="filtered", filter="*") == ["a", "b", "c"]


def test_a_namespace_has_topics_and_groups_of_its_own(mesh: Mesh) -> None:
    """The same name with and without one; a pattern sees the topics of its namespace."""
    mesh.create("shared", queues=1)
    send(mesh, "shared", ["outside"])
    inside = {"MQ-Namespace": "shop"}
    assert mesh.settled("PUT", "/v1/topics/shared", json={"queues": 1}, headers=inside).status_code == 201
    eventually(
        lambda: mesh.call("GET", "/v1/topics/shared/offsets", headers=inside).status_code == 200,
        within_s=15,
        what="the proxy knows the topic",
    )
    send(mesh, "shared", ["inside"], MQ_Namespace="shop")
    assert bodies_of(mesh, subscribe="shared") == ["outside"]
    assert bodies_of(mesh, subscribe="shared", namespace="shop") == ["inside"]
    assert bodies_of(mesh, subscribePattern="sha.*", namespace="shop") == ["inside"]


def test_topics_by_pattern_and_single_queues(mesh: Mesh) -> None:
    """A pattern matches whole names; assign reads no other queue."""
    for topic in ("pat-a", "pat-b", "other-pat-a"):
        mesh.create(topic, queues=2)
        send(mesh, topic, [f"{topic}/{number}" for number in range(4)])
    assert len(bodies_of(mesh, subscribePattern="pat-.")) == 8
    some = bodies_of(mesh, assign='{"pat-a": ["broker-a:0"]}')
    rest = bodies_of(mesh, assign='{"pat-a": ["broker-a:1"]}')
    assert sorted(some + rest) == [f"pat-a/{number}" for number in range(4)]


def test_a_stream_commits_under_its_group_and_a_batch_reads_from_there(mesh: Mesh) -> None:
    """The group is made; its lag shrinks; a batch with startingOffsets=group reads what is left."""
    mesh.create("followed", queues=2)
    send(mesh, "followed", [str(number) for number in range(10)])
    given = {"endpoint": mesh.endpoint, "subscribe": "followed", "group": "followers", "startingOffsets": "earliest"}
    reader = TernStreamReader(read_options(given, "stream"), COLUMNS)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(6))
    assert reader.latestOffset(end, ReadMaxRows(1)) != end
    reader.stop()
    assert mesh.settled("GET", "/v1/groups/followers/lag?topic=followed").json()["lag"] == 4
    assert len(bodies_of(mesh, subscribe="followed", group="followers", startingOffsets="group")) == 4


@pytest.mark.parametrize("admission", ["oldest", "aligned"])
def test_admission_by_store_time(mesh: Mesh, admission: str) -> None:
    """Batches of 3 of 9 rows: every row is taken once, in the order of store times."""
    topic = f"admitted-{admission}"
    mesh.create(topic, queues=3)
    send(mesh, topic, [str(number) for number in range(9)])
    given = {"endpoint": mesh.endpoint, "subscribe": topic, "startingOffsets": "earliest", "admission": admission}
    reader = TernStreamReader(read_options(given, "stream"), COLUMNS)
    at, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(3))) != at:
        parts = reader.partitions(at, end)
        batches.append([row["store_ts"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()])
        at = end
    reader.stop()
    assert sum(len(batch) for batch in batches) == 9
    assert all(0 < len(batch) <= 3 for batch in batches)
    assert all(max(before) <= min(after) for before, after in pairwise(batches))


def test_a_limit_of_bytes_is_exact(mesh: Mesh) -> None:
    """By the sizes that the broker tells, small and large bodies in turn; a task's share of bytes likewise."""
    mesh.create("bytes", queues=2)
    send(mesh, "bytes", ["x" * (10 if number % 3 else 3_000) for number in range(18)])
    given = {"endpoint": mesh.endpoint, "subscribe": "bytes", "startingOffsets": "earliest"}
    reader = TernStreamReader(read_options({**given, "maxBytesPerTrigger": "8000"}, "stream"), ("store_size",))
    at, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        parts = reader.partitions(at, end)
        rows = [row["store_size"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        sizes.append((len(rows), sum(rows)))
        at = end
    reader.stop()
    assert sum(rows for rows, _ in sizes) == 18
    assert all(size <= 8_000 for _, size in sizes)
    assert len(sizes) <= 2 * -(-sum(size for _, size in sizes) // 8_000)
    batch = TernReader(read_options({**given, "maxBytesPerPartition": "65536"}), COLUMNS)
    assert len(batch.partitions()) == 1


@pytest.mark.parametrize("wanted", ["*", "odd", "parity = 'odd'"])
def test_header_columns_travel_as_heads_and_are_those_of_whole_records(
    mesh: Mesh, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All header columns, with each kind of filter: every page is of heads, 88 bytes a row, and the rows are the same."""
    topic = f"heads-{len(wanted)}"
    mesh.create(topic, queues=2)
    for number in range(10):
        parity = "odd" if number % 2 else "even"
        send(mesh, topic, ["x" * (number * 40)], mq_tag=parity, mq_property_parity=parity)
    pages: list[Page] = []
    page_of = ProxyPages.page

    def noted(reader: ProxyPages, *asked: Any, **how: Any) -> Page:
        pages.append(page_of(reader, *asked, **how))
        return pages[-1]

    monkeypatch.setattr(ProxyPages, "page", noted)
    given = read_options({"endpoint": mesh.endpoint, "subscribe": topic, "filter": wanted})
    heads = tuple(sorted(HEAD_COLUMNS))

    def rows(columns: tuple[str, ...]) -> list[dict[str, Any]]:
        reader = TernReader(given, columns)
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        found = [row for batch in batches for row in batch.select(list(heads)).to_pylist()]
        return sorted(found, key=lambda row: (row["queue_id"], row["queue_offset"]))

    alone = rows(heads)
    assert {page.is_heads for page in pages} == {True}
    assert sum(len(page.records) for page in pages) == len(alone) * HEAD_SIZE_BYTES
    pages.clear()
    assert rows((*heads, "body")) == alone
    assert {page.is_heads for page in pages} == {False}
    assert len(alone) == (10 if wanted == "*" else 5)
