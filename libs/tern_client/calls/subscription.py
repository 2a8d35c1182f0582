"""The calls of a consumer about its topic and group, as steps for a shell to drive: receive, and
settle. Pure.

The async and the blocking Consumer are two shells over this. Only the async one counts leases in
flight.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from tern_client.calls.compressed_bodies import decompressed
from tern_client.calls.documents import Settle, read_received, read_settled, receive_request, settle_request
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.settling import PendingSettles
from tern_client.transport.calling import Course, Outcome, Step, call
from tern_wire.errors import InvalidField, TernError
from tern_wire.limits import INVISIBLE_MIN_MS, SETTLE_ENTRIES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Settings of a consumer, and the settles that it has not sent. Owner: one consumer. Times are
    milliseconds.
    """

    topic: str
    group: str
    max_messages: int
    max_bytes: int
    wait_ms: int
    # None: the group's own.
    invisible_ms: int | None
    # A filter, at most one of them. Without one, the subscription of the group's members.
    tags: str = ""
    sql: str = ""
    pending: PendingSettles = field(default_factory=PendingSettles)

    def receive(
        self, course: Course, max_messages: int, wait_ms: int | None, began_ms: float, attempt_id: str = ""
    ) -> Generator[Step, Outcome, list[ReceivedMessage]]:
        """Return the steps of one receive. Waiting settles are sent along; they wait again when the
        receive fails or is given up.
        """
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
        return (yield from decompressed(messages))

    def settle(
        self, course: Course, settles: list[Settle], began_ms: float
    ) -> Generator[Step, Outcome, dict[str, TernError]]:
        """Return the steps of settling now; their result is the errors by receipt handle. Raises
        when the outcome is unknown.
        """
        if not settles:
            return {}
        try:
            response = yield from call(course, settle_request(self.topic, self.group, settles), began_ms)
        except TernError as error:
            if error.retryable:
                raise
            return self.pending.refused(settles, dict.fromkeys(range(len(settles)), error))
        return self.pending.refused(settles, read_settled(response))

    def release(
        self, course: Course, messages: Sequence[ReceivedMessage], began_ms: float
    ) -> Generator[Step, Outcome, bool]:
        """Return the steps of releasing *messages* that no handler has seen: visible at once, and
        the attempt does not count.

        The result is False when the proxy is of a release without that action; nothing has happened
        then. Raises when the outcome is unknown.
        """
        for settles in _settles_of(messages, "release"):
            try:
                response = yield from call(course, settle_request(self.topic, self.group, settles), began_ms)
                errors = read_settled(response)
                if again := [settles[at] for at, error in errors.items() if error.retryable]:
                    # One of several broker groups failed for now.
                    yield from call(course, settle_request(self.topic, self.group, again), began_ms)
            except InvalidField:
                return False
            except TernError as error:
                if error.retryable:
                    raise
        return True

    def shorten(
        self, course: Course, messages: Sequence[ReceivedMessage], began_ms: float
    ) -> Generator[Step, Outcome, None]:
        """Return the steps of giving back *messages* at a proxy without releases: visible in a
        second, and the attempt counts.
        """
        for settles in _settles_of(messages, "extend", INVISIBLE_MIN_MS):
            yield from self.settle(course, settles, began_ms)


def _settles_of(
    messages: Sequence[ReceivedMessage], action: str, invisible_ms: int = 0
) -> Generator[list[Settle], None, None]:
    for at in range(0, len(messages), SETTLE_ENTRIES_MAX):
        part = messages[at : at + SETTLE_ENTRIES_MAX]
        yield [Settle(message.receipt_handle, action, invisible_ms) for message in part]
