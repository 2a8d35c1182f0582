"""Hand-made histories: what clients asked and heard, told line by line, and what the nodes held in the end.

Every line is one operation that is over before the next one begins, unless `begin` and `end` say otherwise.
"""

from tern_wire.link.rows import ACK, SETTLED
from tests.sim.clients.bodies import message_id
from tests.sim.history.history import (
    REJECT,
    Answered,
    Asked,
    CommitOffsets,
    Committed,
    Create,
    EndState,
    GraveEnd,
    GroupOffsets,
    Held,
    History,
    Letter,
    LogRow,
    NodeEnd,
    Offsets,
    Operation,
    Pull,
    Pulled,
    QueueEnd,
    QueueEnds,
    Read,
    Receive,
    Seek,
    Send,
    Sending,
    Sent,
    Settle,
    Settling,
    Sought,
    Stored,
)

TOPIC, GROUP = "orders", "billing"
INVISIBLE_MS = 1_000


def message(name: str, *, queue: int = 0, key: str = "", message_group: str = "", deliver_ms: int = 0) -> Sending:
    """One message of a send."""
    return Sending(queue, name, key, 20, message_group, deliver_ms)


class Story:
    """Owner: the test."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.history = History(self._tick)
        self.queues: dict[tuple[str, int], list[Stored]] = {}
        self.mins: dict[tuple[str, int], int] = {}
        self.is_drained = True
        self.letters: list[Letter] = []

    def _tick(self) -> float:
        self._now_s += 0.001
        return self._now_s

    def begin(self, asked: Asked, client: str = "p0") -> Operation:
        """Somebody asks."""
        return self.history.invoke(client, asked)

    def ok(self, operation: Operation, answer: Answered) -> Operation:
        """It was answered."""
        self.history.ok(operation, "n0", answer)
        return operation

    def info(self, operation: Operation) -> Operation:
        """It never was."""
        self.history.info(operation, "n0", "no-answer")
        return operation

    def fail(self, operation: Operation) -> Operation:
        """It was refused."""
        self.history.fail(operation, "n0", "not-leader")
        return operation

    # Whole operations ------------------------------------------------------------------------------------------
    def sends(
        self, sent: Sending, offset: int, status: int = 0, first_id: str = "", *, is_stored: bool = True
    ) -> Operation:
        """A good send of one message to *offset*, and where it says, it is."""
        operation = self.begin(Send(TOPIC, (sent,)))
        if is_stored and not status:
            self.put(sent.name, offset, operation, queue=sent.queue)
        return self.ok(operation, (Sent(status, sent.queue, offset, first_id),))

    def buries(self, offset: int, attempts: int, cause: str, died_ms: int, name: str = "p0.1") -> None:
        """A dead letter that all nodes hold in the end."""
        self.letters.append(Letter(len(self.letters), TOPIC, 0, offset, attempts, cause, died_ms, name))

    def put(
        self, name: str, offset: int, operation: Operation | None = None, *, queue: int = 0, stored_ms: int = 5
    ) -> None:
        """A message that all nodes hold in the end."""
        unique = message_id(operation.number, 0) if operation is not None else ""
        self.queues.setdefault((TOPIC, queue), []).append(Stored(offset, name, unique, stored_ms))

    def receives(self, offset: int, lease: int, granted_ms: int, attempt: int = 1, name: str = "p0.1") -> Operation:
        """A receive of one message."""
        asked = Receive(GROUP, TOPIC, 1, INVISIBLE_MS)
        return self.ok(self.begin(asked, "c0"), (Held(0, offset, lease, attempt, granted_ms + INVISIBLE_MS, name),))

    def rejects(self, offset: int, lease: int) -> Operation:
        """A rejection of one message."""
        return self.settles(offset, lease, REJECT)

    def seeks(self, to: str, number: int, *, before: int, after: int) -> Operation:
        """A seek in one queue."""
        return self.ok(self.begin(Seek(GROUP, TOPIC, to, number), "r0"), (Sought(0, before, after),))

    def settles(
        self, offset: int, lease: int, action: int = ACK, invisible_ms: int = 0, status: int = SETTLED
    ) -> Operation:
        """A settle of one message."""
        return self.ok(self.begin(self.settling(offset, lease, action, invisible_ms), "c0"), bytes((status,)))

    @staticmethod
    def settling(offset: int, lease: int, action: int = ACK, invisible_ms: int = 0) -> Settle:
        """The question alone."""
        return Settle(GROUP, (Settling(TOPIC, 0, offset, lease, action, invisible_ms),))

    def looks(self, offset: int) -> Operation:
        """A look at the group's committed offset."""
        return self.ok(self.begin(GroupOffsets(GROUP, TOPIC), "r0"), (Committed(0, offset),))

    @staticmethod
    def commit(offset: int, expected: int = -1) -> CommitOffsets:
        """The question alone."""
        return CommitOffsets(GROUP, TOPIC, ((0, offset),), ((0, expected),) if expected >= 0 else ())

    def commits(self, offset: int, expected: int = -1) -> Operation:
        """A good commit."""
        return self.ok(self.begin(self.commit(offset, expected), "r0"), (Committed(0, offset),))

    def pulls(self, offset: int, *names: str, end: int, next_offset: int = -1, first: int = -1) -> Operation:
        """A pull that gets *names*."""
        begin = first if first >= 0 else offset
        found = tuple(Read(begin + number, name) for number, name in enumerate(names))
        following = next_offset if next_offset >= 0 else offset + len(names)
        return self.ok(self.begin(Pull(TOPIC, 0, offset), "r0"), Pulled(following, 0, end, found))

    def ends(self, end: int) -> Operation:
        """A look at the queue's end."""
        return self.ok(self.begin(Offsets(TOPIC), "r0"), (QueueEnds(0, 0, end),))

    def declares(self, max_attempts: int, *delays_ms: int) -> Operation:
        """The group's settings."""
        settings = (("max_attempts", max_attempts), ("retry", {"delays_ms": list(delays_ms)}))
        return self.ok(self.begin(Create("group", GROUP, INVISIBLE_MS, settings), "setup"), None)

    # The end ---------------------------------------------------------------------------------------------------
    def end(self, *nodes: NodeEnd) -> EndState:
        """Of these nodes; without any, of two equal ones that hold what was `put`."""
        return EndState(nodes=nodes or (self.node("n0"), self.node("n1")), is_drained=self.is_drained)

    def node(self, name: str, *, applied: int = 3, log: tuple[LogRow, ...] = (), digest: str = "d") -> NodeEnd:
        """One node."""
        queues = {
            place: QueueEnd(self.mins.get(place, 0), tuple(sorted(messages))) for place, messages in self.queues.items()
        }
        graves = {GROUP: GraveEnd(0, tuple(self.letters))} if self.letters else {}
        rows = log or tuple(LogRow(index, 1, index * 7, index * 100) for index in range(1, applied + 1))
        return NodeEnd(
            node=name,
            applied=applied,
            commit=applied,
            first_index=1,
            log=rows,
            digest=digest,
            queues=queues,
            graves=graves,
        )
