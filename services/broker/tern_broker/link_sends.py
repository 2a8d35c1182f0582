"""Sends of proxies: checked, proposed, answered with what apply decided."""

from random import Random
from typing import Any

import numpy as np

from tern_broker.config import BrokerConfig
from tern_broker.core.picking import Pick
from tern_broker.engine import Engine
from tern_broker.link_requests import RequestHandler, Requests
from tern_broker.proposer import Proposal
from tern_broker.sends import check_send
from tern_remoting import Link
from tern_store import StoreError
from tern_wire.commands import CommandKind
from tern_wire.errors import DiskFull, OffsetExpired, OutcomeUnknown, TernError
from tern_wire.record import DELIVER_MS, MESSAGE_ID, Record, host_bytes
from tern_wire.requests import ERROR, RequestCode, body_parts, error_parts
from tern_wire.rows import REPLAYED, SCHEDULED_BEFORE


class SendRequests(Requests):
    """SEND. Owner: the core loop."""

    def __init__(self, config: BrokerConfig, engine: Engine, rng: Random) -> None:
        super().__init__(config, engine)
        self._rng, self._host = rng, host_bytes(config.listen, config.link_port)
        self.disk_full = False

    def handlers(self) -> dict[int, RequestHandler]:
        """As Requests."""
        return {
            RequestCode.SEND: self._send,
        }

    def _send(self, link: Link, opaque: int, head: dict[str, Any], raw: memoryview) -> None:
        if self.disk_full:
            raise DiskFull(broker_group=self._config.broker_group)
        send, sent_keys = check_send(head, raw, self._engine.state, self._rng), self._engine.store.sent_keys
        send.require_room_for_keys(sent_keys.waiting)

        def done(verdicts: Any, _picks: list[Pick]) -> None:
            if isinstance(verdicts, TernError):
                link.reply(opaque, ERROR, error_parts(verdicts))
                return
            repeated = np.flatnonzero(np.isin(verdicts["status"], (REPLAYED, SCHEDULED_BEFORE))).tolist()
            try:
                replays = [self._replay(send.rows, verdicts, row) for row in repeated]
            except (OSError, StoreError) as error:
                # Everything is stored, but what was stored before under a key cannot be said.
                self.unreadable(link, opaque, error, OutcomeUnknown(broker_group=self._config.broker_group))
                return
            link.reply(opaque, 0, body_parts({"rows": len(verdicts), "replays": replays}, [verdicts.tobytes()]))

        self._engine.proposer.submit(
            Proposal(
                CommandKind.SEND,
                send.size_bytes,
                done,
                build=lambda now_ms: send.payload(now_ms, self._host, sent_keys.find),
            )
        )

    def _replay(self, rows: Any, verdicts: Any, row: int) -> list[Any]:
        """The first receipt of a repeated send, read from the log."""
        first = self._first(rows, verdicts, row)
        if first is None:
            return [row, "", 0, 0]
        deliver_ms = int(first.properties.get(DELIVER_MS, 0)) if verdicts["status"][row] == SCHEDULED_BEFORE else 0
        return [row, first.properties.get(MESSAGE_ID, ""), first.born_ms, deliver_ms]

    def _first(self, rows: Any, verdicts: Any, row: int) -> Record | None:
        """The record of the first send; None if retention has dropped it: that it was stored is still known."""
        offset = int(verdicts["offset"][row])
        if verdicts["status"][row] == SCHEDULED_BEFORE:
            return self._engine.reader.record_at(offset)
        topic = self._engine.state.names.topics_by_id[int(rows["topic"][row])]
        try:
            return self._engine.reader.pull_records(topic, int(verdicts["queue"][row]), offset, 1)[0]
        except (OffsetExpired, IndexError):
            return None
