"""Receives, parked notifications and settles of proxies."""

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core.delivery.fifo import is_ordered
from tern_broker.core.delivery.fifo_picking import FifoPick, looked_in_vain
from tern_broker.core.delivery.picking import Pick, ReceiveRequest
from tern_broker.core.topics import Group, Topic
from tern_broker.engine import Engine
from tern_broker.link.answer_sizes import AnswerSizes
from tern_broker.link.repeated_receives import RepeatedReceives
from tern_broker.link.requests import Handler, Requests, bounded, flow_of, handler, kept_to
from tern_broker.proposal import Proposal
from tern_broker.waiting.filter_scan import compiled, compiled_text, look_with
from tern_broker.waiting.waiters import Waiters
from tern_remoting import Link, problem_of
from tern_store.visibility_times import offset_at
from tern_wire.errors import BroadcastGroup, LinkBodyMalformed, SubscriptionConflict, TernError
from tern_wire.filters import Filter
from tern_wire.limits import INVISIBLE_MAX_MS
from tern_wire.link.commands import CommandKind
from tern_wire.link.heads import Done, head_parts
from tern_wire.link.receives import Available, AwaitMessages, Leased, LeasedRun, Receive, Settle
from tern_wire.link.requests import Parts
from tern_wire.link.rows import RELEASE, SETTLE_ROWS

# Limit of repeated proposals of an ordered receive that has found only blocked messages; each has
# visited some for good.
_LOOKS_MAX = 1_024
# Limit of their time: well below a proxy's timeout.
LOOKS_S = 1.0
_DONE = Done()


class ReceiveRequests(Requests):
    """RECEIVE, NOTIFY, SETTLE. Owner: the core loop."""

    def __init__(self, config: BrokerConfig, engine: Engine, *, rng: Random, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        self._monotonic = monotonic
        self.waiters = Waiters(lambda: engine.state)
        self._turn = rng.randrange(1 << 16)
        self._repeats = RepeatedReceives(engine)
        self._sizes = AnswerSizes()

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(Receive, self._receive), handler(AwaitMessages, self._notify), handler(Settle, self._settle)]

    def _receive(self, link: Link, opaque: int, asked: Receive, _raw: memoryview) -> None:
        topic, group = self.topic(asked.topic), self.group(asked.group)
        topic.require_readable()
        group.require_enabled()
        _require_shared(group, topic)
        self._turn += 1
        request = ReceiveRequest(
            group=group,
            topic=topic,
            messages_max=asked.max_messages,
            size_max_bytes=asked.max_bytes,
            invisible_ms=bounded(asked.invisible_ms or group.invisible_ms, 1, INVISIBLE_MAX_MS),
            first_queue=self._turn % topic.queues,
            look_up=lambda queue: offset_at(
                *(self._engine.store, topic.topic_id, queue, group.start_ms),
                least=topic.mins[queue],
                end=topic.ends[queue],
            ),
            token=asked.attempt_id,
            look=look_with(self._filter(asked, topic, group), self._engine.store, self._monotonic),
        )
        key = (group.group_id, topic.topic_id, request.token)

        kind, looks_left = (CommandKind.LEASE_FIFO, _LOOKS_MAX) if is_ordered(group, topic) else (CommandKind.LEASE, 0)
        if request.look is not None:
            looks_left = _LOOKS_MAX
        # Longer looks get an empty answer, and the proxy asks again: skipped messages stay skipped.
        until_s = self._monotonic() + LOOKS_S

        def done(verdicts: Any, picks: list[Pick]) -> None:
            nonlocal looks_left
            is_vain = not isinstance(verdicts, TernError) and looked_in_vain(picks, verdicts)
            if is_vain and looks_left and self._monotonic() < until_s:
                looks_left -= 1
                self._engine.proposer.submit(proposal)
                return
            if isinstance(verdicts, TernError):
                answer(verdicts)
            else:
                answer(lambda: self._leased(topic, group, verdicts, picks), lambda: self._give_back(verdicts, picks))

        def answer(reply: TernError | Callable[[], Parts], give_back: Callable[[], None] = lambda: None) -> None:
            try:
                if isinstance(reply, TernError):
                    self.refuse(link, opaque, reply)
                else:
                    parts = reply()
                    self._sizes.found(key[:2], parts)
                    link.reply(opaque, 0, parts)
            except Exception as error:
                # First the messages are given back: the proposal must be in the log before
                # leadership is lost.
                give_back()
                self.failed(link, opaque, error)
            if request.token:
                self._repeats.over(key)

        proposal = Proposal(kind, 64, done, receive=request)

        def begin(page_bytes: int) -> None:
            proposal.receive = replace(request, size_max_bytes=kept_to(asked.max_bytes, page_bytes))
            self._engine.proposer.submit(proposal)

        def submit() -> None:
            flow = flow_of(asked.reader, topic.topic_id, group.group_id)
            size_bytes = self._sizes.of(key[:2], asked.max_bytes)
            self.when_room(link, opaque, flow, size_bytes, begin, lambda error: answer(problem_of(error)))

        if request.token:
            self._repeats.ask(
                key,
                again=lambda found: answer(lambda: self._repeats.parts(topic, group, found)),
                first=(lambda: answer(lambda: self._leased(topic, group, None, []))) if asked.again_only else submit,
                failed=answer,
            )
        else:
            submit()

    def _filter(self, asked: Receive, topic: Topic, group: Group) -> Filter:
        """Return the receive's own filter, or that of the group's members. IllegalFilter,
        SubscriptionConflict.
        """
        if asked.tags is not None or asked.sql is not None:
            return compiled(asked.tags, asked.sql)
        said = self._engine.state.clients.members.filters_of(group.name, topic.name)
        if len(said) > 1:
            raise SubscriptionConflict(group=group.name, topic=topic.name)
        return compiled_text(said[0]) if said else compiled(None, None)

    def _leased(self, topic: Topic, group: Group, verdicts: Any, picks: list[Pick]) -> Parts:
        if picks and isinstance(picks[0], FifoPick):
            return self._leased_in_order(topic, group, verdicts, picks)
        runs: list[LeasedRun] = []
        records = []
        rows = verdicts.tolist() if verdicts is not None else ()
        granted = [(pick, *row) for pick, row in zip(picks, rows, strict=False) if row[0]]
        # A filter picks scattered messages: a lease for each. Those of one queue are read together.
        for queue, leases in groupby(granted, lambda lease: lease[0].row[2]):
            several = list(leases)
            offsets, entries = several[0][0].offsets, several[0][0].entries
            if len(several) > 1:
                offsets = np.concatenate([pick.offsets for pick, *_ in several])
                entries = np.concatenate([pick.entries for pick, *_ in several])
            records.append(self._engine.reader.read_messages(topic, queue, offsets, entries).data)
            delivered: dict[int, tuple[int, int]] = {}
            for pick, lease, deadline_ms, attempt in several:
                runs.append(LeasedRun(queue, lease, attempt, deadline_ms, len(pick.offsets)))
                messages, size_bytes = delivered.get(attempt, (0, 0))
                size_bytes += int(pick.entries["size"].sum(dtype=np.int64))
                delivered[attempt] = messages + len(pick.offsets), size_bytes
            for attempt, (messages, size_bytes) in delivered.items():
                self._engine.statistics.delivered(topic.topic_id, group.group_id, attempt, messages, size_bytes)
        return head_parts(Leased(topic_id=topic.topic_id, group_id=group.group_id, runs=runs), records)

    def _give_back(self, verdicts: Any, picks: list[Pick]) -> None:
        """Give back the messages of these leases, which no consumer has seen: visible at once, and
        the attempt does not count.
        """
        rows = released_rows(verdicts, picks)
        if rows:
            proposal = Proposal(CommandKind.SETTLE, len(rows), lambda _verdict, _picks: None, build=lambda _now: [rows])
            self._engine.proposer.submit(proposal)

    def _leased_in_order(self, topic: Topic, group: Group, verdicts: Any, picks: list[Pick]) -> Parts:
        """Return the reply of an ordered receive: each message has its own lease, and those of one
        queue are read together.
        """
        runs: list[LeasedRun] = []
        records = []
        at = 0
        for pick in picks:
            granted = verdicts[at : at + len(pick.offsets)]
            at += len(pick.offsets)
            held = np.flatnonzero(granted["lease"])
            if len(held):
                queue, entries = pick.row[2], pick.entries[held]
                runs += [
                    LeasedRun(queue, lease, attempt, deadline_ms, 1)
                    for lease, deadline_ms, attempt in granted[held].tolist()
                ]
                records.append(self._engine.reader.read_messages(topic, queue, pick.offsets[held], entries).data)
                for attempt in np.unique(granted["attempt"][held]).tolist():
                    sizes = entries["size"][granted["attempt"][held] == attempt]
                    self._engine.statistics.delivered(
                        topic.topic_id, group.group_id, attempt, len(sizes), int(sizes.astype(np.int64).sum())
                    )
        return head_parts(Leased(topic_id=topic.topic_id, group_id=group.group_id, runs=runs), records)

    def _notify(self, link: Link, opaque: int, asked: AwaitMessages, _raw: memoryview) -> None:
        topic, group = self.topic(asked.topic), self.group(asked.group)
        topic.require_readable()
        group.require_enabled()
        _require_shared(group, topic)
        deadline_s = self._monotonic() + asked.wait_ms / 1000

        def wake(answer: int | TernError) -> None:
            if isinstance(answer, TernError):
                self.refuse(link, opaque, answer)
            else:
                self.answer(link, opaque, Available(available=answer))

        self.waiters.park(group.group_id, topic.topic_id, deadline_s, wake)

    def _settle(self, link: Link, opaque: int, asked: Settle, raw: memoryview) -> None:
        if len(raw) != asked.rows * SETTLE_ROWS.itemsize:
            raise LinkBodyMalformed(reason=f"SETTLE of {asked.rows} rows in {len(raw)} bytes")
        rows = bytes(raw)

        def done(verdicts: Any, _picks: list[Pick]) -> None:
            if isinstance(verdicts, TernError):
                self.refuse(link, opaque, verdicts)
            else:
                self.answer(link, opaque, _DONE, [verdicts])

        self._engine.proposer.submit(Proposal(CommandKind.SETTLE, len(rows), done, build=lambda _now: [rows]))


def released_rows(verdicts: Any, picks: list[Pick]) -> bytes:
    """Return SETTLE_ROWS that release everything that *verdicts* of a receive have granted of
    *picks*.
    """
    rows, at = [], 0
    for pick in picks:
        if isinstance(pick, FifoPick):
            leases = verdicts["lease"][at : at + len(pick.offsets)].tolist()
            at += len(pick.offsets)
        else:
            leases = [int(verdicts["lease"][at])] * len(pick.offsets)
            at += 1
        group_id, topic_id, queue = pick.row[:3]
        for offset, lease in zip(pick.offsets.tolist(), leases, strict=True):
            if lease:
                rows.append((group_id, topic_id, queue, RELEASE, offset, lease, 0))
    return np.array(rows, SETTLE_ROWS).tobytes()


def _require_shared(group: Group, topic: Topic) -> None:
    """Raise BroadcastGroup if each client of the group reads all messages: then there is nothing to
    distribute.
    """
    if group.is_broadcast:
        raise BroadcastGroup(group=group.name, topic=topic.name)
