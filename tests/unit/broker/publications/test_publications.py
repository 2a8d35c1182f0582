"""Staged batches as the state machine has them: invisible, published once and whole, given up, over, saved, moved."""

import random
from typing import Any

import numpy as np
import pytest

from tern_broker.core.publications import publications as module
from tern_broker.core.publications.stages import messages_of
from tern_wire.limits_publications import FINAL_PUBLICATION_KEPT_MS, PUBLICATION_KEPT_MS, STAGE_LIFE_DEFAULT_MS
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import MOVED_STAGED, message_group_hash
from tests.support.broker.staged_log import StagedLog, code_of


def test_a_batch_is_invisible_until_it_is_published_and_then_whole() -> None:
    """Two partitions, one in two chunks: in the order of partitions, chunks and rows, however they came."""
    log = StagedLog()
    log.stage(b"c", b"d", partition=1)
    log.stage(b"b", partition=0, chunk=1)
    assert log.stage(b"a", partition=0, chunk=0) == {"rows": 1, "is_replay": False}
    assert log.visible() == []
    assert log.receive(log.now_ms) == []
    published = log.publish((0, 0, 2), (1, 0, 2))
    assert published == {"batch": 0, "rows": 4, "published_ms": log.now_ms, "is_replay": False}
    assert log.visible() == [b"a", b"b", b"c", b"d"]
    assert log.topic in log.applied.woken_topics
    assert len(log.receive(log.now_ms + 1)) == 1


def test_a_repeat_of_a_publication_gets_its_answer_and_publishes_nothing() -> None:
    """Also with other stages, which a second driver has written."""
    log = StagedLog()
    log.stage(b"a")
    first = log.publish((0, 0, 1))
    log.now_ms += 5
    assert log.publish((0, 0, 1)) == {**first, "is_replay": True}
    assert log.publish((0, 9, 7)) == {**first, "is_replay": True}
    assert log.visible() == [b"a"]


def test_attempts_that_no_publication_names_are_dropped_with_it() -> None:
    """A failed and a speculative attempt; and nothing can be staged for a batch that is published."""
    log = StagedLog()
    log.stage(b"lost", attempt=0)
    log.stage(b"a", attempt=1)
    log.stage(b"late", attempt=2)
    log.publish((0, 1, 1))
    assert log.visible() == [b"a"]
    assert log.state.publications.queries["q"].stages == {}
    assert log.state.publications.totals.rows == 0
    assert code_of(log.stage(b"zombie", attempt=3)) == "batch-published"
    assert code_of(log.stage(b"zombie", attempt=2, chunk=1)) == "batch-published"
    assert log.stage(b"b", batch=1)["rows"] == 1


def test_a_chunk_is_staged_once_and_only_with_the_same_messages() -> None:
    """The repeat of a chunk whose answer was lost, in another queue; and a task that computes other rows."""
    log = StagedLog()
    assert not log.stage(b"a", b"b")["is_replay"]
    assert log.stage(b"a", b"b", queue=3) == {"rows": 2, "is_replay": True}
    assert code_of(log.stage(b"a", b"x")) == "stage-chunk-differs"
    assert code_of(log.stage(b"a")) == "stage-chunk-differs"
    log.publish((0, 0, 2))
    assert (log.visible(), log.visible(3)) == ([b"a", b"b"], [])


@pytest.mark.parametrize("stages", [((0, 0, 2), (1, 0, 2)), ((0, 0, 2), (1, 7, 1)), ((0, 0, 2), (1, 0, 0))])
def test_a_publication_that_is_not_as_it_was_staged_does_nothing(stages: tuple[tuple[int, int, int], ...]) -> None:
    """More rows than are there, another attempt, fewer rows: refused, and the stages stay."""
    log = StagedLog()
    log.stage(b"a", b"b")
    log.stage(b"c", partition=1)
    assert code_of(log.publish(*stages)) == "stage-unknown"
    assert log.visible() == []
    log.publish((0, 0, 2), (1, 0, 1))
    assert log.visible() == [b"a", b"b", b"c"]


def test_a_partition_counts_once() -> None:
    """No sender of ours names two attempts at one."""
    log = StagedLog()
    log.stage(b"a")
    log.stage(b"a", attempt=1)
    assert code_of(log.publish((0, 0, 1), (0, 1, 1))) == "link-body-malformed"
    assert log.visible() == []


def test_a_query_whose_history_is_lost_is_told_so() -> None:
    """Batch 5 of a query that is not known may have been published; with consent it begins anew. Empty batches are history, too."""
    log = StagedLog()
    assert code_of(log.stage(b"a", batch=5)) == "publication-history-lost"
    assert code_of(log.publish(batch=5)) == "publication-history-lost"
    log.stage(b"a", batch=5, lost=True)
    log.publish((0, 0, 1), batch=5)
    assert log.visible() == [b"a"]
    assert log.publish(query="idle", batch=0)["rows"] == 0
    assert log.stage(b"b", query="idle", batch=1)["rows"] == 1
    assert log.publish((0, 0, 0), query="empty", batch=0)["rows"] == 0
    assert code_of(log.publish((0, 0, 1), query="other", batch=0)) == "stage-unknown"
    assert "other" not in log.state.publications.queries


def test_a_batch_that_is_given_up_leaves_nothing() -> None:
    """Its stages go, another batch's stay, and so does what is published; twice is once. Others' batches are not known."""
    log = StagedLog()
    log.stage(b"a", b"b")
    log.stage(b"c", batch=1)
    assert log.abandon(owner="somebody") == {"stages": 0, "rows": 0}
    assert log.abandon() == {"stages": 1, "rows": 2}
    assert log.abandon() == {"stages": 0, "rows": 0}
    assert code_of(log.publish((0, 0, 2))) == "stage-unknown"
    log.publish((0, 0, 1), batch=1)
    assert log.abandon(batch=1) == {"stages": 0, "rows": 0}
    assert log.visible() == [b"c"]
    log.stage(b"d", query="p")
    assert log.abandon("p", owner=None) == {"stages": 1, "rows": 1}
    assert "p" not in log.state.publications.queries


def test_a_query_is_its_owner_s() -> None:
    """Another principal is answered as if there were none."""
    log = StagedLog()
    log.stage(b"a")
    assert code_of(log.stage(b"b", owner="you", partition=1)) == "publication-not-found"
    assert code_of(log.publish((0, 0, 1), owner="you")) == "publication-not-found"


def test_a_stage_is_over_an_hour_after_its_last_chunk() -> None:
    """Each chunk prolongs it, a repeat as well; then it cannot be published, and the query is as good as new."""
    log = StagedLog()
    log.stage(b"a")
    log.pass_ms(STAGE_LIFE_DEFAULT_MS - 1)
    log.stage(b"b", chunk=1)
    log.pass_ms(STAGE_LIFE_DEFAULT_MS - 1)
    log.stage(b"a")
    log.pass_ms(STAGE_LIFE_DEFAULT_MS - 1)
    assert log.state.publications.totals.rows == 2
    assert not log.state.is_due(log.now_ms)
    log.pass_ms(1)
    assert log.state.publications.totals.rows == 0
    assert code_of(log.publish((0, 0, 2))) == "stage-unknown"


@pytest.mark.parametrize(("is_final", "kept_ms"), [(False, PUBLICATION_KEPT_MS), (True, FINAL_PUBLICATION_KEPT_MS)])
def test_a_query_is_remembered_for_its_time(is_final: bool, kept_ms: int) -> None:
    """A month, or an hour behind its last batch."""
    log = StagedLog()
    log.stage(b"a")
    log.publish((0, 0, 1), final=is_final)
    log.pass_ms(kept_ms - 1)
    assert log.publish((0, 0, 1))["is_replay"]
    log.pass_ms(1)
    assert log.state.publications.queries == {}


def test_a_message_group_keeps_its_queue_and_a_delivery_time_is_waited_for() -> None:
    """The slot's queue is noted at publication; what is due later becomes a timer, what is due by then does not."""
    log = StagedLog()
    topic = log.state.names.topics["t"]
    hashes = np.array([message_group_hash(b"g")], np.uint64)
    queue = int(log.state.slots.route(topic, hashes)[0])
    assert code_of(log.stage(b"x", group=b"g", queue=(queue + 1) % 4)) == "stage-moved"
    log.stage(b"a", b"b", group=b"g", queue=queue)
    log.stage(b"soon", partition=1, deliver_ms=log.now_ms + 50)
    log.stage(b"later", partition=2, deliver_ms=log.now_ms + 5_000)
    log.now_ms += 100
    assert log.publish((0, 0, 2), (1, 0, 1), (2, 0, 1))["rows"] == 4
    assert log.visible(queue)[:2] == [b"a", b"b"]
    (timers,) = log.applied.timers
    assert [log.bodies_at[position] for position in timers["position"].tolist()] == [b"later"]
    assert log.state.timing.pending[log.topic] == 1
    assert sum(len(log.visible(each)) for each in range(4)) == 3


def test_a_message_group_whose_slot_has_moved_refuses_the_whole_batch() -> None:
    """The topic got more queues, and the empty slot went to another: nothing is published in the wrong place."""
    log = StagedLog()
    topic = log.state.names.topics["t"]
    for number in range(64):
        group = b"g%d" % number
        before = int(log.state.slots.route(topic, np.array([message_group_hash(group)], np.uint64))[0])
        topic.grow(5)
        after = int(log.state.slots.route(topic, np.array([message_group_hash(group)], np.uint64))[0])
        del topic.ends[4:], topic.mins[4:]
        if before != after:
            break
    log.stage(b"a", group=group, queue=before)
    log.stage(b"b", partition=1)
    topic.grow(5)
    assert code_of(log.publish((0, 0, 1), (1, 0, 1))) == "stage-moved"
    assert [log.visible(queue) for queue in range(5)] == [[]] * 5


def test_messages_of_a_deleted_topic_are_dropped_and_the_others_appear() -> None:
    """As with a transaction."""
    log = StagedLog()
    verdict = log.apply(log.now_ms, (CommandKind.CREATE_TOPIC, encode_msgpack({"topic": "u", "queues": 1}))).verdicts[0]
    assert isinstance(verdict, dict)
    log.stage(b"gone", topic=verdict["topic_id"])
    log.stage(b"a", partition=1)
    log.apply(log.now_ms, (CommandKind.DELETE_TOPIC, encode_msgpack({"topic": "u", "topic_id": verdict["topic_id"]})))
    assert log.publish((0, 0, 1), (1, 0, 1))["rows"] == 1
    assert log.visible() == [b"a"]
    assert code_of(log.stage(b"x", topic=verdict["topic_id"], batch=1)) == "topic-not-found"


def test_keys_are_indexed_in_steps_behind_a_publication() -> None:
    """Oldest first, as many as asked, across publications; then there is nothing left."""
    log = StagedLog()
    log.stage(b"a", b"b", b"c")
    log.publish((0, 0, 3))
    log.stage(b"d", batch=1)
    log.publish((0, 0, 1), batch=1)
    taken = []
    for rows in (2, 5, 5):
        told = log.command(op="index", rows=rows)
        taken.append(
            (told["rows"], [log.bodies_at[at] for each in log.applied.committed for at in each["position"].tolist()])
        )
    assert taken == [(2, [b"a", b"b"]), (2, [b"c", b"d"]), (0, [])]
    assert log.state.publications.unindexed == []


def test_retention_moves_staged_messages() -> None:
    """What lies below a position is listed, and is published from where it was copied to."""
    log = StagedLog()
    log.stage(b"a", b"b")
    first_end = log.position
    log.stage(b"c", chunk=1)
    rows, positions = log.state.publications.records_below(first_end)
    assert [log.bodies_at[at] for at in positions.tolist()] == [b"a", b"b"]
    assert set(rows["kind"].tolist()) == {MOVED_STAGED}
    log.state.publications.moved(rows, positions + 1_000_000)
    (stage,) = log.state.publications.queries["q"].stages.values()
    assert messages_of([stage])["position"].tolist()[:2] == (positions + 1_000_000).tolist()
    assert len(log.state.publications.records_below(first_end)[0]) == 0
    log.abandon()
    log.state.publications.moved(rows, positions)  # a copy that was under way


@pytest.mark.parametrize("limit", ["STAGED_MESSAGES_MAX", "STAGED_CHUNKS_MAX"])
def test_what_is_staged_is_bounded(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused for now; what is published, or given up, makes room."""
    monkeypatch.setattr(module, limit, 2)
    log = StagedLog()
    log.stage(b"a")
    log.stage(b"b", chunk=1)
    assert code_of(log.stage(b"c", chunk=2)) == "stages-full"
    log.publish((0, 0, 2))
    assert log.stage(b"c", batch=1)["rows"] == 1


def test_a_batch_and_the_number_of_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch too large to be published is refused while it is staged, or when it is to be published; one query too many at once."""
    monkeypatch.setattr(module, "PUBLISHED_MESSAGES_MAX", 2)
    monkeypatch.setattr(module, "PUBLICATIONS_MAX", 1)
    log = StagedLog()
    log.stage(b"a", b"b")
    assert code_of(log.stage(b"c", chunk=1)) == "batch-too-many-rows"
    log.stage(b"c", partition=1)
    assert code_of(log.publish((0, 0, 2), (1, 0, 1))) == "batch-too-many-rows"
    assert code_of(log.stage(b"x", query="p")) == "limit-reached"
    assert code_of(log.publish(query="p")) == "limit-reached"


def test_below_their_level_nothing_shows_that_this_release_knows_publications() -> None:
    """The commands are refused as unknown ones, and the state is saved without the part."""
    log = StagedLog(level=1)
    assert code_of(log.stage(b"a")) == "link-body-malformed"
    assert code_of(log.publish()) == "link-body-malformed"
    log.restart()
    assert log.state.publications.queries == {}


def test_any_interleaving_of_two_drivers_and_restarts_publishes_each_batch_once() -> None:
    """200 random runs: two drivers of one checkpoint stage the same rows under other attempts, publish, repeat, give up, while the
    state is saved and loaded; every batch is there once, whole, in order."""
    for seed in range(200):
        rng, log = random.Random(seed), StagedLog()
        batches = [
            [[b"%d/%d/%d" % (batch, part, row) for row in range(rng.randrange(4))] for part in range(2)]
            for batch in range(3)
        ]
        drivers = [_Driver(log, batches, attempt=driver) for driver in range(2)]
        while any(driver.batch < len(batches) for driver in drivers):
            rng.choice(drivers).step(rng)
            if rng.random() < 0.1:
                log.restart()
        expected = [body for batch in batches for part in batch for body in part]
        assert log.visible() == expected, seed
        assert log.state.publications.totals.rows == 0, seed


class _Driver:
    """Writes the batches one after the other; a step is one request, which it may repeat."""

    def __init__(self, log: StagedLog, batches: list[list[list[bytes]]], attempt: int) -> None:
        self._log, self._batches, self._attempt = log, batches, attempt
        self.batch, self._partition, self._receipts = 0, 0, list[tuple[int, int, int]]()

    def step(self, rng: random.Random) -> None:
        """The next request."""
        if self.batch == len(self._batches):
            return
        if self._partition < 2:
            bodies = self._batches[self.batch][self._partition]
            told: Any = None
            for _ in range(rng.randrange(1, 3)):
                place: dict[str, Any] = {"batch": self.batch, "partition": self._partition, "attempt": self._attempt}
                told = self._log.stage(*bodies, **place) if bodies else {"rows": 0}
            rows = told["rows"] if isinstance(told, dict) else 0
            self._receipts.append((self._partition, self._attempt, rows))
            self._partition += 1
            return
        if rng.random() < 0.1:
            self._log.abandon(batch=self.batch)  # a failed run; the batch is written again
        for _ in range(rng.randrange(1, 3)):
            told = self._log.publish(*self._receipts, batch=self.batch)
        if isinstance(told, dict):
            self.batch += 1
        self._attempt += 2
        self._partition, self._receipts = 0, []
