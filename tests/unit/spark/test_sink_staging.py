"""Exactly once against a scripted proxy over real HTTP: what tasks stage and the driver publishes is visible once, and nothing else is."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from tern_spark.sink.options import WriteOptions, write_options
from tern_spark.sink.publishing import give_up, publish
from tern_spark.sink.staging import Receipt
from tern_spark.sink.writer import RowsStaged, RowsWritten, TernStreamWriter, TernWriter, receipts_of, write_task
from tern_wire.errors import IllegalTag, NoLeader, OutcomeUnknown, StageUnknown, TopicNotFound
from tests.support.client.batch_server import Fault, Store, batch_server
from tests.unit.spark.test_sink_sending import NO_LEADER, NOT_FOUND, OVERLOADED, batch_of, numbered

BAD_TAG: Fault = (400, {"code": "illegal-tag", "pointer": "/messages/3/tag"})


@pytest.fixture
def store() -> Iterator[Store]:
    """A proxy that stages and publishes."""
    with batch_server() as serving:
        yield serving


def options_of(*stores: Store, **given: str) -> WriteOptions:
    """Options of a write to *stores*."""
    return write_options({"endpoint": ",".join(store.url for store in stores), "topic": "orders"} | given)


def task(options: WriteOptions, *found: Any, partition: int = 0, query: str = "q", batch: int = 0) -> Receipt:
    """Write RecordBatches as one attempt of a task."""
    told = write_task(iter(found), options, partition, query, batch)
    assert isinstance(told, RowsStaged)
    return told.receipt


def test_nothing_is_visible_before_the_driver_publishes(store: Store) -> None:
    """Two partitions of several chunks, in order; entries have no idempotency key."""
    options = options_of(store)
    receipts = [
        task(options, batch_of(numbered(2_000)), batch_of(numbered(500))),
        task(options, batch_of([b"z"]), partition=1),
    ]
    assert [(receipt.partition, receipt.rows, receipt.topics) for receipt in receipts] == [
        (0, 2_500, ("orders",)),
        (1, 1, ("orders",)),
    ]
    assert store.topics == {}
    publish(options, receipts, is_final=False)
    assert store.bodies() == [*numbered(2_000), *numbered(500), b"z"]
    assert not any("idempotency_key" in message for message in store.topics["orders"])
    (told,) = store.publications
    assert (told["final"], told["topics"], told["accept_lost_history"]) == (False, ["orders"], False)


def test_only_the_attempt_of_the_receipt_counts(store: Store) -> None:
    """A task that failed half way, a speculative one, and one whose rows came in another order."""
    options = options_of(store, requestsInFlight="1")
    store.faults = [set(), NOT_FOUND]
    with pytest.raises(TopicNotFound):
        task(options, batch_of(numbered(2_000)))
    task(options, batch_of(numbered(2_000)))
    receipt = task(options, batch_of(numbered(2_000)[::-1]))
    publish(options, [receipt], is_final=False)
    assert store.bodies() == numbered(2_000)[::-1]
    assert store.stages["q"] == {}


@pytest.mark.parametrize("fault", ["drop", "lose", NO_LEADER, OVERLOADED])
def test_whatever_fails_for_now_is_repeated_and_visible_once(store: Store, fault: Any) -> None:
    """A lost request, a lost answer, back-pressure: of a chunk, and of the publication."""
    options = options_of(store)
    store.faults = [fault, fault]
    receipt = task(options, batch_of(numbered(10)))
    store.faults = [fault]
    publish(options, [receipt], is_final=False)
    assert store.bodies() == numbered(10)


def test_a_batch_that_runs_again_is_not_written_again(store: Store) -> None:
    """The driver ended behind its publication: tasks have nothing to do, and the second publication is a repeat."""
    options = options_of(store)
    publish(options, [task(options, batch_of(numbered(3)))], is_final=False)
    again = task(options, batch_of(numbered(3)))
    assert (again.is_published, again.rows) == (True, 0)
    publish(options, [again], is_final=False)
    publish(options, [task(options, batch_of([b"next"]), batch=1)], is_final=False)
    assert store.bodies() == [*numbered(3), b"next"]


def test_a_batch_that_ran_in_part_is_written_whole(store: Store) -> None:
    """The driver ended before its publication: the stages of that run are dropped with the batch."""
    options = options_of(store)
    task(options, batch_of(numbered(2)))
    task(options, batch_of([b"x"]), partition=1)
    receipts = [task(options, batch_of(numbered(2))), task(options, batch_of([b"x"]), partition=1)]
    publish(options, receipts, is_final=False)
    assert store.bodies() == [*numbered(2), b"x"]


def test_a_batch_without_rows_is_published_too(store: Store) -> None:
    """The next batch then has a history. The topics tell a new query where it is at home."""
    options = options_of(store)
    receipt = task(options)
    assert (receipt.rows, receipt.topics) == (0, ())
    publish(options, [receipt], is_final=False)
    assert store.published == {"q": 0}
    assert (store.publications[0]["stages"], store.publications[0]["topics"]) == ([], ["orders"])


def test_a_publication_without_its_stages_fails_and_shows_nothing(store: Store) -> None:
    """Their time was over: the query fails, and runs the batch again from its checkpoint."""
    options = options_of(store)
    receipt = task(options, batch_of(numbered(3)))
    store.stages.clear()
    with pytest.raises(StageUnknown):
        publish(options, [receipt], is_final=False)
    assert store.topics == {}


def test_a_failed_batch_is_given_up(store: Store) -> None:
    """Its stages are dropped at once; an error of that is not told, because the write has one of its own."""
    options = options_of(store, sendTimeoutMs="100")
    receipt = task(options, batch_of(numbered(3)))
    give_up(options, [])
    give_up(options, [receipt])
    assert store.stages["q"] == {}
    store.faults = [NOT_FOUND]
    give_up(options, [receipt])
    store.faults = [NO_LEADER] * 1_000
    give_up(options, [receipt])


def test_a_refused_row_is_named_and_ends_the_task(store: Store) -> None:
    """By its number in the partition, not in the request."""
    store.faults = [set(), BAD_TAG]
    with pytest.raises(IllegalTag) as failure:
        task(options_of(store, requestsInFlight="1"), batch_of(numbered(2_000)))
    assert failure.value.__notes__ == ["row 1027 of the partition, numbered from 0"]


def test_a_refusal_that_lasts_ends_with_its_error_after_the_time_limit(store: Store) -> None:
    """Of a chunk, and of a publication: sendTimeoutMs."""
    options = options_of(store, sendTimeoutMs="300")
    receipt = task(options, batch_of(numbered(1)))
    for work in (lambda: task(options, batch_of(numbered(1))), lambda: publish(options, [receipt], is_final=False)):
        store.faults = [NO_LEADER] * 1_000
        with pytest.raises((NoLeader, OutcomeUnknown)):
            work()
    assert store.topics == {}


def test_options_travel_with_every_chunk_and_publication(store: Store) -> None:
    """acceptLostHistory, stageLife (the server's pattern has them) and namespace."""
    options = options_of(store, acceptLostHistory="true", stageLife="10m", namespace="shop")
    publish(options, [task(options, batch_of(numbered(1)), batch=7)], is_final=False)
    assert store.publications[0]["accept_lost_history"] is True
    assert store.headers["MQ-Namespace"] == "shop"


def test_receipts_travel_from_tasks_to_the_driver() -> None:
    """Pickled; a failed task has none, and a write that is at least once has others."""
    receipt = Receipt(query="q", batch=1, partition=2, attempt=1 << 51, rows=3, topics=("orders",))
    assert pickle.loads(pickle.dumps(receipt)) == receipt
    assert receipts_of([None, RowsWritten(5), RowsStaged(receipt)]) == [receipt]


def test_writers_publish_and_give_up_what_their_tasks_have_staged(store: Store) -> None:
    """A batch write is the only batch of its query; a stream's goes on."""
    options = options_of(store)
    batch, stream = TernWriter(options, "w"), TernStreamWriter(options)
    batch.commit([RowsStaged(task(options, batch_of([b"a"]), query="w"))])
    stream.commit([RowsStaged(task(options, batch_of([b"b"]))), None], 0)
    assert [told["final"] for told in store.publications] == [True, False]
    stream.abort([RowsStaged(task(options, batch_of([b"c"]), batch=1)), None], 1)
    batch.abort([None])
    batch.commit([])
    assert store.bodies() == [b"a", b"b"]
    assert store.stages["q"] == {}
