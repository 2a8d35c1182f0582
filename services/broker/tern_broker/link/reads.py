"""Pulls by offset: answered from the applied state without an entry, at once or when the next
matching message arrives.

    PULL -> look .... found, or the end of the range -> reply
              ^ |
              | +-- at the queue's end -> parked -> the queue has grown, or the deadline
              +-----------------------------+

Law: no look happens while nothing changes. A look with a filter runs in turns, so it delays no
other request; messages that do not match do not end the wait, and are not read again. A node that
does not lead answers only PULL_ANYWHERE: from its applied state, which is committed, and at once.
"""

from collections.abc import Callable, Hashable, Iterator

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.requests import ANSWER_SIZE_GUESS_BYTES, Handler, Requests, flow_of, handler
from tern_broker.node.status import engine_status
from tern_broker.reading.scan import QueueScan
from tern_broker.reading.turns import SLICE_S
from tern_broker.waiting.queue_waiters import QueueWaiters
from tern_remoting import Link
from tern_wire.errors import OffsetExpired, TernError, TopicNotFound
from tern_wire.filters import compile_accepted
from tern_wire.link.pulls import Pull, PullAnywhere, Pulled
from tern_wire.link.requests import ERROR, RequestCode, body_parts, error_parts
from tern_wire.link.status import GetStatus

# A look without a match for this long replies with its progress: long before a client concludes
# that this node hangs.
PROGRESS_AFTER_S = 1.0
# A follower at most this far behind has all old data.
FOLLOWER_LAG_MAX_ENTRIES = 10_000


class ReadRequests(Requests):
    """PULL, PULL_ANYWHERE, STATUS. Owner: the core loop."""

    reads = frozenset({RequestCode.PULL})
    anywhere = frozenset({RequestCode.STATUS, RequestCode.PULL_ANYWHERE})

    def __init__(self, config: BrokerConfig, engine: Engine, *, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        self.monotonic = monotonic
        self.parked = QueueWaiters()
        self._turn = 0

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(Pull, self._pull),
            handler(PullAnywhere, self._pull_anywhere),
            handler(GetStatus, self._status),
        ]

    def applied(self, applied: Applied) -> None:
        """Wake parked pulls that wait for the effects of this entry."""
        self.parked.applied(applied)
        if applied.metadata_changed:
            self.parked.refuse_gone(self._engine.state.names.topics_by_id.__contains__)

    def sweep(self, now_s: float) -> None:
        """Answer parked pulls whose deadline has passed, and all of them at a node that does not
        lead. Called every few ms.
        """
        if len(self.parked):
            if self._engine.raft.is_serving:
                self.parked.sweep(now_s)
            else:
                self.parked.refuse_all(self.not_leader())

    # Pulls ----------------------------------------------------------------------------------------
    def _pull(self, link: Link, opaque: int, asked: Pull, _raw: memoryview) -> None:
        deadline_s = self.monotonic() + asked.wait_ms / 1000 if asked.wait_ms else None
        self._begin(link, opaque, asked, deadline_s, is_leaders=True)

    def _pull_anywhere(self, link: Link, opaque: int, asked: PullAnywhere, _raw: memoryview) -> None:
        self._begin(link, opaque, asked, None, is_leaders=False)

    def _begin(self, link: Link, opaque: int, asked: Pull, deadline_s: float | None, *, is_leaders: bool) -> None:
        topic = self.topic(asked.topic)
        topic.require_readable()
        queue = self.queue(topic, asked.queue)
        if asked.offset < topic.mins[queue]:
            raise OffsetExpired(offset=asked.offset, min_offset=topic.mins[queue])
        wanted = compile_accepted(asked.tags, asked.sql)
        scan = QueueScan(
            *(self._engine.reader, topic, queue, asked.offset, wanted),
            end=asked.end_offset if asked.end_offset >= 0 else None,
            messages_max=asked.max_messages,
            size_max_bytes=asked.max_bytes,
            heads_only=asked.heads_only,
        )
        pull = _Pull(
            *(self, link, opaque),
            topic=topic,
            queue=queue,
            scan=scan,
            deadline_s=deadline_s,
            flow=flow_of(asked.reader, topic.topic_id, queue),
            size_max_bytes=asked.max_bytes,
            is_leaders=is_leaders,
            heads_only=asked.heads_only,
        )
        pull.begin(in_turns=asked.heads_only or not wanted.is_all)

    def must_serve(self) -> None:
        """Raise unless this node still leads, as it did when the request arrived."""
        if not self._engine.raft.is_serving:
            raise self.not_leader()

    def is_there(self, topic: Topic) -> bool:
        """Return whether *topic* still exists."""
        return self._engine.state.names.topics_by_id.get(topic.topic_id) is topic

    def count(self, topic: Topic, scan: QueueScan) -> None:
        """Count the messages for statistics."""
        if scan.found:
            self._engine.statistics.pulled(topic.topic_id, scan.messages, sum(map(len, scan.found)))

    def follower_for(self, topic: Topic, queue: int, offset: int) -> str:
        """Return a follower that can serve this reader as well, if it reads old data; "" near the
        end of the queue.

        The leader would have to read old data from disk while it stores messages.
        """
        if self._engine.reader.distance_bytes(topic, queue, offset) < self._config.old_data_min_bytes:
            return ""
        fresh = self._engine.raft.applied_index - FOLLOWER_LAG_MAX_ENTRIES
        names = [
            peer.name
            for peer in self._engine.raft.peers()
            if peer.connected and peer.standing == "member" and peer.match_index >= fresh
        ]
        self._turn += 1
        return names[self._turn % len(names)] if names else ""

    def _status(self, link: Link, opaque: int, _asked: GetStatus, _raw: memoryview) -> None:
        # The reply has more fields than a NodeStatus: those for operators are added here.
        link.reply(opaque, 0, body_parts(engine_status(self._engine, self._config)))


class _Pull:
    """One pull, from its first look to its reply."""

    def __init__(
        self,
        requests: ReadRequests,
        link: Link,
        opaque: int,
        *,
        topic: Topic,
        queue: int,
        scan: QueueScan,
        deadline_s: float | None,
        flow: Hashable,
        size_max_bytes: int,
        is_leaders: bool,
        heads_only: bool,
    ) -> None:
        """*flow*: the reader; *size_max_bytes*: limit of the answer; *is_leaders*: only the leader
        may answer; *heads_only*: the scan finds heads.
        """
        self._requests, self._link, self._opaque = requests, link, opaque
        self._topic, self._queue, self._scan, self._deadline_s = topic, queue, scan, deadline_s
        self._first = scan.offset
        self._flow, self._size_max_bytes, self._is_leaders = flow, size_max_bytes, is_leaders
        self._heads_only = heads_only

    def begin(self, *, in_turns: bool) -> None:
        """Look, once there is room for the answer; at the end of the queue no room is needed."""
        if self._scan.is_over:
            self._looked()
            return
        size_bytes = min(self._size_max_bytes, ANSWER_SIZE_GUESS_BYTES)
        self._requests.when_room(
            *(self._link, self._opaque, self._flow, size_bytes), lambda page: self._look(page, in_turns=in_turns)
        )

    def _look(self, page_bytes: int, *, in_turns: bool) -> None:
        if self._is_leaders:
            self._requests.must_serve()
        self._require_topic()
        self._scan.keep_to(page_bytes)
        if in_turns:
            # Page by page, beside other work.
            self._requests.run(self._link, self._opaque, self._steps())
        else:
            # At most one page, as for a receive: too short for a turn of its own.
            self._scan.step()
            self._looked()

    def _require_topic(self) -> None:
        if not self._requests.is_there(self._topic):
            raise TopicNotFound(topic=self._topic.name)

    def _steps(self) -> Iterator[None]:
        began_s = self._requests.monotonic()
        while not self._scan.is_over:
            self._require_topic()
            self._scan.step()
            passed_s = self._requests.monotonic() - began_s
            # An answer of heads is small, and its pages of the log are many.
            is_patient = self._heads_only or not self._scan.found
            if passed_s >= (PROGRESS_AFTER_S if is_patient else SLICE_S):
                break
            yield
        self._looked()

    def _looked(self) -> None:
        scan = self._scan
        if self._deadline_s is None or scan.found or scan.is_closed or not scan.is_over:
            self._reply()
        else:
            self._link.leave_room(self._opaque)
            self._requests.parked.park(self._topic.topic_id, self._queue, self._deadline_s, self._woken)

    def _woken(self, answer: bool | TernError) -> None:
        if isinstance(answer, TernError):
            self._link.reply(self._opaque, ERROR, error_parts(answer))
        elif not answer:
            self._reply()
        elif not self._requests.is_there(self._topic):
            self._link.reply(self._opaque, ERROR, error_parts(TopicNotFound(topic=self._topic.name)))
        else:
            # In a turn of its own: this runs within apply, which continues at once.
            self.begin(in_turns=True)

    def _reply(self) -> None:
        scan, topic, queue = self._scan, self._topic, self._queue
        follower = self._requests.follower_for(topic, queue, self._first) if scan.found else ""
        pulled = Pulled(
            next_offset=scan.offset,
            min_offset=topic.mins[queue],
            max_offset=topic.ends[queue],
            suggested_node=follower,
            heads_only=self._heads_only,
        )
        self._requests.count(topic, scan)
        self._requests.answer(self._link, self._opaque, pulled, scan.found)
