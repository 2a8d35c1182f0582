"""Batches that become visible at once: staged in chunks, published, given up and listed."""

from random import Random
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.feature_level import PUBLICATIONS_LEVEL
from tern_broker.core.publications.stages import Query, Stage, messages_of
from tern_broker.core.unread import held_by
from tern_broker.engine import Engine
from tern_broker.link.checked_send import CheckedSend, check_send
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.link.sends import SendRequests
from tern_broker.proposal import Proposal
from tern_remoting import Link
from tern_wire.errors import DiskFull, LinkBodyMalformed, TernError, UpgradeUnfinished
from tern_wire.limits_publications import STAGES_SHOWN_MAX
from tern_wire.link import publications as asked
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import SEND_HEAD, CommandKind
from tern_wire.link.requests import Parts, RequestCode
from tern_wire.link.sends import Send
from tern_wire.records.hosts import host_bytes


class PublicationRequests(Requests):
    """STAGE, PUBLISH, ABANDON_BATCH, LIST_PUBLICATIONS. Owner: the core loop."""

    reads = frozenset({RequestCode.LIST_PUBLICATIONS})

    def __init__(self, config: BrokerConfig, engine: Engine, sends: SendRequests, *, rng: Random) -> None:
        """*sends* knows whether the disk is full."""
        super().__init__(config, engine)
        self._sends, self._rng = sends, rng
        self._host = host_bytes(config.listen, config.link_port)

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [
            handler(asked.Stage, self._stage),
            handler(asked.Publish, self._publish),
            handler(asked.AbandonBatch, self._abandon),
            handler(asked.ListPublications, self._list),
        ]

    def _stage(self, link: Link, opaque: int, request: asked.Stage, raw: memoryview) -> None:
        self._require_level()
        if self._sends.disk_full:
            raise DiskFull(broker_group=self._config.broker_group, held_by=held_by(self._engine.trimmer.holder))
        for name in request.topics:
            self.topic(name)
        send = check_send(Send(topics=request.topics, rows=request.rows), raw, self._engine.state, self._rng)
        if len(send.keyed) or len(send.half):
            raise LinkBodyMalformed(reason="a staged message with an idempotency key, or a half message")
        head = encode_msgpack(
            {
                "query": request.query,
                "owner": request.owner,
                "batch": request.batch,
                "partition": request.partition,
                "attempt": request.attempt,
                "chunk": request.chunk,
                "life_ms": request.life_ms,
                "lost": request.accepts_lost_history,
            }
        )

        def done(verdict: Any, _picks: list[Pick]) -> None:
            if isinstance(verdict, TernError):
                self.refuse(link, opaque, verdict)
            else:
                self.answer(link, opaque, asked.Staged(rows=verdict["rows"], is_replay=verdict["is_replay"]))

        self._engine.proposer.submit(
            Proposal(
                CommandKind.STAGE,
                send.size_bytes + len(head),
                done,
                build=lambda now_ms: _payload(send, head, now_ms, self._host),
            )
        )

    def _publish(self, link: Link, opaque: int, request: asked.Publish, _raw: memoryview) -> None:
        self._require_level()
        command = {
            "op": "publish",
            "query": request.query,
            "owner": request.owner,
            "batch": request.batch,
            "stages": [[stage.partition, stage.attempt, stage.rows] for stage in request.stages],
            "final": request.is_final,
            "lost": request.accepts_lost_history,
        }
        self.propose(link, opaque, CommandKind.PUBLICATION, command, asked.Published)

    def _abandon(self, link: Link, opaque: int, request: asked.AbandonBatch, _raw: memoryview) -> None:
        self._require_level()
        command = {"op": "abandon", "query": request.query, "owner": request.owner, "batch": request.batch}
        self.propose(link, opaque, CommandKind.PUBLICATION, command, asked.BatchAbandoned)

    def _list(self, link: Link, opaque: int, request: asked.ListPublications, _raw: memoryview) -> None:
        queries = self._engine.state.publications.queries
        if request.query:
            found = [queries[request.query]] if request.query in queries else []
        else:
            found = [queries[name] for name in sorted(queries)]
        rows = [self._row(query, shows_stages=bool(request.query)) for query in found]
        self.answer(link, opaque, asked.PublicationList(publications=rows))

    # Helpers --------------------------------------------------------------------------------------
    def _row(self, query: Query, *, shows_stages: bool) -> asked.ListedPublication:
        stages = list(query.stages.values())
        # Where many stages are, the first chunks tell the topics.
        topics = {topic for stage in stages[:STAGES_SHOWN_MAX] for topic in _topic_ids(stage)}
        by_id = self._engine.state.names.topics_by_id
        return asked.ListedPublication(
            query=query.name,
            owner=query.owner,
            batch=query.batch,
            rows=query.rows,
            published_ms=query.published_ms,
            is_final=query.is_final,
            stages=len(stages),
            staged_rows=sum(stage.rows for stage in stages),
            topics=sorted(by_id[topic_id].name for topic_id in topics if topic_id in by_id),
            shown=[_shown(stage) for stage in stages[:STAGES_SHOWN_MAX]] if shows_stages else [],
        )

    def _require_level(self) -> None:
        if self._engine.state.feature_level.level < PUBLICATIONS_LEVEL:
            # A member may run a release that cannot apply the entry.
            raise UpgradeUnfinished(broker_group=self._config.broker_group, what="batches that are published at once")


def _payload(send: CheckedSend, head: bytes, now_ms: int, host: bytes) -> Parts:
    """Return a STAGE's payload: that of a SEND, with *head* behind it."""
    _, *parts = send.payload(now_ms, host)
    return [SEND_HEAD.pack(len(send.rows), len(head)), *parts, head]


def _topic_ids(stage: Stage) -> set[int]:
    return set(messages_of([stage])["topic"].tolist()) if stage.rows else set()


def _shown(stage: Stage) -> asked.ListedStage:
    return asked.ListedStage(*stage.key, stage.rows, stage.size_bytes, stage.begun_ms, stage.staged_ms, stage.until_ms)
