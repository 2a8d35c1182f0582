"""Planted bugs of the state machine: offsets used twice, leases that do not hold, acks that are forgotten, time that is nobody's."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tern_broker import group_time
from tern_broker.core import appending
from tern_broker.core.clock import ClockRange
from tern_broker.core.delivery.delivery import Delivery
from tern_broker.core.delivery.fifo import FifoDelivery
from tern_broker.core.delivery.lease import Lease
from tern_broker.core.delivery.leasing import Leasing
from tern_broker.core.delivery.offsets import Offsets
from tern_broker.core.delivery.settles import Settles
from tern_broker.core.machine import StateMachine
from tern_broker.core.sending import idempotency
from tern_broker.core.sending.idempotency import KeyTable
from tern_broker.core.sending.sending import SendApplier
from tern_broker.core.topics import Names
from tern_broker.engine import Engine
from tern_broker.leading_clock import LeadingClock
from tern_broker.proposer import Proposer
from tern_broker.upkeep import comparer
from tern_store import EntryKind
from tern_store.keys.sent_keys import SentKeys
from tern_wire.errors import OutcomeUnknown
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tests.sim.faults.memory_faults import MemoryFault, flip_digest, is_follower, is_leader
from tests.sim.planted.planting import PlantedBug, changed


def _reuse_offset() -> Any:
    """An append that would end a queue at a multiple of 50 gives its last offset again."""
    original = appending.move_ends

    def move_ends(names: Names, codes: list[int], counts: list[int]) -> list[int]:
        firsts = original(names, codes, counts)
        for code in codes[-1:]:
            if not names.topics_by_id[code >> 32].ends[code & 0xFFFFFFFF] % 50:
                names.topics_by_id[code >> 32].ends[code & 0xFFFFFFFF] -= 1
        return firsts

    return changed((appending, "move_ends", move_ends))


def _ignore_keys() -> Any:
    """A repeat is stored again."""
    return changed((SendApplier, "_find_repeats", lambda *_: {}))


def _ignore_sealed_keys() -> Any:
    """A leader looks for keys in the youngest table only."""
    return changed((SentKeys, "find", lambda *_: {}))


def _forget_keys_early() -> Any:
    """A table of keys goes when a twentieth of the window is over."""

    def expire(self: KeyTable, now_ms: int) -> list[int]:
        # As it is now: a seed may have a short one.
        return original(self, now_ms + vars(idempotency)["IDEMPOTENCY_WINDOW_MS"] * 19 // 20)

    original = KeyTable.expire
    return changed((KeyTable, "expire", expire))


def _drop_lease() -> Any:
    """Every lease with an id that ends in 7 is not held: its messages are neither settled nor given again."""

    def hold(self: Delivery, lease: Lease) -> Lease:
        return lease if lease.lease_id % 10 == 7 else original(self, lease)

    original = Delivery._hold
    return changed((Delivery, "_hold", hold))


def _early_expiry() -> Any:
    """Leases end 150 ms before the deadline that was told."""

    def expire(self: Leasing, applied: Any) -> None:
        applied.now_ms += 150
        original(self, applied)
        applied.now_ms -= 150

    original = Leasing.expire
    return changed((Leasing, "expire", expire))


def _forget_ack() -> Any:
    """Acks of leases with an id that ends in 7 give the message back."""

    def settle(self: Delivery, lease: Lease, mask: int) -> None:
        if lease.lease_id % 10 == 7 and not isinstance(self, FifoDelivery):
            self.give_back(lease, mask, -lease.lease_id * 100 - mask.bit_length(), lease.attempt)
        else:
            original(self, lease, mask)

    original = Delivery.settle
    return changed((Delivery, "settle", settle))


def _commit_one_more() -> Any:
    """A commit moves the group one message too far."""

    def seek(self: Delivery, offset: int) -> Any:
        return original(self, offset + 1)

    original = Delivery.seek
    return changed((Delivery, "seek", seek))


def _ignore_expected() -> Any:
    """A commit with an expected offset is done whatever is committed."""
    original = Offsets._commit_offsets

    def commit(self: Offsets, payload: memoryview, position: int, applied: Any) -> Any:
        changed_payload = encode_msgpack(decode_msgpack(payload) | {"expected": {}})
        return original(self, memoryview(changed_payload), position, applied)

    return changed((Offsets, "_commit_offsets", commit))


def _own_clock_in_apply() -> Any:
    """Apply reads the node's own wall clock instead of the entry's time."""

    def apply(self: Engine, entry: Any) -> None:
        self.state.now_ms = max(self.state.now_ms, self._runtime.wall_ms())
        original(self, entry)

    original = Engine._apply
    return changed((Engine, "_apply", apply))


def _time_goes_back() -> Any:
    """The group's time is the entry's, also when it is earlier than what was applied before; and a new leader uses its own clock."""

    def apply(self: StateMachine, body: memoryview, position: int, index: int, **options: int) -> Any:
        self.now_ms = 0
        return original(self, body, position, index, **options)

    def now_ms(self: LeadingClock) -> int:
        return self._clocks().low_ms

    original = StateMachine.apply
    return changed(
        (StateMachine, "apply", apply), (LeadingClock, "now_ms", now_ms), (group_time, "range_of", _own_clock_alone)
    )


def _own_clock_alone(walls_ms: Sequence[int], _members: int) -> ClockRange:
    return ClockRange(walls_ms[0], walls_ms[0])


def _believe_own_clock() -> Any:
    """A leader believes its own wall clock, whatever the other members' say."""
    return changed((group_time, "range_of", _own_clock_alone))


def _time_of_any_entry() -> Any:
    """A node takes the time of whatever entry it applies for the group's time now."""
    original = Engine._apply

    def apply(self: Engine, entry: Any) -> None:
        original(self, entry)
        if entry.index > self._end_at_start and entry.kind == EntryKind.COMMANDS:
            self.time.seen(self.state.now_ms)

    return changed((Engine, "_apply", apply))


def _unknown_means_refused() -> Any:
    """A leader that steps down says "nothing was stored" of what is in flight."""
    original = Proposer.role_changed

    def role_changed(self: Proposer) -> None:
        flight = self._flight
        for proposal, _ in flight.waiting if flight is not None and not self._is_serving() else ():
            done = proposal.done
            proposal.done = lambda verdict, picks, done=done: done(  # type: ignore[misc]
                self._not_leader() if isinstance(verdict, OutcomeUnknown) else verdict, picks
            )
        original(self)

    return changed((Proposer, "role_changed", role_changed))


def _answer_the_next() -> Any:
    """Of the sends of one entry each gets the verdict of the next, if it has as many rows."""
    original = Proposer.decided

    def decided(self: Proposer, index: int, term: int, applied: Any) -> None:
        verdicts = applied.verdicts
        rows = {len(verdict) for verdict in verdicts if isinstance(verdict, np.ndarray)}
        if len(verdicts) > 1 and len(rows) == 1 and all(isinstance(verdict, np.ndarray) for verdict in verdicts):
            applied = replace(applied, verdicts=[*verdicts[1:], verdicts[0]])
        original(self, index, term, applied)

    return changed((Proposer, "decided", decided))


def _ack_one_more() -> Any:
    """A run of acks settles the message behind it, too."""
    original = Settles._take_runs

    def take_runs(self: Settles, rows: Any, acks: dict[int, list[Any]]) -> list[int]:
        left = original(self, rows, acks)
        for ack in acks.values():
            ack[2] |= ack[2] << 1 & (1 << ack[1].count) - 1
        return left

    return changed((Settles, "_take_runs", take_runs))


@contextmanager
def _with(fault: MemoryFault, rule: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(fault.plant())
        stack.enter_context(rule)
        yield


def _believe_leader() -> Any:
    """A bit flips in the leader's memory, and whoever differs from the leader goes."""
    # The first digest that a leader knows is its own.
    rule = changed((comparer, "majority_of", lambda digests, members: next(iter(digests.values()))))
    return _with(MemoryFault(is_leader, flip_digest()), rule)


def _compare_nothing() -> Any:
    """A bit flips in a follower's memory, and nobody compares."""
    rule = changed((comparer.Comparer, "step", lambda self: None))
    return _with(MemoryFault(is_follower, flip_digest()), rule)


BROKER = (
    PlantedBug("reuse_offset", "two messages at one offset", ("lost", "send_order", "unhandled"), _reuse_offset),
    PlantedBug("ignore_keys", "repeats are stored again", ("duplicates",), _ignore_keys),
    PlantedBug("ignore_sealed_keys", "repeats of older sends", ("duplicates",), _ignore_sealed_keys),
    PlantedBug("forget_keys_early", "repeats within the window", ("duplicates",), _forget_keys_early),
    PlantedBug("drop_lease", "a lease that nobody holds", ("leases", "offsets"), _drop_lease),
    PlantedBug("early_expiry", "leases end before their deadline", ("leases",), _early_expiry),
    PlantedBug("forget_ack", "an ack is forgotten", ("redelivery", "offsets"), _forget_ack),
    PlantedBug("ack_one_more", "acks settle more than they say", ("offsets", "lost"), _ack_one_more),
    PlantedBug("answer_the_next", "answers of one entry are mixed up", ("lost", "send_order"), _answer_the_next),
    PlantedBug("commit_one_more", "commits skip a message", ("offsets",), _commit_one_more),
    PlantedBug("ignore_expected", "a swap that is none", ("offsets",), _ignore_expected),
    PlantedBug("own_clock_in_apply", "time is not replicated", ("state_digest", "leases"), _own_clock_in_apply),
    PlantedBug("time_goes_back", "the group's time falls", ("leases", "state_digest"), _time_goes_back),
    PlantedBug("believe_own_clock", "one wrong clock moves the group's time", ("group_time",), _believe_own_clock),
    PlantedBug(
        "time_of_any_entry",
        "an old entry takes the group's time back, and with the next jump keys are forgotten and leases end",
        ("group_time", "duplicates"),
        _time_of_any_entry,
    ),
    PlantedBug("believe_leader", "one wrong leader takes the others out", ("stuck", "quarantine"), _believe_leader),
    PlantedBug("compare_nothing", "a wrong node stays", ("state_digest",), _compare_nothing),
    PlantedBug("unknown_means_refused", "`fail` of what may be stored", ("unexpected",), _unknown_means_refused),
)
