"""The replicated state machine: one deterministic, total function over entries.

Law: apply never raises on an entry that the log accepted, reads no file, no clock and no
randomness. It sees time only as the entry's `now_ms`, which never goes back. The same entries give
the same state on every node.

The parts decide commands: topics and groups (metadata.py), sends and their keys (sending.py),
leases (leasing.py), offsets (offsets.py), members and queue locks (clients.py), transactions
(ends.py), principals (principals.py), read leases (read_leases.py), publications
(publications.py), the nodes' digests (comparison.py). This file holds them together.
"""

from collections.abc import Sequence

from tern_broker.core.applied import Applied, Counters, Handler, Part, read_map
from tern_broker.core.comparing.comparison import Comparison
from tern_broker.core.comparing.digest import Verdict, advance
from tern_broker.core.comparing.inspection import Inspection
from tern_broker.core.dead_letters.dead_letters import DeadLetters
from tern_broker.core.dead_letters.redriving import Redriving
from tern_broker.core.delivery.fifo_leasing import FifoLeasing
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.delivery.offsets import Offsets
from tern_broker.core.delivery.slots import Slots
from tern_broker.core.feature_level import FeatureLevel
from tern_broker.core.members.clients import Clients
from tern_broker.core.metadata import Metadata
from tern_broker.core.passed_over import PassedOver
from tern_broker.core.principals import Principals
from tern_broker.core.publications.publications import Publications
from tern_broker.core.read_leases import ReadLeases
from tern_broker.core.sending.idempotency import KeyTable
from tern_broker.core.sending.placing import Placing
from tern_broker.core.sending.preparing import Preparing
from tern_broker.core.sending.sending import SendApplier
from tern_broker.core.timing import Timing
from tern_broker.core.topics import Names
from tern_broker.core.transactions.ends import Transactions
from tern_broker.core.transactions.producers import Producers
from tern_broker.core.trimming import NO_TRIM, apply_trim, read_moves
from tern_wire.errors import LinkBodyMalformed, TernError
from tern_wire.limits import IDEMPOTENCY_TABLE_KEYS_MAX
from tern_wire.link.commands import GENESIS_VERSION, CommandKind, read_entry


class StateMachine:
    """The state of one broker group. Owner: the core loop."""

    def __init__(self, table_keys_max: int = IDEMPOTENCY_TABLE_KEYS_MAX) -> None:
        """The state of a new group. All its nodes must use the same *table_keys_max*."""
        self.names = Names()
        self.keys = KeyTable(table_keys_max=table_keys_max)
        self.now_ms = 0
        # Of all decisions of apply so far; equal on all nodes after the same entry.
        self.digest = 0
        self.counters = Counters()
        self.leasing = Leasing(self.names, self.counters)
        self.slots = Slots(self.names, self.leasing)
        placing = Placing(self.slots)
        self.metadata = Metadata(self.names, self.leasing, placing)
        self.dead_letters = DeadLetters(self.names, self.leasing, self.counters)
        self.redriving = Redriving(self.names, self.leasing, self.dead_letters)
        self.metadata.on_drop += [self.dead_letters.drop, self.redriving.drop]
        self.clients = Clients(self.names)
        self.timing = Timing(self.names, self.counters)
        self.fifo = FifoLeasing(self.names, self.leasing, self.slots)
        self.metadata.on_drop.append(self.slots.drop)
        self.producers = Producers()
        self.transactions = Transactions(self.names, self.producers, self.counters)
        self.principals = Principals()
        self.comparison = Comparison(self._inspect)
        self.feature_level = FeatureLevel()
        self.read_leases = ReadLeases(self.names)
        self.metadata.on_drop.append(self.read_leases.drop)
        self.publications = Publications(self.names, self.slots, placing, self.timing, self.counters)
        self.passed_over = PassedOver()
        self._sending = SendApplier(self.names, self.keys, self.slots, Preparing(self.transactions), placing)
        # By the names that a saved state uses, in the order in which parts are loaded and expired.
        self.parts: dict[str, Part] = {
            "metadata": self.metadata,
            "leasing": self.leasing,
            "slots": self.slots,
            "fifo": self.fifo,
            "offsets": Offsets(self.names, self.leasing, self.clients.locks),
            "timing": self.timing,
            "clients": self.clients,
            "dead_letters": self.dead_letters,
            "redriving": self.redriving,
            "producers": self.producers,
            "transactions": self.transactions,
            "principals": self.principals,
            "comparison": self.comparison,
            "feature_level": self.feature_level,
            "passed_over": self.passed_over,
            "read_leases": self.read_leases,
            "publications": self.publications,
        }
        self.inspection = Inspection(self.parts, self.leasing, self.keys, level=lambda: self.feature_level.level)
        self._handlers: dict[int, Handler] = {
            CommandKind.SEND: self._send,
            CommandKind.COPY: self._copy,
            CommandKind.TRIM: self._trim,
        }
        for part in self.parts.values():
            self._handlers.update(part.commands())

    def apply(self, body: memoryview, position: int, index: int, *, version: int = GENESIS_VERSION) -> Applied:
        """Apply the body of entry *index*, which begins at *position* in the log and was written
        for *version* of this machine.
        """
        applied = Applied(index=index, version=version)
        try:
            now_ms, commands = read_entry(body)
        except LinkBodyMalformed as error:
            applied.verdicts.append(error)
            return applied
        applied.now_ms = self.now_ms = max(self.now_ms, now_ms)
        applied.dropped_tables = self.keys.expire(self.now_ms)
        for part in self.parts.values():
            part.expire(applied)
        for command in commands:
            applied.verdicts.append(self._verdict(command.kind, command.payload, position + command.at, applied))
        self.fifo.finish(applied)
        applied.sealed_table = self.keys.seal_if_due(self.now_ms)
        self._advance(applied.verdicts)
        return applied

    def pass_over(self, index: int, crc: int) -> Applied:
        """Skip entry *index*, with checksum *crc*, which no node applies. Only the fact that it was
        skipped is recorded.
        """
        self.passed_over.add(index, crc)
        self._advance([crc.to_bytes(4, "big")])
        return Applied(index=index, now_ms=self.now_ms)

    def _advance(self, verdicts: Sequence[Verdict]) -> None:
        facts = (self.now_ms, self.leasing.next_lease, self.metadata.data_version)
        self.digest = advance(self.digest, verdicts, facts)

    def _inspect(self, turn: int) -> int:
        # The inspected pieces stay in the digest: the next DIGEST inspects other pieces, and must
        # not find the nodes equal again.
        self.digest = self.inspection.witness(turn, self.digest)
        return self.digest

    def is_due(self, now_ms: int) -> bool:
        """Return whether something ends by itself by *now_ms*, which justifies an entry without a
        request.
        """
        return any(part.is_due(now_ms) for part in self.parts.values())

    def _verdict(self, kind: int, payload: memoryview, position: int, applied: Applied) -> Verdict:
        handler = self._handlers.get(kind)
        if handler is None:
            return LinkBodyMalformed(reason=f"command {kind} is not known to this release")
        try:
            return handler(payload, position, applied)
        except TernError as error:
            return error
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            # No release of ours writes such a command. Every node refuses it alike, at the same
            # point: raising would end all of them.
            return LinkBodyMalformed(reason=f"command {kind} with {type(error).__name__}")

    # Commands of no part --------------------------------------------------------------------------
    def _send(self, payload: memoryview, position: int, applied: Applied) -> Verdict:
        verdicts, appends, timers, prepared = self._sending.apply(payload, position, applied)
        if appends is not None:
            applied.appends.append(appends)
            applied.woken_topics |= appends.topic_ids()
            self.counters.stored += len(appends.entries)
        if timers is not None:
            self.timing.schedule(timers, applied)
            self.counters.stored += len(timers)
        self.counters.stored += prepared
        return verdicts

    def _copy(self, payload: memoryview, position: int, applied: Applied) -> Verdict:
        applied.moves.append(moves := read_moves(payload, position))
        self.transactions.moved(moves.rows, moves.positions)
        self.publications.moved(moves.rows, moves.positions)
        return {"moved": len(moves.rows)}

    def _trim(self, payload: memoryview, _position: int, applied: Applied) -> Verdict:
        request = read_map(payload)
        if request.get("spares_leases") and self.read_leases.holds(request["mins"]):
            # A lease was taken since the trim was planned.
            request = NO_TRIM
        applied.trim = apply_trim(request, self.names, self.leasing.deliveries)
        self.read_leases.trimmed()
        return {"lost": len(applied.trim.lost)}
