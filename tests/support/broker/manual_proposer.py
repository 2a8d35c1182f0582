"""A proposer over an in-memory log: entries are applied when the test says so, and time is the test's."""

from collections.abc import Callable
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.clock import range_of
from tern_broker.core.delivery.picking import Look, ReceiveRequest
from tern_broker.proposal import Proposal
from tern_broker.proposer import Proposer
from tern_wire.link.commands import CommandKind
from tests.support.broker.entries import Log, send_payload


class ManualProposer:
    """The proposer, its log, and all answers in their order."""

    def __init__(self) -> None:
        self.log = Log()
        self.topic, self.group = self.log.create()
        self.serving, self.term, self.index = True, 1, 10
        self.soon: list[Any] = []
        self.proposed: list[tuple[int, int, bytes]] = []
        self.answers: list[Any] = []
        self.failure: OSError | None = None
        self.has_reserve = False
        self.keep_up = True
        self.mono_ms = 0
        # What is heard of the members' clocks; empty: this node is alone, and its clock is right.
        self.members = 1
        self.walls_ms: list[int] = []
        self.expected_ms: int | None = None
        self.proposer = Proposer(
            broker_group="broker-a",
            state=lambda: self.log.state,
            read_queue=self.log.read,
            propose=self.propose,
            is_serving=lambda: self.serving,
            leader=lambda: "broker-a-1",
            node="broker-a-0",
            mono_ms=lambda: self.mono_ms,
            clocks=lambda: range_of(self.walls_ms or [1_000_000 + self.mono_ms], self.members),
            expected_ms=lambda: self.expected_ms,
            call_soon=self.soon.append,
            may_propose=lambda: self.keep_up,
        )

    def propose(self, parts: Any, urgent: bool) -> tuple[int, int]:
        """Remember the entry."""
        if self.failure and not (urgent and self.has_reserve):
            raise self.failure
        self.index += 1
        self.proposed.append((self.index, self.term, b"".join(parts)))
        return self.index, self.term

    def turn(self) -> None:
        """One turn of the loop."""
        soon = list(self.soon)
        self.soon.clear()
        for callback in soon:
            callback()

    def commit(self) -> Applied:
        """Apply the last entry."""
        index, term, body = self.proposed[-1]
        applied = self.log.state.apply(memoryview(body), self.log.position, 1)
        for append in (append for appends in applied.appends for append in appends):
            self.log.queues.setdefault((append.topic_id, append.queue), []).extend(append.entries.tolist())
        self.proposer.applied(index, term, applied)
        return applied

    def send(self, size_bytes: int = 100) -> None:
        """Submit one message."""
        payload = send_payload((self.topic, 0, b"m", b""))
        self.proposer.submit(
            Proposal(
                CommandKind.SEND, size_bytes, lambda verdict, _: self.answers.append(verdict), build=lambda _: [payload]
            )
        )

    def receive(self, messages_max: int = 10, look: Callable[[], Look] | None = None) -> None:
        """Submit one receive; *look* begins looking with its filter."""
        request = ReceiveRequest(
            group=self.log.state.names.groups["g"],
            topic=self.log.state.names.topics["t"],
            messages_max=messages_max,
            size_max_bytes=1 << 20,
            invisible_ms=1000,
            first_queue=0,
            look=look,
        )
        self.proposer.submit(
            Proposal(CommandKind.LEASE, 64, lambda _, picks: self.answers.append(picks), receive=request)
        )

    def other(self, kind: CommandKind = CommandKind.SETTLE) -> None:
        """Submit a command that stores no messages."""
        self.proposer.submit(Proposal(kind, 0, lambda verdict, _: self.answers.append(verdict), build=lambda _: []))
