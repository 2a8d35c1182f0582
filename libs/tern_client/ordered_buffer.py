"""Messages of `send_soon` with a message group, until it is their turn. Pure: time is an argument.

    add -> run of its message group -> first of its group: ready
        -> 5 ms, a full batch or a hurry -> batch -> settled -> the next run is ready

A run holds the messages that came for one message group while it could not leave; it grows until it
is taken. So a message group has one batch in flight, and the messages that gather meanwhile form
the next one. Batches in flight have no message group in common, and none waits for another's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tern_client.calls.batching import Batch, BatchLimits, size_of
from tern_client.calls.models import OutgoingMessage
from tern_client.calls.turns import Turn, Turns, is_given_up
from tern_wire.errors import TernError

Token = TypeVar("Token")
# Message, token, size in bytes, and the time when it was taken (ms).
Waiting = tuple[OutgoingMessage, Token, int, float]


class Run(Turn, Generic[Token]):
    """Messages of one message group that follow each other."""

    __slots__ = ("due_ms", "is_taken", "messages", "size_bytes")

    def __init__(self, topic: str, message_group: str, due_ms: float) -> None:
        super().__init__(((topic, message_group),))
        self.messages: list[Waiting[Token]] = []
        self.size_bytes = 0
        self.due_ms = due_ms
        self.is_taken = False


@dataclass(slots=True)
class OrderedBatch(Batch[Token]):
    """A batch, the runs that it took whole, and for each message its run and the time when the
    buffer took it (ms).
    """

    runs: list[Run[Token]] = field(default_factory=list)
    waits: list[tuple[Run[Token], float]] = field(default_factory=list)

    def drop_overdue(self, now_ms: float, deadline_ms: float) -> list[tuple[Token, float]]:
        """Remove overdue messages; return their tokens, and how long they waited (ms). Their bytes
        count until the batch is settled.
        """
        late = {
            number: now_ms - at_ms
            for number, (run, at_ms) in enumerate(self.waits)
            if run.is_overdue(now_ms - at_ms, deadline_ms)
        }
        dropped = [(self.tokens[number], waited_ms) for number, waited_ms in late.items()]
        if late:
            kept = [number for number in range(len(self.tokens)) if number not in late]
            for number in late:
                self.waits[number][0].has_failed = True
            self.messages = [self.messages[number] for number in kept]
            self.tokens = [self.tokens[number] for number in kept]
            self.waits = [self.waits[number] for number in kept]
        return dropped

    def note(self, errors: Mapping[int, TernError]) -> None:
        """Note the *errors* by number of the messages that are not stored."""
        for number, error in errors.items():
            self.waits[number][0].has_failed |= is_given_up(error)


@dataclass(slots=True)
class _Ready(Generic[Token]):
    """The runs of one topic that may leave."""

    due_ms: float
    runs: dict[Run[Token], None] = field(default_factory=dict)
    count: int = 0
    size_bytes: int = 0


class OrderedBuffer(Generic[Token]):
    """The runs of one Producer, which are turns among its other sends in *turns*. Owner: that
    Producer.
    """

    __slots__ = ("_limits", "_ready", "_turns", "waiting")

    def __init__(self, limits: BatchLimits, turns: Turns) -> None:
        self._limits, self._turns = limits, turns
        self._ready: dict[str, _Ready[Token]] = {}
        # Messages that no batch has taken.
        self.waiting = 0

    def add(self, topic: str, message: OutgoingMessage, token: Token, now_ms: float) -> None:
        """Add *message*, which has a message group."""
        size_bytes = size_of(message)
        run = self._turns.last((topic, message.message_group))
        if not isinstance(run, Run) or run.is_taken:
            run = Run[Token](topic, message.message_group, now_ms + self._limits.linger_ms)
            if self._turns.enter(run):
                self.ready(run)
        run.messages.append((message, token, size_bytes, now_ms))
        run.size_bytes += size_bytes
        self.waiting += 1
        ready = self._ready.get(topic)
        if ready and run in ready.runs:
            ready.count += 1
            ready.size_bytes += size_bytes

    def ready(self, run: Run[Token]) -> None:
        """Let *run* leave: its turn has come."""
        topic = run.keys[0][0]
        ready = self._ready.get(topic)
        if ready is None:
            ready = self._ready[topic] = _Ready(run.due_ms)
        ready.due_ms = min(ready.due_ms, run.due_ms)
        ready.runs[run] = None
        ready.count += len(run.messages)
        ready.size_bytes += run.size_bytes

    def hurry(self, turns: Iterable[Turn]) -> None:
        """Make *turns* due at once, since a caller waits for them."""
        for run in turns:
            if isinstance(run, Run) and not run.is_taken:
                run.due_ms = 0.0
                ready = self._ready.get(run.keys[0][0])
                if ready and run in ready.runs:
                    ready.due_ms = 0.0

    def take(self, now_ms: float, *, is_hurried: bool = False) -> OrderedBatch[Token] | None:
        """Take the next batch that is full or due; with *is_hurried*, any that may leave. None
        without one.
        """
        limits = self._limits
        for topic, ready in self._ready.items():
            is_full = ready.size_bytes >= limits.size_max_bytes or ready.count >= limits.messages_max
            if is_hurried or is_full or ready.due_ms <= now_ms:
                return self._fill(topic, ready)
        return None

    def _fill(self, topic: str, ready: _Ready[Token]) -> OrderedBatch[Token]:
        batch: OrderedBatch[Token] = OrderedBatch(topic, ready.due_ms)
        for run in list(ready.runs):
            count = self._fitting(batch, run)
            if not count:
                break
            whole = run
            if count < len(run.messages):
                whole = self._cut(run, count)
            del ready.runs[run]
            whole.is_taken = True
            batch.runs.append(whole)
            for message, token, _, at_ms in whole.messages:
                batch.messages.append(message)
                batch.tokens.append(token)
                batch.waits.append((whole, at_ms))
            batch.size_bytes += whole.size_bytes
            ready.count -= len(whole.messages) + (len(run.messages) if whole is not run else 0)
            ready.size_bytes -= whole.size_bytes + (run.size_bytes if whole is not run else 0)
        self.waiting -= len(batch.messages)
        # Behind the other topics. The rest has waited for longer than its linger time, and leaves
        # as soon as there is room.
        del self._ready[topic]
        if ready.runs:
            self._ready[topic] = ready
        return batch

    def _fitting(self, batch: Batch[Token], run: Run[Token]) -> int:
        """Return how many of *run*'s messages fit into *batch*; at least one when it is empty."""
        count, size_bytes = len(batch.messages), batch.size_bytes
        for number, (_, _, size, _) in enumerate(run.messages):
            if count and (count >= self._limits.messages_max or size_bytes + size > self._limits.size_max_bytes):
                return number
            count, size_bytes = count + 1, size_bytes + size
        return len(run.messages)

    def _cut(self, run: Run[Token], count: int) -> Run[Token]:
        """Split the first *count* messages from *run* into a run before it."""
        topic, message_group = run.keys[0]
        part = Run[Token](topic, message_group, run.due_ms)
        part.messages, run.messages = run.messages[:count], run.messages[count:]
        part.size_bytes = sum(size for _, _, size, _ in part.messages)
        run.size_bytes -= part.size_bytes
        self._turns.divide(run, part)
        return part

    @property
    def next_due_ms(self) -> float | None:
        """When `take` will next return a batch; None when nothing may leave."""
        return min((ready.due_ms for ready in self._ready.values()), default=None)
