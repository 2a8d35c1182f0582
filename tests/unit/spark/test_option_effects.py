"""What options do that other files here do not show: time limits that find a proxy which hangs, the size of pages, ends by time."""

import json
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from tern_client.transport.credentials import CredentialsUnusable
from tern_spark import read_options
from tern_spark.planning.catalog import Catalog
from tern_spark.ranges import QueueRange
from tern_spark.sink.columns import rows_of
from tern_spark.sink.options import write_options
from tern_spark.sink.writer import write_rows
from tern_spark.source import TernReader
from tern_wire.errors import MessageTooLarge
from tern_wire.limits import MESSAGE_BODY_SIZE_MAX_BYTES
from tern_wire.limits_reads import READ_PLAN_QUEUES_MAX, READ_PLAN_TOPICS_MAX
from tests.support.client.batch_server import Store, batch_server
from tests.support.client.record_server import Script, record_server, stored

RECORDS = [stored(number, b"x" * 20_000) for number in range(10)]


@pytest.fixture
def proxies() -> Iterator[tuple[Script, Script]]:
    """Two proxies of one topic."""
    with (
        record_server(Script(queues={"broker-a:0": RECORDS})) as first,
        record_server(Script(queues={"broker-a:0": RECORDS})) as second,
    ):
        yield first, second


@pytest.fixture
def stores() -> Iterator[tuple[Store, Store]]:
    """Two proxies that store."""
    with batch_server() as first, batch_server() as second:
        yield first, second


def offsets(script: Script, endpoint: str = "", **options: str) -> list[int]:
    """Offsets of a whole read."""
    given = {"endpoint": endpoint or script.url, "subscribe": "orders", "fetchRetryIntervalMs": "1", **options}
    reader = TernReader(read_options(given), ("queue_offset",))
    return [at for part in reader.partitions() for batch in reader.read(part) for at in batch[0].to_pylist()]


def test_a_proxy_that_hangs_is_left_after_the_time_limit_of_a_fetch(proxies: tuple[Script, Script]) -> None:
    """Whichever of the two a task begins at: the one that is asked first never answers."""
    hangs = threading.Event()
    asked: list[Script] = []

    def hold(script: Script) -> None:
        if not asked:
            asked.append(script)
        if asked[0] is script:
            hangs.wait(60)

    for script in proxies:
        script.before_page = lambda _, script=script: hold(script)  # type: ignore[misc]
    try:
        both = ",".join(script.url for script in proxies)
        assert offsets(proxies[0], both, fetchTimeoutMs="300") == list(range(10))
    finally:
        hangs.set()
    assert len(asked) == 1


def test_a_proxy_that_hangs_is_left_after_the_time_limit_of_a_write(stores: tuple[Store, Store]) -> None:
    """The first one takes the rows and never answers."""
    hangs = threading.Event()

    def hold(_: object) -> None:
        hangs.wait(60)

    stores[0].before_request = hold
    options = write_options(
        {
            "endpoint": ",".join(store.url for store in stores),
            "topic": "orders",
            "delivery": "at_least_once",
            "requestTimeoutMs": "300",
        }
    )
    rows = pa.RecordBatch.from_pydict({"body": pa.array([b"a", b"b"])})
    try:
        write_rows(iter([rows]), options, 0, "write")
    finally:
        hangs.set()
    assert stores[1].bodies() == [b"a", b"b"]


def test_a_page_has_at_most_its_bytes(proxies: tuple[Script, Script]) -> None:
    """Three records of 20,000 bytes fit into 64 KiB: four pages, and each asks for that."""
    assert offsets(proxies[0], pageBytes="65536", prefetchPages="0") == list(range(10))
    pulls = [parse_qs(urlsplit(path).query) for path in proxies[0].seen if "/messages?" in path]
    assert [int(query["offset"][0]) for query in pulls] == [0, 3, 6, 9]
    assert {query["max_bytes"][0] for query in pulls} == {"65536"}


@pytest.mark.parametrize("document", ['{"orders": {"broker-a:0": 7000}}', '{"orders": "1970-01-01T00:00:07Z"}'])
def test_ends_and_begins_by_time_for_each_queue(proxies: tuple[Script, Script], document: str) -> None:
    """Record N of the script is visible from second N on."""
    assert offsets(proxies[0], endingOffsetsByTimestamp=document) == list(range(7))
    assert offsets(proxies[0], startingOffsetsByTimestamp=document) == [7, 8, 9]


def test_a_key_file_that_is_not_there_fails_in_the_driver(proxies: tuple[Script, Script]) -> None:
    """Before any request."""
    with pytest.raises(CredentialsUnusable, match=r"none\.key"):
        offsets(proxies[0], keyFile="/none.key")
    assert proxies[0].seen == []


def test_a_body_above_the_limit_is_named_by_its_row() -> None:
    """The largest is taken, and one byte more is refused before it is sent. Rows are numbered in the task."""
    for name, kind in (("body", pa.binary()), ("value", pa.string())):
        largest = "x" * MESSAGE_BODY_SIZE_MAX_BYTES
        batch = pa.RecordBatch.from_pydict({name: pa.array(["a", largest], kind)})
        assert len(rows_of(batch, 0)) == 2
        batch = pa.RecordBatch.from_pydict({name: pa.array(["a", largest + "x"], kind)})
        with pytest.raises(MessageTooLarge) as refused:
            rows_of(batch, 1_000)
        assert refused.value.__notes__ == ["row 1001 of the partition, numbered from 0"]


class Noted(Catalog):
    """Plans and commits are noted, and answered as a mesh would."""

    def __init__(self) -> None:
        super().__init__(
            read_options({"endpoint": "http://127.0.0.1:1", "subscribePattern": ".*", "group": "g"}, "stream")
        )
        self.plans: list[dict[str, object]] = []
        self.commits: list[int] = []
        self.admin.measured_topics = self._measured  # type: ignore[method-assign]
        self.admin.commit_offsets = self._committed  # type: ignore[method-assign,assignment]

    def _measured(self, document: dict[str, object]) -> list[dict[str, object]]:
        self.plans.append(json.loads(json.dumps(document)))
        topics: list[dict[str, dict[str, int]]] = self.plans[-1]["topics"]  # type: ignore[assignment]
        return [
            {
                "topic": asked["topic"],
                "queues": [
                    {"queue": queue, "measured_to": end, "size_bytes": end} for queue, end in asked["end"].items()
                ],
            }
            for asked in topics
        ]

    def _committed(self, _group: str, _topic: str, offsets: dict[str, int], **_expected: object) -> None:
        self.commits.append(len(offsets))


@pytest.mark.parametrize(("topics", "queues"), [(1, 5), (300, 2), (50, 1_000), (3, 20_000)])
def test_bytes_of_any_number_of_queues_are_measured_by_plans_within_their_limits(topics: int, queues: int) -> None:
    """A plan counts all queues of its topics: one range in each, and the sizes come back in their order."""
    with Noted() as catalog:
        for topic in range(topics):
            catalog._wanted(f"t{topic}", [(f"broker-a:{queue}", 0, 9) for queue in range(queues)])
        ranges = [QueueRange(topic=f"t{topic}", queue="broker-a:1", start=0, end=topic + 1) for topic in range(topics)]
        assert [found.size_bytes for found in catalog.measure(ranges)] == [each.end for each in ranges]
        sizes = [len(plan["topics"]) for plan in catalog.plans]  # type: ignore[arg-type]
        assert all(size <= READ_PLAN_TOPICS_MAX and size * queues <= READ_PLAN_QUEUES_MAX for size in sizes)
        # No more plans than needed.
        assert len(sizes) == -(-topics // min(READ_PLAN_TOPICS_MAX, READ_PLAN_QUEUES_MAX // queues))


def test_offsets_of_many_queues_are_committed_in_requests_of_a_thousand() -> None:
    """One topic in several broker groups has more queues than a request takes; none without offsets."""
    with Noted() as catalog:
        catalog.commit("orders", {f"broker-{number}:0": number for number in range(2_500)})
        catalog.commit("orders", {})
        assert catalog.commits == [1_024, 1_024, 452]


def test_a_plan_of_assigned_queues_has_those_alone() -> None:
    """Of a thousand queues every second one, in the order of the topic."""
    wanted = [f"broker-a:{queue}" for queue in range(998, -1, -2)]
    given = {"endpoint": "http://127.0.0.1:1", "assign": json.dumps({"orders": wanted})}
    with Catalog(read_options(given)) as catalog:
        found = catalog._wanted("orders", [(f"broker-a:{queue}", 0, 9) for queue in range(1_000)])
    assert [span.queue for span in found] == sorted(wanted, key=lambda name: int(name.partition(":")[2]))
