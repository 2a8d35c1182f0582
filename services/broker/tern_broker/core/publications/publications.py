"""Queries that write batches: their stages, what they have published, and for how long both are
kept. One part of the state machine.

A PUBLICATION's map is one of

    {op: publish, query, owner, batch, stages [[partition, attempt, rows], ...], final, lost}
    {op: abandon, query, owner (nil: anybody's), batch}
    {op: index, rows}

Law: every batch is published once, whole, in one entry, or never. A publication names the attempts
that count; every other stage of the query up to that batch is dropped with it, and later chunks for
such a batch are refused. A repeat of the last publication gets its answer.

The keys of published messages are indexed in steps behind the publication (*index*): all nodes read
the records again for it, and one batch may be large. Until then a query by key does not find them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern_broker.core.applied import Applied, Counters, Handler, read_map
from tern_broker.core.delivery.slots import Slots
from tern_broker.core.feature_level import PUBLICATIONS_LEVEL
from tern_broker.core.publications.publishing import Publisher
from tern_broker.core.publications.stages import (
    Chunk,
    Query,
    Rows,
    Stage,
    messages_of,
    read_staged,
    records_below,
)
from tern_broker.core.publications.staging import StageCommand, check_rows, read_stage
from tern_broker.core.sending.placing import Placing
from tern_broker.core.timing import Timing
from tern_broker.core.topics import Names
from tern_broker.core.transactions.open_transactions import MESSAGES
from tern_broker.core.windows import rows_of, windows_of
from tern_wire.errors import (
    BatchPublished,
    BatchTooManyRows,
    LimitReached,
    LinkBodyMalformed,
    PublicationHistoryLost,
    PublicationNotFound,
    StageChunkDiffers,
    StagesFull,
    StageUnknown,
)
from tern_wire.limits_publications import (
    CHUNKS_INSPECTED_MAX,
    FINAL_PUBLICATION_KEPT_MS,
    PUBLICATION_KEPT_MS,
    PUBLICATIONS_MAX,
    PUBLISHED_MESSAGES_MAX,
    STAGED_CHUNKS_MAX,
    STAGED_MESSAGES_MAX,
    UNINDEXED_PIECE_MESSAGES,
)
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import MOVED_STAGED
from tern_wire.transactions import ORDINAL_BITS

_REMEDY = "Queries that have published nothing for 30 days are forgotten; batch writes after an hour."


@dataclass(slots=True)
class _Totals:
    """Over all stages of the broker group."""

    rows: int = 0
    chunks: int = 0


class Publications:
    """The queries of one broker group. Owner: the state machine."""

    def __init__(self, names: Names, slots: Slots, placing: Placing, timing: Timing, counters: Counters) -> None:
        self._names, self._slots, self._placing, self._counters = names, slots, placing, counters
        self._publisher = Publisher(names, slots, timing)
        self.queries: dict[str, Query] = {}
        # Published messages whose keys are not indexed yet, oldest first, as pieces of MESSAGES.
        self.unindexed: list[bytes] = []
        self.totals = _Totals()
        # By number of the chunk.
        self._chunks: dict[int, Chunk] = {}
        # Not later than the first end of a stage or a query; 0: there are none.
        self._first_end_ms = 0

    def commands(self) -> Mapping[int, Handler]:
        """Return the handlers of this part's commands."""
        return {CommandKind.STAGE: self._stage, CommandKind.PUBLICATION: self._publication}

    # For retention --------------------------------------------------------------------------------
    def records_below(self, position: int) -> tuple[Rows, npt.NDArray[np.int64]]:
        """Return the staged records below *position* of the log, as a COPY describes them
        (MOVE_ROWS), and their positions, ascending.
        """
        return records_below(iter(self._chunks.values()), position)

    def moved(self, rows: Rows, positions: npt.NDArray[np.int64]) -> None:
        """Update the positions of staged messages among *rows* (MOVE_ROWS) that a COPY has moved to
        *positions*. Chunks that were published or dropped meanwhile are ignored.
        """
        own = np.flatnonzero(rows["kind"] == MOVED_STAGED)
        numbers = rows["number"][own]
        for number in np.unique(numbers).tolist():
            chunk = self._chunks.get(number)
            if chunk is not None:
                of_chunk = own[numbers == number]
                messages = read_staged(chunk.messages).copy()
                messages["position"][rows["deliver_ms"][of_chunk]] = positions[of_chunk]
                chunk.messages = messages.tobytes()

    # Part -----------------------------------------------------------------------------------------
    def is_due(self, now_ms: int) -> bool:
        """Return whether a stage or a query may be over by *now_ms*."""
        return 0 < self._first_end_ms <= now_ms

    def expire(self, applied: Applied) -> None:
        """Drop the stages and forget the queries whose time is over."""
        if not self.is_due(applied.now_ms):
            return
        for query in list(self.queries.values()):
            for stage in [stage for stage in query.stages.values() if stage.until_ms <= applied.now_ms]:
                self._drop(query, stage)
            if not query.stages and _kept_until_ms(query) <= applied.now_ms:
                del self.queries[query.name]
        self._set_first_end()

    def pack(self) -> Any:
        """Return a frozen copy of MessagePack's types."""
        return {"queries": [query.pack() for query in self.queries.values()], "unindexed": list(self.unindexed)}

    def unpack(self, packed: Any) -> None:
        """Restore the part from *packed*."""
        self.queries = {query[0]: Query.unpack(query) for query in packed["queries"]}
        self.unindexed = list(packed["unindexed"])
        for stage in self._stages():
            for chunk in stage.chunks.values():
                self._chunks[chunk.number] = chunk
            self.totals.rows += stage.rows
            self.totals.chunks += len(stage.chunks)
        self._set_first_end()

    def windows(self) -> int:
        """Return the number of windows, at least one."""
        in_chunks = windows_of(self._chunks, self.unindexed, size=CHUNKS_INSPECTED_MAX)
        return max(in_chunks, windows_of(self.queries, list(self._stages())))

    def window(self, number: int) -> Any:
        """Return window *number*, of MessagePack's types; an empty one behind the last."""
        chunks = rows_of(self._stored_chunks(), number, CHUNKS_INSPECTED_MAX)
        return [
            [[chunk.number, chunk.digest, chunk.messages] for chunk in chunks],
            [query.facts() for query in rows_of(self.queries.values(), number)],
            [[*stage.facts(), len(stage.chunks)] for stage in rows_of(self._stages(), number)],
            rows_of(self.unindexed, number, CHUNKS_INSPECTED_MAX),
        ]

    # Commands -------------------------------------------------------------------------------------
    def _stage(self, payload: memoryview, position: int, applied: Applied) -> dict[str, Any]:
        _require_level(CommandKind.STAGE, applied)
        command = read_stage(payload, position)
        head = command.head
        name, batch, at = str(head["query"]), int(head["batch"]), int(head["chunk"])
        query = self._known(name, str(head["owner"]))
        if query is None and batch > 0 and not head["lost"]:
            raise PublicationHistoryLost(query=name, batch=batch)
        if query is not None and batch <= query.batch:
            raise BatchPublished(query=name, batch=batch, last=query.batch)
        key = (batch, int(head["partition"]), int(head["attempt"]))
        stage = query.stages.get(key) if query is not None else None
        if stage is not None and at in stage.chunks:
            if stage.chunks[at].digest != command.digest:
                raise StageChunkDiffers(chunk=at, partition=stage.partition, attempt=stage.attempt)
            self._prolong(stage, head, applied)
            return {"rows": stage.chunks[at].rows, "is_replay": True}
        self._require_room(query, command)
        check_rows(command.rows, self._names, self._slots, self._placing, applied)
        # From here on nothing is refused.
        if query is None:
            query = self._begin(name, str(head["owner"]), applied)
        if stage is None:
            now_ms = applied.now_ms
            stage = Stage(batch=key[0], partition=key[1], attempt=key[2], begun_ms=now_ms, staged_ms=now_ms, until_ms=0)
            query.stages[key] = stage
        chunk = Chunk((applied.index << ORDINAL_BITS) + applied.staged, command.digest, command.messages())
        applied.staged += 1
        stage.add(at, chunk, command.size_bytes)
        self._chunks[chunk.number] = chunk
        self.totals.rows += chunk.rows
        self.totals.chunks += 1
        self._prolong(stage, head, applied)
        self._counters.staged += chunk.rows
        return {"rows": chunk.rows, "is_replay": False}

    def _publication(self, payload: memoryview, _position: int, applied: Applied) -> dict[str, Any]:
        _require_level(CommandKind.PUBLICATION, applied)
        request = read_map(payload)
        if request["op"] == "index":
            return self._index(int(request["rows"]), applied)
        name, batch = str(request["query"]), int(request["batch"])
        if request["op"] == "abandon":
            return self._abandon(name, batch, request["owner"])
        query = self._known(name, str(request["owner"]))
        if query is None:
            query = self._first(name, batch, request, applied)
        if batch <= query.batch:
            self._drop_up_to(query, query.batch)
            return _facts(query, is_replay=True)
        stages = self._named(query, batch, request["stages"])
        messages = self._publisher.publish(messages_of(stages), applied)
        # From here on nothing is refused.
        if len(messages):
            indexed = np.zeros(len(messages), MESSAGES)
            for column in MESSAGES.names or ():
                indexed[column] = messages[column]
            pieces = range(0, len(indexed), UNINDEXED_PIECE_MESSAGES)
            self.unindexed += [indexed[at : at + UNINDEXED_PIECE_MESSAGES].tobytes() for at in pieces]
        query.batch, query.rows, query.published_ms = batch, len(messages), applied.now_ms
        query.is_final = bool(request["final"])
        self._counters.stored += len(messages)
        self._counters.published += 1
        self._drop_up_to(query, batch)
        self._set_first_end()
        return _facts(query, is_replay=False)

    def _index(self, rows: int, applied: Applied) -> dict[str, int]:
        """Pass the next *rows* published messages to the index of keys."""
        taken: list[Rows] = []
        left = rows
        while left > 0 and self.unindexed:
            messages = np.frombuffer(self.unindexed[0], MESSAGES)
            taken.append(messages[:left])
            if len(messages) > left:
                self.unindexed[0] = messages[left:].tobytes()
            else:
                self.unindexed.pop(0)
            left -= len(taken[-1])
        found = np.concatenate([np.zeros(0, MESSAGES), *taken])
        is_there = np.isin(found["topic"], list(self._names.topics_by_id))
        if is_there.any():
            applied.committed.append(found[is_there])
        return {"rows": rows - left}

    def _abandon(self, name: str, batch: int, owner: str | None) -> dict[str, int]:
        """Drop the stages of a batch that is not published; nothing of a query that is unknown."""
        query = self.queries.get(name)
        if query is None or (owner is not None and query.owner != owner):
            return {"stages": 0, "rows": 0}
        stages = [stage for stage in query.stages.values() if stage.batch == batch]
        for stage in stages:
            self._drop(query, stage)
        if query.batch < 0 and not query.stages:
            # It has never published: as if it had not begun.
            del self.queries[name]
        self._set_first_end()
        return {"stages": len(stages), "rows": sum(stage.rows for stage in stages)}

    # Helpers --------------------------------------------------------------------------------------
    def _known(self, name: str, owner: str) -> Query | None:
        query = self.queries.get(name)
        if query is not None and query.owner != owner:
            # As if it were not there: nobody learns the queries of others.
            raise PublicationNotFound(query=name)
        return query

    def _first(self, name: str, batch: int, request: Mapping[str, Any], applied: Applied) -> Query:
        """Begin a query with a batch that is empty."""
        for partition, attempt, rows in request["stages"]:
            if rows:
                raise StageUnknown(
                    query=name, batch=batch, partition=partition, attempt=attempt, actual=0, expected=rows
                )
        if batch > 0 and not request["lost"]:
            raise PublicationHistoryLost(query=name, batch=batch)
        return self._begin(name, str(request["owner"]), applied)

    def _begin(self, name: str, owner: str, applied: Applied) -> Query:
        if len(self.queries) >= PUBLICATIONS_MAX:
            raise LimitReached(
                what="queries that publish", actual=len(self.queries), limit=PUBLICATIONS_MAX, remedy=_REMEDY
            )
        query = self.queries[name] = Query(name=name, owner=owner, begun_ms=applied.now_ms)
        return query

    def _require_room(self, query: Query | None, command: StageCommand) -> None:
        batch, rows = int(command.head["batch"]), len(command.rows)
        if query is not None:
            key = (batch, int(command.head["partition"]), int(command.head["attempt"]))
            stage = query.stages.get(key)
            if (stage.rows if stage is not None else 0) + rows > PUBLISHED_MESSAGES_MAX:
                raise BatchTooManyRows(batch=batch, query=query.name, limit=PUBLISHED_MESSAGES_MAX)
        elif len(self.queries) >= PUBLICATIONS_MAX:
            raise LimitReached(
                what="queries that publish", actual=len(self.queries), limit=PUBLICATIONS_MAX, remedy=_REMEDY
            )
        for what, actual, more, limit in (
            ("Messages staged in the broker group", self.totals.rows, rows, STAGED_MESSAGES_MAX),
            ("Chunks staged in the broker group", self.totals.chunks, 1, STAGED_CHUNKS_MAX),
        ):
            if actual + more > limit:
                raise StagesFull(what=what, actual=actual, limit=limit)

    def _named(self, query: Query, batch: int, stages: list[list[int]]) -> list[Stage]:
        """Return the stages that a publication names, each as it was announced."""
        if len({partition for partition, _, _ in stages}) < len(stages):
            raise LinkBodyMalformed(reason="a publication with two attempts at one partition")
        found = []
        for partition, attempt, rows in stages:
            stage = query.stages.get((batch, partition, attempt))
            actual = stage.rows if stage is not None else 0
            if actual != rows:
                raise StageUnknown(
                    query=query.name, batch=batch, partition=partition, attempt=attempt, actual=actual, expected=rows
                )
            if stage is not None:
                found.append(stage)
        if sum(stage.rows for stage in found) > PUBLISHED_MESSAGES_MAX:
            raise BatchTooManyRows(batch=batch, query=query.name, limit=PUBLISHED_MESSAGES_MAX)
        return found

    def _prolong(self, stage: Stage, head: Mapping[str, Any], applied: Applied) -> None:
        stage.staged_ms = applied.now_ms
        stage.until_ms = max(stage.until_ms, applied.now_ms + int(head["life_ms"]))
        if not self._first_end_ms or stage.until_ms < self._first_end_ms:
            self._first_end_ms = stage.until_ms

    def _drop_up_to(self, query: Query, batch: int) -> None:
        for stage in [stage for stage in query.stages.values() if stage.batch <= batch]:
            self._drop(query, stage)

    def _drop(self, query: Query, stage: Stage) -> None:
        del query.stages[stage.key]
        for chunk in stage.chunks.values():
            del self._chunks[chunk.number]
        self.totals.rows -= stage.rows
        self.totals.chunks -= len(stage.chunks)

    def _stages(self) -> Iterator[Stage]:
        return (stage for query in self.queries.values() for stage in query.stages.values())

    def _stored_chunks(self) -> Iterator[Chunk]:
        return (chunk for stage in self._stages() for chunk in stage.chunks.values())

    def _set_first_end(self) -> None:
        ends = [stage.until_ms for stage in self._stages()]
        ends += [_kept_until_ms(query) for query in self.queries.values() if not query.stages]
        self._first_end_ms = min(ends, default=0)


def _kept_until_ms(query: Query) -> int:
    kept_ms = FINAL_PUBLICATION_KEPT_MS if query.is_final else PUBLICATION_KEPT_MS
    return max(query.published_ms, query.begun_ms) + kept_ms


def _facts(query: Query, *, is_replay: bool) -> dict[str, Any]:
    return {
        "batch": query.batch,
        "rows": query.rows,
        "published_ms": query.published_ms,
        "is_replay": is_replay,
    }


def _require_level(kind: CommandKind, applied: Applied) -> None:
    if applied.version < PUBLICATIONS_LEVEL:
        # What a release without publications says to it.
        raise LinkBodyMalformed(reason=f"command {int(kind)} is not known to this release")
