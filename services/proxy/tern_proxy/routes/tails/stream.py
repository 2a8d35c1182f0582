"""The stream of one tail: reads pages while there is something to read, waits while there is not.

    start -> look -> behind in some queue? -> a page, merged by time -> write -> taken -> look
                     no: wait for growth, a heartbeat, the end of rights, the stop of the proxy
    ... -> end | error | the client leaves

Laws: no more than one page is in memory, since the next one is read only when the client has taken
the last one. Every write is preceded by a look at the request's rights (waiting/interrupts.py). A
quiet tail asks nobody: waiting/growth.py does, once for all tails of the topic. An election is no
event: what cannot be read now is read when there is a leader. Owner: one request.
"""

import asyncio
import logging
from collections.abc import Callable
from heapq import merge
from typing import NamedTuple

import numpy as np
from starlette.types import Scope, Send

from tern_proxy.brokers.follower_reads import pull_old
from tern_proxy.core.access.namespaces import own_body
from tern_proxy.core.documents.messages import ReadMessage
from tern_proxy.core.documents.tails import END, ERROR, FULL, IDLE, MESSAGE, SKIPPED, STOPPING, Ended, Skipped
from tern_proxy.core.reading.delivery import PutBody, read_records
from tern_proxy.core.sending.topic import Queue
from tern_proxy.core.tailing.asked import TailAsked
from tern_proxy.core.tailing.events import Format, data_of, on_one_line
from tern_proxy.core.tailing.places import Places, QueueKey
from tern_proxy.proxy import Proxy
from tern_proxy.waiting.interrupts import ClientGone, Interrupt
from tern_service.problems import problem_reply, request_id_of
from tern_wire.errors import OffsetExpired, TernError
from tern_wire.limits import APPEND_DEADLINE_MS
from tern_wire.limits_tails import TAIL_HEARTBEAT_MS, TAIL_PAGE_MESSAGES, TAIL_PAGE_SIZE_BYTES
from tern_wire.link.pulls import Pull
from tern_wire.names import own_name
from tern_wire.records.columns import heads_of
from tern_wire.records.layout import HEAD_ROWS

logger = logging.getLogger(__name__)
# Pause after a failed read, and between looks for the leader of a broker group with unread
# messages.
PAUSE_S = 0.25


class TailStream:
    """The events of one tail, as Stream in exchange.py."""

    def __init__(
        self,
        proxy: Proxy,
        scope: Scope,
        owner: str,
        topic: str,
        asked: TailAsked,
        places: Places,
        *,
        form: Format,
        put_body: PutBody,
        namespace: str,
        interrupt: Callable[[], Interrupt],
        reader: str,
    ) -> None:
        """*owner*: of its place among the tails, which is claimed. *topic*: the full name."""
        self._proxy, self._scope, self._owner, self._topic = proxy, scope, owner, topic
        self._asked, self._places, self._form, self._put_body = asked, places, form, put_body
        self._namespace, self._interrupt, self._reader = namespace, interrupt, reader
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        # How to stop following each broker group.
        self._followed: dict[str, Callable[[], None]] = {}
        self._failure: TernError | None = None
        self._left = asked.max_messages
        # The event id that the client has, and loop times: of the last write, of the last message.
        self._told = ""
        self._written_s = self._message_s = self._loop.time()
        # Broker groups that have not told yet how far their queues reach.
        self._unheard: set[str] = set()

    def close(self) -> None:
        """As Stream."""
        self._proxy.tails.give_back(self._owner)
        self._proxy.tails.call_no_more(self._wake.set)
        for leave in self._followed.values():
            leave()
        self._followed = {}

    async def run(self, send: Send) -> None:
        """As Stream. Raise ClientGone."""
        self._proxy.tails.call(self._wake.set)
        with self._interrupt() as gone:
            gone.call(self._end_wait)
            try:
                self._told = self._places.event_id
                await self._write(send, gone, self._form.start(self._told))
                reason = await self._follow(send, gone)
                place = self._places.event_id
                await self._write(send, gone, self._form.event(END, data_of(Ended(reason=reason)), place))
            except TernError as error:
                await self._give(send, self._form.event(ERROR, self._problem(error)))
            except ClientGone:
                raise
            except Exception:
                logger.exception("a tail failed unexpectedly", extra={"request_id": request_id_of(self._scope)})
                await self._give(send, self._form.event(ERROR, self._problem(TernError())))
            finally:
                gone.call_no_more(self._end_wait)

    # As Follower of waiting/growth.py -------------------------------------------------------------
    def grown(self, broker_group: str, ends: list[tuple[int, int]]) -> None:
        """Hear how far the queues of a broker group reach."""
        self._unheard.discard(broker_group)
        try:
            self._places.learn(broker_group, ends)
        except TernError as error:
            self._failure = error
        self._wake.set()

    def failed(self, error: TernError) -> None:
        """Hear that the topic cannot be followed any more."""
        self._failure = error
        self._wake.set()

    # Internal -------------------------------------------------------------------------------------
    async def _follow(self, send: Send, gone: Interrupt) -> str:
        """Send events until the tail ends; return why."""
        while True:
            self._wake.clear()
            gone.check()
            if self._failure is not None:
                raise self._failure
            if self._proxy.tails.is_closed:
                return STOPPING
            self._look()
            groups = self._proxy.groups
            behind = self._places.behind(groups)
            ready = [key for key in behind if groups[key[0]].link.has_leader]
            page, must_wait = await self._read_page(ready, gone) if ready else (b"", True)
            if page:
                await self._write(send, gone, page)
                # The transport holds the page: an empty piece waits until it has taken it.
                await self._give(send, b"")
            if self._asked.max_messages and not self._left:
                return FULL
            if self._is_idle(behind):
                return IDLE
            if must_wait and not page:
                await self._wait(PAUSE_S if behind else None)
            # Also while a filter passes over a long backlog.
            if self._loop.time() >= self._written_s + TAIL_HEARTBEAT_MS / 1_000:
                place = self._places.event_id
                event, self._told = self._form.keep_alive(place if place != self._told else ""), place
                await self._write(send, gone, event)

    def _look(self) -> None:
        """Follow the topic in all of its broker groups, as routes have them now."""
        topic = self._proxy.cache.topics.get(self._topic)
        if topic is None:
            return  # its broker groups say whether it is gone
        for name, part in topic.route.items():
            group = self._proxy.groups.get(name)
            if group is None:
                continue
            is_other = self._places.keep_to(name, part.topic_id)
            if is_other and name in self._followed:
                self._followed.pop(name)()
            if name not in self._followed:
                self._unheard.add(name)
                self._followed[name] = self._proxy.growth.follow(group.link, self._topic, self)

    def _is_idle(self, behind: list[QueueKey]) -> bool:
        """Return whether nothing has come for as long as was asked, and nothing is left to read."""
        if self._asked.idle_ms < 0 or behind or self._unheard:
            return False
        return self._loop.time() >= self._message_s + self._asked.idle_ms / 1_000

    async def _wait(self, at_most_s: float | None) -> None:
        """Wait for growth, an interrupt, the stop, or the next thing that is due."""
        now_s = self._loop.time()
        until_s = self._written_s + TAIL_HEARTBEAT_MS / 1_000
        if self._asked.idle_ms >= 0:
            until_s = min(until_s, max(now_s, self._message_s + self._asked.idle_ms / 1_000))
        if at_most_s is not None:
            until_s = min(until_s, now_s + at_most_s)
        timer = self._loop.call_at(until_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _end_wait(self, _: object) -> None:
        self._wake.set()

    # Pages ----------------------------------------------------------------------------------------
    async def _read_page(self, keys: list[QueueKey], gone: Interrupt) -> tuple[bytes, bool]:
        """Return the events of one page, and whether the next read must wait: one has failed for
        now, or none has brought anything.

        The queues share the page equally, so that a page has the messages of all queues in the
        order of their times as far as it reaches.
        """
        parts: list[list[_Row]] = []
        events: list[bytes] = []
        messages, size_bytes = self._left_of_page(), TAIL_PAGE_SIZE_BYTES
        sick: set[str] = set()
        has_moved = False
        for number, key in enumerate(keys):
            if messages <= 0 or size_bytes <= 0:
                break
            if key[0] in sick:
                continue
            share = len(keys) - number
            asked = self._pull_of(key, max(1, messages // share), max(1, size_bytes // share))
            try:
                raw, next_offset = await self._pull(key, asked)
            except OffsetExpired as error:
                events.append(self._skip(key, int(error.fields["min_offset"])))
                has_moved = True
                continue
            except TernError as error:
                if not error.retryable:
                    raise
                sick.add(key[0])
                continue
            has_moved |= next_offset > asked.offset
            part = self._messages_of(key, raw, next_offset)
            if part:
                parts.append(part)
            else:
                self._places.moved(key, next_offset)
            messages -= len(part)
            size_bytes -= len(raw)
        for row in merge(*parts, key=_arrival):
            self._places.moved(row.key, row.after)
            self._told = self._places.event_id
            events.append(self._form.event(MESSAGE, data_of(row.message), self._told))
        found = sum(map(len, parts))
        if found:
            self._message_s = self._loop.time()
            self._proxy.counters.messages["tailed"] += found
            self._left -= found if self._asked.max_messages else 0
        return b"".join(events), bool(sick) or not has_moved

    def _left_of_page(self) -> int:
        return min(TAIL_PAGE_MESSAGES, self._left) if self._asked.max_messages else TAIL_PAGE_MESSAGES

    def _pull_of(self, key: QueueKey, max_messages: int, max_bytes: int) -> Pull:
        wanted = self._asked.wanted
        return Pull(
            topic=self._topic,
            queue=key[1],
            reader=self._reader,
            offset=self._places.offset(key),
            end_offset=-1,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tags=wanted.tags,
            sql=wanted.sql,
        )

    async def _pull(self, key: QueueKey, asked: Pull) -> tuple[bytes, int]:
        """Return records and the offset behind what was read; errors as of a pull."""
        queue, link = Queue(*key), self._proxy.group(key[0]).link
        found = await pull_old(self._proxy.follower_reads, link, queue, asked)
        if found is None:
            found = await link.ask(asked, is_repeatable=True, deadline_ms=APPEND_DEADLINE_MS)
            self._proxy.follower_reads.suggested(asked.topic, queue, found[0].suggested_node)
        pulled, raw = found
        self._places.learn(key[0], [(key[1], pulled.max_offset)])
        return bytes(raw), pulled.next_offset

    def _messages_of(self, key: QueueKey, raw: bytes, next_offset: int) -> "list[_Row]":
        """Return messages, each with the offset to continue at: behind it, and of the last one
        behind what the filter dropped.
        """
        name = own_name(self._topic) if self._namespace else self._topic
        messages = list(read_records(raw, name, key[0], self._put_body))
        found: list[_Row] = []
        positions = np.frombuffer(heads_of(raw), HEAD_ROWS)["position"].tolist()
        for message, position in zip(messages, positions, strict=True):
            found.append(_Row(key, message, message.offset + 1, position))
        if found:
            found[-1] = found[-1]._replace(after=next_offset)
        return found

    def _skip(self, key: QueueKey, min_offset: int) -> bytes:
        first = self._places.offset(key)
        self._places.moved(key, min_offset)
        self._told = self._places.event_id
        skipped = Skipped(queue=Queue(*key).name, first=first, next=min_offset, count=min_offset - first)
        return self._form.event(SKIPPED, data_of(skipped), self._told)

    # Writing --------------------------------------------------------------------------------------
    async def _write(self, send: Send, gone: Interrupt, data: bytes) -> None:
        """Send *data* if it may still be handed over. Raise the refusal, ClientGone."""
        gone.check()
        await self._give(send, data)
        self._written_s = self._loop.time()

    async def _give(self, send: Send, data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    def _problem(self, error: TernError) -> bytes:
        _, headers, body = problem_reply(error, instance=self._scope["path"], request_id=request_id_of(self._scope))
        return on_one_line(own_body(headers, body, self._namespace) if self._namespace else body)


class _Row(NamedTuple):
    """One message, the offset to continue at behind it, and its position in the log of its broker
    group.
    """

    key: QueueKey
    message: ReadMessage
    after: int
    position: int


def _arrival(row: _Row) -> tuple[int, str, int]:
    """Return what orders the messages of different queues: a log has them as they came."""
    return row.message.stored_at, row.key[0], row.position
