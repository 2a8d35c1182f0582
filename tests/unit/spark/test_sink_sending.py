"""The sink's sends against a scripted proxy over real HTTP: every row is stored, in order, and once where that can be told."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from tern_spark.sink.columns import ColumnError
from tern_spark.sink.options import WriteOptions, write_options
from tern_spark.sink.sending import BatchSends
from tern_spark.sink.writer import batches_of, write_rows
from tern_wire.errors import NoLeader, OutcomeUnknown, TopicNotFound
from tests.support.client.batch_server import Fault, Store, batch_server

NO_LEADER = (503, {"code": "no-leader", "broker_group": "broker-a", "retry_after_ms": 1})
OVERLOADED = (429, {"code": "overloaded", "what": "sends", "retry_after_ms": 1})
NOT_FOUND: Fault = (404, {"code": "topic-not-found", "topic": "orders"})


@pytest.fixture
def store() -> Iterator[Store]:
    """A proxy that stores batches."""
    with batch_server() as serving:
        yield serving


def options_of(*stores: Store, **given: str) -> WriteOptions:
    """Options of a write to *stores*."""
    return write_options(
        {"endpoint": ",".join(store.url for store in stores), "delivery": "at_least_once", "topic": "orders"} | given
    )


def batch_of(bodies: list[bytes], **columns: Any) -> Any:
    """A RecordBatch with these bodies and string columns."""
    arrays = {"body": pa.array(bodies, pa.binary())}
    arrays |= {name: pa.array(values, pa.string()) for name, values in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def numbered(count: int) -> list[bytes]:
    """Bodies 0, 1, ..."""
    return [b"%d" % number for number in range(count)]


def write(options: WriteOptions, *found: Any, write_id: str = "w", partition: int = 0) -> int:
    """Write RecordBatches as one task."""
    return write_rows(iter(found), options, partition, write_id)


def test_a_partition_goes_in_batches_of_the_limit_in_its_order(store: Store) -> None:
    """2,500 rows in two RecordBatches, one request at a time: three requests, and the order of the rows."""
    options = options_of(store, requestsInFlight="1")
    assert write(options, batch_of(numbered(2_000)), batch_of(numbered(500))) == 2_500
    assert store.bodies() == [*numbered(2_000), *numbered(500)]
    assert store.sizes == [1_024, 976, 500]


def test_large_bodies_fit_the_proxy_s_limit_of_bytes(store: Store) -> None:
    """Twenty bodies of 1.5 MiB: the server itself checks each request against the limit."""
    bodies = [bytes([number]) * 1_572_864 for number in range(20)]
    assert write(options_of(store), batch_of(bodies)) == 20
    assert sorted(store.bodies()) == bodies


def test_rows_go_to_their_own_topics_and_others_to_the_option_s(store: Store) -> None:
    """The column `topic`, with NULL for the option's; the order within each topic is kept."""
    topics = ["a", None, "b", "a", None]
    write(options_of(store), batch_of(numbered(5), topic=topics))
    assert {topic: store.bodies(topic) for topic in store.topics} == {
        "a": [b"0", b"3"],
        "orders": [b"1", b"4"],
        "b": [b"2"],
    }


def test_a_row_without_a_topic_or_a_body_is_named(store: Store) -> None:
    """The number of the row counts from the begin of the partition."""
    options = write_options({"endpoint": store.url, "delivery": "at_least_once"})
    with pytest.raises(ColumnError, match="row 4 of the partition has no topic"):
        write(options, batch_of(numbered(3), topic=["a"] * 3), batch_of(numbered(2), topic=["a", None]))
    with pytest.raises(ColumnError, match="row 1 of the partition has no body"):
        write(options_of(store), pa.RecordBatch.from_pydict({"body": pa.array([b"1", None], pa.binary())}))


@pytest.mark.parametrize("fault", ["drop", "lose", NO_LEADER, OVERLOADED, {0, 1, 7}, set(range(10))])
def test_whatever_fails_for_now_is_repeated_and_stored_once(store: Store, fault: Any) -> None:
    """A lost request, a lost answer, back-pressure, a part that was refused: every row once, in a few requests."""
    store.faults = [fault, fault]
    write(options_of(store), batch_of(numbered(10), tags=["t"] * 10))
    assert sorted(store.bodies()) == numbered(10)
    assert len(store.sizes) == 3


def test_refused_rows_of_a_message_group_are_stored_before_the_next_request(store: Store) -> None:
    """A part of the first request is refused: the second request begins when the first is complete."""
    count = 3_000
    bodies = [b"%d" % number + b"." * 1_000 for number in range(count)]
    store.faults = [set(range(1_024))]
    write(options_of(store, requestsInFlight="8"), batch_of(bodies, message_group=["g"] * count))
    assert store.bodies() == bodies
    assert max(store.sizes) < 1_024  # cut to what a proxy passes on in one piece


def test_a_repeated_task_stores_nothing_twice(store: Store) -> None:
    """Another attempt of the same partition; another partition and another write are other rows."""
    rows = batch_of(numbered(100), tags=["t"] * 100)
    for _ in range(2):
        write(options_of(store), rows)
    assert sorted(store.bodies()) == sorted(numbered(100))
    write(options_of(store), rows, partition=1)
    write(options_of(store), rows, write_id="v")
    assert len(store.bodies()) == 300


@pytest.mark.parametrize("changed", ["order", "tag"])
def test_a_repeated_task_with_other_rows_loses_none(store: Store, changed: str) -> None:
    """Its rows come in another order, or with equal bodies and other fields: at least once means that each is stored."""
    first, second = numbered(10), numbered(10)[::-1]
    if changed == "tag":
        first = second = [b""] * 10
    write(options_of(store), batch_of(first, tags=[f"t{number}" for number in range(10)]))
    write(options_of(store), batch_of(second, tags=[f"t{9 - number}" for number in range(10)]))
    stored = {(message["body"], message["tag"]) for message in store.topics["orders"]}
    assert stored == set(zip(first, [f"t{number}" for number in range(10)], strict=True))


def test_without_keys_a_lost_answer_is_a_second_copy(store: Store) -> None:
    """idempotent=false: at least once, and no more."""
    store.faults = ["lose"]
    write(options_of(store, idempotent="false"), batch_of(numbered(3)))
    assert sorted(store.bodies()) == sorted(numbered(3) * 2)
    assert not any("idempotency_key" in message for message in store.topics["orders"])


def test_a_dead_proxy_is_left_for_the_next_one(store: Store) -> None:
    """Tasks begin at different endpoints; from either one the write gets through."""
    with batch_server() as gone:
        pass
    for partition in range(2):
        write(options_of(gone, store), batch_of(numbered(5)), partition=partition)
    assert len(store.bodies()) == 10


def test_a_refusal_for_good_ends_the_task_at_once(store: Store) -> None:
    """An unknown topic: no repeat, and no further request is begun."""
    store.faults = [NOT_FOUND] * 3
    with pytest.raises(TopicNotFound):
        write(options_of(store, requestsInFlight="1"), batch_of(numbered(5_000)))
    assert len(store.sizes) <= 2


def test_a_refusal_that_lasts_ends_with_its_error_after_the_time_limit(store: Store) -> None:
    """sendTimeoutMs bounds one request with its repeats, of the whole and of a part."""
    # On a slow machine the last attempt may have no time for its answer.
    refusals = (NoLeader, OutcomeUnknown)
    store.faults = [NO_LEADER] * 1_000
    with pytest.raises(refusals):
        write(options_of(store, sendTimeoutMs="500"), batch_of(numbered(5)))
    store.faults = [{0}] * 100_000
    options = options_of(store, sendTimeoutMs="500")
    with BatchSends(options, 0, pause_s=lambda _: None) as sends, pytest.raises(NoLeader) as failure:
        for batch in batches_of(iter([batch_of(numbered(5))]), options, 0, "w"):
            sends.send(batch)
    assert failure.value.__notes__ == ["row 0 of the partition, numbered from 0"]


def test_the_namespace_travels_with_every_request(store: Store) -> None:
    """Option `namespace`."""
    write(options_of(store, namespace="shop"), batch_of(numbered(1)))
    assert store.headers["MQ-Namespace"] == "shop"


def test_a_partition_without_rows_sends_nothing(store: Store) -> None:
    """No RecordBatch, and an empty one."""
    assert write(options_of(store)) == 0
    assert write(options_of(store), batch_of([])) == 0
    assert store.sizes == []
