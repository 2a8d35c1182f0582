"""Group commit: what arrived while the last entry was being made durable becomes the next one.

One entry is in flight at a time. Owner: the core loop. Every proposal is answered exactly once:
with its verdict, with an error that says that nothing was stored, or with OutcomeUnknown.

Flow control. Waiting proposals of every kind are bounded in number and bytes. Sends are refused
earlier: when the oldest has waited for more than 200 ms and more wait than the next entry clears.
Both, because each alone is wrong. Age alone refuses a trickle for one slow fdatasync; an amount
alone refuses a burst that is gone in some ms. Together they show that the disk or the followers are
slower than the senders. Only new sends are refused: waiting ones are stored, so that a busy
broker's work is not lost. Receives, settles and administration are not refused by age: they make
room.

Receives that read messages to know their result (a filter, an order) wait in a queue of their own,
of which an entry takes a few: sends wait for some ms of reading, not for all of it, and no send is
refused because receives are slow.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.clock import ClockRange
from tern_broker.core.delivery.fifo_picking import FifoPicker, ReadMessageGroups, lease_fifo_payload, no_message_groups
from tern_broker.core.delivery.filtered_picking import FilteredPicker
from tern_broker.core.delivery.picking import Pick, Picker, ReadQueue, lease_rows
from tern_broker.core.machine import StateMachine
from tern_broker.leading_clock import LeadingClock
from tern_broker.proposal import Flight, GatheredEntry, Proposal
from tern_broker.waiting.completion import lack_of, tell
from tern_remoting import problem_of
from tern_store import StoreError
from tern_store.files import is_lack
from tern_wire.errors import NotLeader, OutcomeUnknown, Overloaded, TernError
from tern_wire.limits import (
    PROPOSALS_MAX,
    PROPOSALS_SIZE_MAX_BYTES,
    SEND_QUEUE_AGE_MAX_MS,
    SEND_QUEUE_REQUESTS_FREE,
    SEND_QUEUE_SIZE_FREE_BYTES,
)
from tern_wire.link.commands import SENDING, UNHURRIED, CommandKind, entry_parts
from tern_wire.link.requests import Parts

# Receives with a filter read for some ms each while an entry waits for them.
LOOKS_PER_ENTRY_MAX = 2


class Proposer:
    """Turns requests into entries on the leader."""

    def __init__(
        self,
        *,
        broker_group: str,
        state: Callable[[], StateMachine],
        read_queue: ReadQueue,
        propose: Callable[[Parts, bool], tuple[int, int]],
        is_serving: Callable[[], bool],
        leader: Callable[[], str | None],
        node: str,
        mono_ms: Callable[[], int],
        clocks: Callable[[], ClockRange],
        call_soon: Callable[[Callable[[], None]], object],
        expected_ms: Callable[[], int | None] = lambda: None,
        may_propose: Callable[[], bool] = lambda: True,
        read_message_groups: ReadMessageGroups = no_message_groups,
    ) -> None:
        """*clocks*, *expected_ms*: see LeadingClock. *read_message_groups*: for ordered receives.
        *may_propose*: whether the followers keep up.
        """
        self._broker_group, self._node = broker_group, node
        self._state, self._read_queue = state, read_queue
        self._propose, self._is_serving, self._leader = propose, is_serving, leader
        self._mono_ms, self._call_soon, self._may_propose = mono_ms, call_soon, may_propose
        self._read_message_groups = read_message_groups
        self._is_held = False
        self._pending: deque[Proposal] = deque()
        # Receives that read messages first.
        self._looking: deque[Proposal] = deque()
        # Of both.
        self._pending_size = 0
        self._flight: Flight | None = None
        self._clock = LeadingClock(
            applied_ms=lambda: state().now_ms,
            mono_ms=mono_ms,
            clocks=clocks,
            expected_ms=expected_ms,
            is_serving=is_serving,
        )
        self._due = False
        # Sends the answers of this turn of the loop now, not at its end.
        self.flush_answers: Callable[[], None] = lambda: None
        self.entries = 0
        # Requests that were refused with `overloaded`, by the budget that was used up.
        self.refused: Counter[str] = Counter()

    @property
    def waiting(self) -> int:
        """Number of proposals without an entry."""
        return len(self._pending) + len(self._looking)

    def submit(self, proposal: Proposal) -> None:
        """Queue *proposal*; answer it at once if this node does not lead or too much waits."""
        if not self._is_serving():
            proposal.done(self._not_leader(), [])
            return
        proposal.since_ms = self._mono_ms()
        used_up = self._used_up(proposal)
        if used_up:
            what = f"{used_up} broker group '{self._broker_group}'"
            self.refused[what] += 1
            proposal.done(Overloaded(what=what), [])
        else:
            (self._looking if _looks(proposal) else self._pending).append(proposal)
            self._pending_size += proposal.size_bytes
            self._soon()

    def _used_up(self, proposal: Proposal) -> str:
        """Return the budget that has no room for *proposal*, "" if all have."""
        if self.waiting >= PROPOSALS_MAX:
            return "requests that wait in"
        if self._pending_size > PROPOSALS_SIZE_MAX_BYTES:
            return "bytes of requests that wait in"
        if proposal.kind in SENDING and self._is_behind(proposal.since_ms):
            return "the time that sends wait in"
        return ""

    def _is_behind(self, mono_ms: int) -> bool:
        """Return whether more waits than the next entry clears, the oldest of it for too long."""
        is_much = len(self._pending) > SEND_QUEUE_REQUESTS_FREE or self._pending_size > SEND_QUEUE_SIZE_FREE_BYTES
        return is_much and bool(self._pending) and mono_ms - self._pending[0].since_ms > SEND_QUEUE_AGE_MAX_MS

    def resume(self) -> None:
        """Build the next entry, if it waited for the followers."""
        if self._is_held:
            self._is_held = False
            self._soon()

    def tick(self) -> None:
        """Propose an empty entry when something expires and nothing else advances the time."""
        if self._flight is None and not self.waiting and self._is_serving():
            state = self._state()
            if self.has_clock() and state.is_due(self.now_ms()):
                self._launch([], [])

    def decided(self, index: int, term: int, applied: Applied) -> None:
        """Answer the proposals that need nothing of the store, at once.

        The entry is applied and the store does not have its messages yet. `applied` follows in the
        same turn of the loop, so no later request can miss them.
        """
        flight = self._flight
        if flight is None or (index, term) != (flight.index, flight.term):
            return
        for number, ((proposal, _), verdict) in enumerate(zip(flight.waiting, applied.verdicts, strict=True)):
            if not isinstance(verdict, TernError) and proposal.is_early(verdict):
                flight.answered.add(number)
                self._answer(proposal, verdict, [])
        if flight.answered:
            self.flush_answers()

    def applied(self, index: int, term: int, applied: Applied) -> None:
        """Answer the proposals of the applied entry that are not answered yet."""
        flight = self._flight
        if flight is None or index < flight.index:
            return
        self._flight = None
        if (index, term) == (flight.index, flight.term):
            told = enumerate(zip(flight.waiting, applied.verdicts, strict=True))
            self._answer_all(
                (proposal, verdict, picks)
                for number, ((proposal, picks), verdict) in told
                if number not in flight.answered
            )
        else:  # another leader's entry took its place: ours is gone for good
            self._answer_all((proposal, self._not_leader(), []) for proposal, _ in flight.waiting)
        if self.waiting:
            self._soon()

    def role_changed(self) -> None:
        """Start the clock anew. Without leadership, refuse the waiting proposals."""
        self._clock.stop()
        if self._is_serving():
            return
        flight, self._flight = self._flight, None
        pending = [*self._pending, *self._looking]
        self._pending, self._looking, self._pending_size = deque(), deque(), 0
        doubted = [proposal for proposal, _ in flight.waiting] if flight is not None else []
        unknown = OutcomeUnknown(broker_group=self._broker_group)
        self._answer_all(
            [
                *((proposal, unknown, []) for proposal in doubted),
                *((proposal, self._not_leader(), []) for proposal in pending),
            ]
        )

    def _soon(self) -> None:
        if not self._due and self._flight is None:
            self._due = True
            self._call_soon(self._build_entry)

    def _build_entry(self) -> None:
        self._due = False
        if self._flight is not None or not self.waiting:
            return
        if not self._is_serving():
            self.role_changed()
            return
        if not self._may_propose() or not self.has_clock():
            self._is_held = True
            return
        entry = GatheredEntry(self.now_ms())
        picker = FilteredPicker(self._state(), self._read_queue)
        fifo_picker = FifoPicker(self._state(), self._read_queue, self._read_message_groups)
        while self._pending and entry.has_room(self._pending[0]):
            self._gather(self._take(self._pending), entry, picker, fifo_picker)
        looks_left = LOOKS_PER_ENTRY_MAX
        while self._looking and entry.has_room(self._looking[0]):
            receive = self._looking[0].receive
            if receive is not None and receive.look is not None:
                if not looks_left:
                    break
                looks_left -= 1
            proposal = self._take(self._looking)
            if not self._gather(proposal, entry, picker, fifo_picker):
                self._looking.appendleft(proposal)  # this entry's budget for reads is used up
                self._pending_size += proposal.size_bytes
                break
        if entry.commands:
            self._launch(entry.commands, entry.waiting, entry.now_ms)
        elif self.waiting:
            self._soon()

    def _gather(self, proposal: Proposal, entry: GatheredEntry, picker: Picker, fifo_picker: FifoPicker) -> bool:
        """Put *proposal* into *entry*, or answer it; False if it must wait for the next entry."""
        try:
            found = self._payload(proposal, entry.now_ms, picker, fifo_picker)
        except Exception as error:
            is_refused = isinstance(error, OSError) and is_lack(error)
            if not is_refused and (proposal.is_upkeep or isinstance(error, OSError | StoreError)):
                raise
            self._answer(proposal, self._refusal(error) if isinstance(error, OSError) else problem_of(error), [])
            return True
        if found is None:
            return False
        picks, payload = found
        if payload is not None:
            entry.add(proposal, payload, picks)
        else:
            self._answer(proposal, None, [])
        return True

    def _answer_all(self, told: Iterable[tuple[Proposal, Any, list[Pick]]]) -> None:
        """Answer all, even if some answers raise; raise an error that ends the node at the end."""
        failure: Exception | None = None
        for proposal, verdict, picks in told:
            try:
                self._answer(proposal, verdict, picks)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _answer(self, proposal: Proposal, verdict: Any, picks: list[Pick]) -> None:
        if proposal.is_upkeep:
            proposal.done(verdict, picks)
        else:
            tell(partial(proposal.done, verdict, picks), lambda problem: proposal.done(problem, []))

    def _take(self, queue: deque[Proposal]) -> Proposal:
        proposal = queue.popleft()
        self._pending_size -= proposal.size_bytes
        return proposal

    def _payload(
        self, proposal: Proposal, now_ms: int, picker: Picker, fifo_picker: FifoPicker
    ) -> tuple[list[Pick], Parts | None] | None:
        """Return a receive's picks and payload (None: empty); None if it must wait."""
        if proposal.receive is None:
            assert proposal.build is not None
            return [], proposal.build(now_ms)
        if proposal.kind == CommandKind.LEASE_FIFO:
            found = fifo_picker.pick(proposal.receive)
            return None if found is None else ([*found], [lease_fifo_payload(found)] if found else None)
        picks = picker.pick(proposal.receive)
        return picks, [lease_rows(picks)] if picks else None

    def _launch(
        self,
        commands: list[tuple[CommandKind, Parts]],
        waiting: list[tuple[Proposal, list[Pick]]],
        now_ms: int | None = None,
    ) -> None:
        flight = self._flight = Flight(waiting=waiting)
        now_ms = self.now_ms() if now_ms is None else now_ms
        is_urgent = all(kind not in UNHURRIED for kind, _ in commands)
        try:
            flight.index, flight.term = self._propose(entry_parts(now_ms, commands), is_urgent)
        except OSError as error:
            if not is_lack(error):
                raise
            self._flight = None  # the log has undone its half-written entry
            self._refuse_storing(commands, waiting, now_ms, self._refusal(error))
            return
        self.entries += 1

    def _refuse_storing(
        self,
        commands: list[tuple[CommandKind, Parts]],
        waiting: list[tuple[Proposal, list[Pick]]],
        now_ms: int,
        refusal: TernError,
    ) -> None:
        """Refuse commands that store messages, since the log is full; retry the others."""
        rest = [number for number, (kind, _) in enumerate(commands) if kind not in UNHURRIED]
        is_refused = set(range(len(commands))) - set(rest) or set(rest)
        self._answer_all((waiting[number][0], refusal, []) for number in is_refused)
        rest = [number for number in rest if number not in is_refused]
        if rest:
            self._launch([commands[number] for number in rest], [waiting[number] for number in rest], now_ms)
        elif self._pending:
            self._soon()

    def now_ms(self) -> int:
        """Return the group's time, which advances without requests, as far as it is known here."""
        return self._clock.now_ms()

    def has_clock(self) -> bool:
        """Return whether this leader has a clock; until then it proposes nothing."""
        return self._clock.is_running()

    def _refusal(self, error: OSError) -> TernError:
        return lack_of(error, node=self._node, broker_group=self._broker_group)

    def _not_leader(self) -> TernError:
        return NotLeader(node=self._node, leader=self._leader() or "", broker_group=self._broker_group)


def _looks(proposal: Proposal) -> bool:
    """Return whether it reads messages to know its result."""
    return proposal.receive is not None and (
        proposal.kind == CommandKind.LEASE_FIFO or proposal.receive.look is not None
    )
