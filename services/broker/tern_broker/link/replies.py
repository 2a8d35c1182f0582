"""Waits for the reply to a request: AWAIT_REPLY. RocketMQ pushes replies to the requester's
connection; here the proxy that holds the client's request waits.

    AWAIT_REPLY -> park -> look .... found: reply
                            ^ |
                            | +-- not found -> parked -> a reply with this tag hash was applied
                            |                       | -> the deadline, or leadership was lost: reply
                            +-----------------------+

A look searches the key index, in which every reply is stored under its correlation id, and compares
the record's own ids: the oldest stored reply wins, at every proxy and every leader. It is a read
like all others: a node that does not lead refuses it, and a deposed one refuses its parked waits.
The proxy then asks the next leader, which has every reply whose storage was acknowledged.

Law: park first, then look, so that no reply in between is missed; a reply that arrives during a
look causes another look.
"""

from collections.abc import Callable, Generator

from tern_broker.config import BrokerConfig
from tern_broker.core.applied import Applied
from tern_broker.core.topics import Topic
from tern_broker.engine import Engine
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.reading.queries import FoundRecord, KeyQuery, filled_in
from tern_broker.waiting.reply_waiters import ReplyWaiters
from tern_remoting import Link
from tern_store.index.key_index import Place
from tern_wire.errors import TernError, TopicNotFound
from tern_wire.limits import QUERY_MESSAGES_MAX, RECEIVE_SIZE_MAX_BYTES
from tern_wire.link.queries import AwaitedReply, AwaitReply
from tern_wire.link.requests import ERROR, RequestCode, error_parts
from tern_wire.records.java_hashes import tag_hash
from tern_wire.records.properties import CORRELATION_ID, MESSAGE_TYPE, REPLY_TO
from tern_wire.replies import REPLY

_TIME_MAX_MS = (1 << 53) - 1
# Pages of the index that one look reads at most, each taking some ms: further pages have only other
# entries of the same hash.
_PAGES_MAX = 16


class ReplyRequests(Requests):
    """AWAIT_REPLY. Owner: the core loop."""

    reads = frozenset({RequestCode.AWAIT_REPLY})

    def __init__(self, config: BrokerConfig, engine: Engine, *, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        self.monotonic = monotonic
        self.waiters = ReplyWaiters()
        engine.on_applied.append(self._applied)
        engine.on_clock.append(self._sweep)

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(AwaitReply, self._await)]

    def _await(self, link: Link, opaque: int, request: AwaitReply, _raw: memoryview) -> None:
        wait = _Wait(
            self,
            link,
            opaque,
            topic=self.topic(request.topic),
            correlation_id=request.correlation_id,
            reply_to=request.reply_to,
            from_ms=request.from_ms,
            deadline_s=self.monotonic() + request.wait_ms / 1000,
        )
        self.waiters.add(wait)
        wait.look()

    def query(self, topic: Topic, key: str, from_ms: int, after: Place | None) -> KeyQuery:
        """Return a query for a page of the index under *key*, newest first; TopicNotFound if
        *topic* was deleted.
        """
        if self._engine.state.names.topics_by_id.get(topic.topic_id) is not topic:
            raise TopicNotFound(topic=topic.name)
        return KeyQuery(
            store=self._engine.store,
            topic=topic,
            key=key,
            begin_ms=from_ms,
            end_ms=_TIME_MAX_MS,
            count=QUERY_MESSAGES_MAX,
            size_max_bytes=RECEIVE_SIZE_MAX_BYTES,
            after=after,
        )

    def _applied(self, applied: Applied) -> None:
        self.waiters.applied(applied)
        for topic_id in applied.dropped_topics:
            self.waiters.look_of(topic_id)

    def _sweep(self) -> None:
        if len(self.waiters):
            if not self._engine.raft.is_serving:
                self.waiters.refuse_all(self.not_leader())
            self.waiters.sweep(self.monotonic())


class _Wait:
    """One AWAIT_REPLY, from its first look to its reply."""

    def __init__(
        self,
        requests: ReplyRequests,
        link: Link,
        opaque: int,
        *,
        topic: Topic,
        correlation_id: str,
        reply_to: str,
        from_ms: int,
        deadline_s: float,
    ) -> None:
        self.topic_id, self.tag, self.deadline_s = topic.topic_id, tag_hash(correlation_id), deadline_s
        self._requests, self._link, self._opaque = requests, link, opaque
        self._topic, self._correlation_id, self._reply_to, self._from_ms = topic, correlation_id, reply_to, from_ms
        self._is_looking, self._again = False, False

    # ReplyWait ------------------------------------------------------------------------------------
    def look(self) -> None:
        """Look in a turn of its own: this runs within apply, which continues at once."""
        self._again = True
        if not self._is_looking:
            self._is_looking = True
            self._requests.answer_in_turns(self._link, self._opaque, self._steps(), self._failed)

    def late(self) -> None:
        """Reply that nothing was found, unless a look is in progress, which ends with an answer
        now.
        """
        if not self._is_looking:
            self._end()
            self._requests.answer(self._link, self._opaque, AwaitedReply(found=False))

    def refuse(self, error: TernError) -> None:
        """Reply with *error*, unless a look is in progress: a reply that it finds was stored
        before.
        """
        if not self._is_looking:
            self._end()
            self._link.reply(self._opaque, ERROR, error_parts(error))

    def fail(self, error: TernError) -> None:
        """Reply with *error*, even if a look is in progress."""
        self._end()
        self._link.reply(self._opaque, ERROR, error_parts(error))

    def _failed(self, error: Exception) -> None:
        self._end()
        self._requests.failed(self._link, self._opaque, error)

    # Looking --------------------------------------------------------------------------------------
    def _steps(self) -> Generator[None, None, None]:
        try:
            while self._again:
                self._again = False
                found = yield from self._find()
                if found is not None:
                    self._end()
                    self._requests.answer(self._link, self._opaque, AwaitedReply(found=True), [filled_in(found)])
                    return
        except BaseException:
            # The code that runs the steps replies with the raised error.
            self._end()
            raise
        self._is_looking = False
        self._link.leave_room(self._opaque)
        if self.deadline_s <= self._requests.monotonic():
            self.late()

    def _find(self) -> Generator[None, None, FoundRecord | None]:
        oldest: FoundRecord | None = None
        after: Place | None = None
        for _ in range(_PAGES_MAX):
            query = self._requests.query(self._topic, self._correlation_id, self._from_ms, after)
            yield from query.steps()
            oldest = next((found for found in reversed(query.found) if self._is_wanted(found)), oldest)
            after = query.next
            if after is None:
                break
        return oldest

    def _is_wanted(self, found: FoundRecord) -> bool:
        properties = found.record.properties
        return (
            properties.get(CORRELATION_ID) == self._correlation_id
            and properties.get(REPLY_TO) == self._reply_to
            and properties.get(MESSAGE_TYPE) == REPLY
        )

    def _end(self) -> None:
        self._requests.waiters.remove(self)
