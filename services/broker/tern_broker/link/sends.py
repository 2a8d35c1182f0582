"""Sends of proxies: checked, proposed, answered with apply's verdicts."""

from collections.abc import Callable
from random import Random
from typing import Any

from tern_broker.config import BrokerConfig
from tern_broker.core.delivery.picking import Pick
from tern_broker.core.transactions.open_transactions import read_messages
from tern_broker.core.unread import held_by
from tern_broker.engine import Engine
from tern_broker.link.checked_send import check_send
from tern_broker.link.requests import Handler, Requests, handler
from tern_broker.proposal import Proposal
from tern_broker.upkeep.transaction_shares import TransactionShares
from tern_remoting import Link
from tern_store import StoreError
from tern_wire.errors import DiskFull, OffsetExpired, OutcomeUnknown, TernError
from tern_wire.link.commands import CommandKind
from tern_wire.link.rows import FLAG_SAME_TRANSACTION, PREPARED_BEFORE, REPLAYED, SCHEDULED_BEFORE
from tern_wire.link.sends import ProducerGroupFacts, Replay, Send, Sent
from tern_wire.records.hosts import host_bytes
from tern_wire.records.properties import CHECK_AFTER_S, DELIVER_MS, MESSAGE_ID
from tern_wire.records.read import Record

# Statuses of rows whose message was stored by an earlier send.
_REPEATED = frozenset({REPLAYED, SCHEDULED_BEFORE, PREPARED_BEFORE})


def _has_no_repeats(verdicts: Any) -> bool:
    """Return whether no row's receipt is read from the store: an earlier row of the same entry may
    have stored the message.
    """
    return _REPEATED.isdisjoint(verdicts["status"].tolist())


class SendRequests(Requests):
    """SEND. Owner: the core loop."""

    def __init__(self, config: BrokerConfig, engine: Engine, *, rng: Random, monotonic: Callable[[], float]) -> None:
        super().__init__(config, engine)
        self._shares = TransactionShares(config, lambda: engine.state, monotonic)
        self._rng, self._host = rng, host_bytes(config.listen, config.link_port)
        self.disk_full = False

    def handlers(self) -> list[Handler]:
        """Return the handlers of this subject."""
        return [handler(Send, self._send)]

    def _send(self, link: Link, opaque: int, request: Send, raw: memoryview) -> None:
        if self.disk_full:
            raise DiskFull(broker_group=self._config.broker_group, held_by=held_by(self._engine.trimmer.holder))
        send, sent_keys = check_send(request, raw, self._engine.state, self._rng), self._engine.store.sent_keys
        send.require_room_for_keys(sent_keys.waiting)
        if send.producer_groups:
            send.full_groups = self._shares.full(send.producer_groups)

        def done(verdicts: Any, _picks: list[Pick]) -> None:
            if isinstance(verdicts, TernError):
                self.refuse(link, opaque, verdicts)
                return
            verdicts = send.tell_full(verdicts)
            repeated = [row for row, status in enumerate(verdicts["status"].tolist()) if status in _REPEATED]
            try:
                replays = [self._replay(send.rows, verdicts, row) for row in repeated]
            except (OSError, StoreError) as error:
                # All new rows are stored, but the first receipt of a repeated key cannot be read.
                self.unreadable(link, opaque, error, OutcomeUnknown(broker_group=self._config.broker_group))
                return
            sent = Sent(
                rows=len(verdicts), replays=replays, producer_groups=self._producer_groups(send.producer_groups)
            )
            self.answer(link, opaque, sent, [verdicts.tobytes()])

        self._engine.proposer.submit(
            Proposal(
                CommandKind.SEND,
                send.size_bytes,
                done,
                build=lambda now_ms: send.payload(now_ms, self._host, sent_keys.find),
                is_early=_has_no_repeats,
            )
        )

    def _replay(self, rows: Any, verdicts: Any, row: int) -> Replay:
        """Return the first receipt of a repeated send, read from the log."""
        first = self._first(rows, verdicts, row)
        if first is None:
            return Replay(row, "", 0, 0)
        time_ms = 0
        if verdicts["status"][row] == SCHEDULED_BEFORE:
            time_ms = int(first.properties.get(DELIVER_MS, 0))
        elif verdicts["status"][row] == PREPARED_BEFORE:
            check_after_s = first.properties.get(CHECK_AFTER_S, "")
            time_ms = int(check_after_s) * 1_000 if check_after_s.isdecimal() else 0
        return Replay(row, first.properties.get(MESSAGE_ID, ""), first.born_ms, time_ms)

    def _producer_groups(self, names: list[str]) -> list[ProducerGroupFacts]:
        """Return for each producer group the facts that a proxy reports about a new transaction."""
        found = (self._engine.state.producers.by_name.get(name) for name in names)
        return [
            ProducerGroupFacts(
                producer_group_id=group.producer_group_id,
                check_after_ms=group.settings.check_after_ms,
                check_interval_ms=group.settings.check_interval_ms,
                max_checks=group.settings.max_checks,
            )
            if group is not None
            else ProducerGroupFacts(0, 0, 0, 0)
            for group in found
        ]

    def _first(self, rows: Any, verdicts: Any, row: int) -> Record | None:
        """Return the record of the first send; None if retention has dropped it: the fact that it
        was stored is still known.
        """
        offset = int(verdicts["offset"][row])
        if verdicts["status"][row] == SCHEDULED_BEFORE:
            return self._engine.reader.record_at(offset)
        if verdicts["status"][row] == PREPARED_BEFORE:
            return self._first_prepared(rows, row, offset)
        topic = self._engine.state.names.topics_by_id[int(rows["topic"][row])]
        try:
            return self._engine.reader.pull_records(topic, int(verdicts["queue"][row]), offset, 1)[0]
        except (OffsetExpired, IndexError):
            return None

    def _first_prepared(self, rows: Any, row: int, transaction: int) -> Record | None:
        """Return the record of the first send of a half message; None if it is not available.

        For an ended transaction only the first message is known, if it became visible.
        """
        state, reader = self._engine.state, self._engine.reader
        ordinal = 0
        while rows["flags"][row - ordinal] & FLAG_SAME_TRANSACTION:
            ordinal += 1
        slot = state.transactions.table.slots.get(transaction)
        if slot is not None:
            messages = read_messages(state.transactions.table.messages[slot])
            return reader.record_at(int(messages["position"][ordinal])) if ordinal < len(messages) else None
        ended = state.transactions.outcomes.find(transaction)
        topic = state.names.topics_by_id.get(ended["topic"]) if ended is not None else None
        if ended is None or topic is None or ended["offset"] < 0 or ordinal:
            return None
        try:
            return reader.pull_records(topic, ended["queue"], ended["offset"], 1)[0]
        except (OffsetExpired, IndexError):
            return None
