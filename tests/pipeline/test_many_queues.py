"""Ten thousand queues, of ten topics: a plan with its lease, a batch, a stream, the views `queues` and `lag`, the job `lag`.

A topic has at most 1,024 queues in a broker group, so they are ten topics. The number of requests is bounded by what is read. One
broker, and no Java; some 60 s, half of them for one request to each queue.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from tern_client.transport.blocking_transport import BlockingCaller
from tern_spark import read_options
from tern_spark.pages import ProxyPages
from tern_spark.planning.tasks import RANGE_COST_ROWS, TASK_ROWS_MIN
from tern_spark.source import TernReader
from tern_spark.stream.reader import TernStreamReader
from tern_spark.views.reader import ViewReader
from tests.support.client.job_runs import run as run_job
from tests.support.client.record_server import Script
from tests.support.mesh.mesh import Mesh, running_mesh

TOPICS, QUEUES = [f"wide-{number}" for number in range(10)], 1_000
ALL = len(TOPICS) * QUEUES
COLUMNS = ("topic", "queue_id", "queue_offset")
pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A message in each queue; every fourth has the key `hot`."""
    with running_mesh(tmp_path_factory.mktemp("mesh") / "tern", "--brokers", "1") as running:
        for topic in TOPICS:
            running.create(topic, queues=QUEUES)
            messages = [
                {"body": str(number), "queue": f"broker-a:{number}", "keys": [f"k{number}" if number % 4 else "hot"]}
                for number in range(QUEUES)
            ]
            sent = running.settled("POST", f"/v1/topics/{topic}/messages/batch", json={"messages": messages})
            assert sent.status_code == 200, sent.text
        yield running


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests of tasks (`pages`) and of plans (`admin`)."""
    counts: Counter[str] = Counter()
    page, drive = ProxyPages._get_once, BlockingCaller.drive

    def paged(*what: Any) -> Any:
        counts["pages"] += 1
        return page(*what)

    def driven(*what: Any, **how: Any) -> Any:
        counts["admin"] += 1
        return drive(*what, **how)

    monkeypatch.setattr(ProxyPages, "_get_once", paged)
    monkeypatch.setattr(BlockingCaller, "drive", driven)
    return counts


def given(mesh: Mesh, **more: str) -> dict[str, str]:
    """All topics from their beginning."""
    return {"endpoint": mesh.endpoint, "subscribePattern": "wide-.*", **more}


def rows_of(reader: TernReader | TernStreamReader, parts: list[Any]) -> list[tuple[str, int, int]]:
    """Topic, queue and offset of all rows."""
    batches = [batch for part in parts for batch in reader.read(part)]
    return sorted((row["topic"], row["queue_id"], row["queue_offset"]) for each in batches for row in each.to_pylist())


def test_a_batch_asks_each_topic_and_each_queue_once(mesh: Mesh, requests: Counter[str]) -> None:
    """The plan, its lease of all queues, and tasks that have even shares of the requests."""
    reader = TernReader(read_options(given(mesh)), COLUMNS)
    parts = reader.partitions()
    # The list, the topics, the lease.
    assert requests["admin"] <= 1 + len(TOPICS) + 1
    assert parts[0].lease is not None
    (lease,) = mesh.settled("GET", "/v1/read-leases").json()["leases"]
    assert sum(topic["queues"] for topic in lease["topics"]) == ALL
    assert len(parts) == -(-ALL * (1 + RANGE_COST_ROWS) // TASK_ROWS_MIN)
    found = rows_of(reader, parts)
    assert len(set(found)) == len(found) == ALL
    # Each queue, and each task asks when its topics were made.
    assert requests["pages"] <= ALL + len(parts) * len(TOPICS)


@pytest.mark.parametrize(("option", "limit"), [("maxRowsPerTrigger", "1500"), ("maxBytesPerTrigger", "150000")])
def test_a_trigger_of_a_stream_takes_requests_by_topic(
    mesh: Mesh, requests: Counter[str], option: str, limit: str
) -> None:
    """Two triggers: each describes and commits once a topic, and measures by three plans at most; no queue comes twice before all came
    once.
    """
    options = given(mesh, startingOffsets="earliest", group=f"by-{option}", **{option: limit})
    stream = TernStreamReader(read_options(options, "stream"), COLUMNS)
    at, found = stream.initialOffset(), []
    for _ in range(2):
        requests.clear()
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        assert requests["admin"] <= 1 + 2 * len(TOPICS) + 3
        parts = stream.partitions(at, end)
        batch = rows_of(stream, parts)
        assert 500 < len(batch) <= 1_500 and requests["pages"] <= len(batch) + len(parts) * len(TOPICS)
        found += batch
        at = end
    stream.stop()
    assert len(found) == len({(topic, queue) for topic, queue, _ in found})


def test_one_row_for_each_queue_in_the_views(mesh: Mesh, requests: Counter[str]) -> None:
    """`queues`: 10,000 rows by one request a topic. `lag`: those of a group, by one request a group."""
    view = ViewReader(read_options(given(mesh, view="queues")), ("topic", "messages"))
    batches = [batch for part in view.partitions() for batch in view.read(part)]
    messages = [row["messages"] for batch in batches for row in batch.to_pylist()]
    assert (len(messages), sum(messages)) == (ALL, ALL)
    assert requests["admin"] <= 1 + len(TOPICS)

    follow(mesh, "watchers")
    requests.clear()
    lag = ViewReader(read_options(given(mesh, view="lag", group="watchers")), ("topic", "queue_id", "lag"))
    rows = [row for part in lag.partitions() for batch in lag.read(part) for row in batch.to_pylist()]
    assert (len(rows), sum(row["lag"] for row in rows)) == (ALL, ALL)
    assert requests["admin"] <= 2


def follow(mesh: Mesh, group: str) -> None:
    """A group begins at the first message of every queue."""
    stream = TernStreamReader(read_options(given(mesh, startingOffsets="earliest", group=group), "stream"), COLUMNS)
    stream.initialOffset()
    stream.stop()


def test_the_lag_job_names_the_hottest_key_by_a_bounded_sample(
    mesh: Mesh, requests: Counter[str], tmp_path: Path
) -> None:
    """A quarter of the messages of every topic have one key; 128 requests for each topic. Without reading there is no key."""
    follow(mesh, "keyed")
    given = ("--groups", "keyed", "--samples", "1")
    ended = run_job("lag", Script(queues={}, url=mesh.endpoint), *given)
    assert ended.code == 0, ended.stderr
    lags, keys = ended.result["tables"]
    assert {row["topic"]: (row["queues"], row["lag"], row["hottest key"]) for row in lags["rows"]} == dict.fromkeys(
        TOPICS, (QUEUES, QUEUES, "hot")
    )
    shares = [row["of the sample %"] for row in keys["rows"] if row["key"] == "hot"]
    assert len(shares) == len(TOPICS) and all(15 < share < 35 for share in shares)
    assert requests["pages"] <= 128 * len(TOPICS)
    requests.clear()
    without = run_job("lag", Script(queues={}, url=mesh.endpoint), *given, "--no-keys")
    assert (without.code, without.result["tables"][1]["rows"], requests["pages"]) == (0, [], 0)
    shown = run_job(
        "lag", Script(queues={}, url=mesh.endpoint), *given, "--html", str(tmp_path / "lag"), output="table"
    )
    assert "Keys of what waits or has just come" in shown.result and " hot " in shown.result
    assert "keyed: wide-0 hot" in (tmp_path / "lag").read_text("utf-8")
