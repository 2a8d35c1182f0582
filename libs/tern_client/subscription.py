"""What a consumer asks of its topic for its group, as steps for a shell to drive: receive, and settle. Pure.

The async and the blocking Consumer are two shells over this; leases in flight are the async one's alone.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

from tern_client.calling import Course, Outcome, Step, call
from tern_client.documents import Settle, read_received, read_settled, receive_request, settle_request
from tern_client.models import ReceivedMessage
from tern_client.settling import PendingSettles
from tern_wire.errors import TernError


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A consumer's settings, and the settles that it has not sent yet. Owned by one consumer. Times are ms."""

    topic: str
    group: str
    max_messages: int
    max_bytes: int
    wait_ms: int
    # None: the group's own.
    invisible_ms: int | None
    # What is wanted, one of them at most; without both, what the group's members subscribe to.
    tags: str = ""
    sql: str = ""
    pending: PendingSettles = field(default_factory=PendingSettles)

    def receive(
        self, course: Course, max_messages: int, wait_ms: int | None, began_ms: float, attempt_id: str = ""
    ) -> Generator[Step, Outcome, list[ReceivedMessage]]:
        """Steps of one receive; what waits to be settled goes along, and waits again when the receive fails or is given up."""
        settles = self.pending.take()
        request = receive_request(
            self.topic,
            self.group,
            max_messages=max_messages,
            max_bytes=self.max_bytes,
            wait_ms=self.wait_ms if wait_ms is None else wait_ms,
            invisible_ms=self.invisible_ms,
            settles=settles,
            attempt_id=attempt_id,
            tags=self.tags,
            sql=self.sql,
        )
        try:
            response = yield from call(course, request, began_ms)
        except BaseException:
            self.pending.give_back(settles)
            raise
        messages, errors = read_received(response)
        self.pending.settled(settles, errors)
        return messages

    def settle(
        self, course: Course, settles: list[Settle], began_ms: float
    ) -> Generator[Step, Outcome, dict[str, TernError]]:
        """Steps of settling now; the errors by receipt handle. Raises when it is not known what became of them."""
        if not settles:
            return {}
        try:
            response = yield from call(course, settle_request(self.topic, self.group, settles), began_ms)
        except TernError as error:
            if error.retryable:
                raise
            return self.pending.refused(settles, dict.fromkeys(range(len(settles)), error))
        return self.pending.refused(settles, read_settled(response))
