"""The blocking Consumer, for threads and scripts: the decisions of the async one, in one thread,
with a `stop` for any thread.
"""

import logging
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace

from tern_client.blocking.settling import BlockingSettleCalls
from tern_client.calls.documents import Settle
from tern_client.calls.models import ReceivedMessage
from tern_client.calls.subscription import Subscription
from tern_client.consumer import EMPTY_PAUSE_MS, WAIT_DEFAULT_MS
from tern_client.prefetch import Prefetch
from tern_client.running import ITERATING
from tern_client.transport.blocking_transport import BlockingCaller, BlockingTransport, CallAbandoned
from tern_client.transport.clock import epoch_ms, now_ms
from tern_client.transport.credentials import FileName
from tern_client.transport.retrying import RetryPolicy
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_DEFAULT_BYTES, WAIT_MAX_MS

logger = logging.getLogger("tern_client.consumer")
# The longest time for which a consumer that was not closed delays the end of its program, to settle
# the rest.
_LAST_WORDS_MS = 3_000


class BlockingConsumer(BlockingSettleCalls):
    """Receives the messages of one topic for one consumer group: `for message in consumer`, then
    `consumer.confirm(message)`.

    Threads do not share a consumer, but any thread may call `stop`. The arguments, and what a loop
    receives ahead and releases, are those of the async Consumer, without *in_flight_max*.

    A loop waits for the next message without end. It ends by `break`, by `stop` from another thread
    or a signal handler, or by `until_idle` instead of a plain loop. A message whose lease is over,
    by *clock* (milliseconds since 1970), is not handed out: the broker delivers it again. `close`
    acks the confirmed messages; later uses raise ClientClosed.

    Example:

        from tern_client import BlockingConsumer, BlockingProducer

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"order 1")
            producer.send("orders", b"order 2")
        with BlockingConsumer("http://127.0.0.1:8080", "orders", "billing") as consumer:
            numbers = []
            for message in consumer.until_idle(idle_ms=50):
                try:
                    numbers.append(int(message.body.split()[1]))
                except ValueError as error:
                    consumer.dead_letter(str(error), message)
                else:
                    consumer.confirm(message)  # acked with the next receive, or by close
            print(numbers)  # -> [1, 2]
    """

    def __init__(
        self,
        endpoints: str | Sequence[str],
        topic: str,
        group: str,
        *,
        max_messages: int = 32,
        max_bytes: int = RECEIVE_SIZE_DEFAULT_BYTES,
        wait_ms: int = WAIT_DEFAULT_MS,
        invisible_ms: int | None = None,
        tags: str = "",
        sql: str = "",
        namespace: str = "",
        policy: RetryPolicy | None = None,
        key_file: FileName | None = None,
        ca_file: FileName | None = None,
        transport: BlockingTransport | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(
            endpoints, namespace=namespace, policy=policy, key_file=key_file, ca_file=ca_file, transport=transport
        )
        self._clock = clock or epoch_ms
        self._subscription = Subscription(
            topic=topic,
            group=group,
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            invisible_ms=invisible_ms,
            tags=tags,
            sql=sql,
        )
        self._prefetch = Prefetch(max_messages)
        self._can_release = True
        self._is_stopped = False
        # A forked child has a copy of this consumer and must not settle for it.
        self._process = os.getpid()
        # Settles for a consumer that is dropped, or still open at the end of its program. None of
        # these may refer to the consumer.
        last = (self._process, self._caller, self._subscription, self._prefetch)
        self._last_words = weakref.finalize(self, _end_unclosed, *last)

    def stop(self) -> None:
        """End the loop for good: at once where it waits, else after the message in hand. Any thread
        or signal handler may call it.

        Later receives return []. Messages that were handed out can be settled until `close`. Behind
        a forward proxy, a wait continues to its end.
        """
        self._is_stopped = True
        self._caller.abandon()

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Iterate over messages until `stop`."""
        return self._iterate(None)

    def until_idle(self, idle_ms: int = 0) -> Iterator[ReceivedMessage]:
        """Iterate over messages until none has come for *idle_ms*, or until `stop`."""
        return self._iterate(idle_ms)

    def _iterate(self, idle_ms: int | None) -> Generator[ReceivedMessage, None, None]:
        loop = object()
        ITERATING[loop] = self
        idle_from_ms = self._clock()
        try:
            while not self._is_stopped:
                self._check_open()
                if (message := self._prefetch.take(self._clock())) is not None:
                    yield message
                    idle_from_ms = self._clock()
                    continue
                left_ms = None if idle_ms is None else idle_from_ms + idle_ms - self._clock()
                if not self._fill(left_ms) and idle_ms is not None and idle_from_ms + idle_ms <= self._clock():
                    return
        finally:
            # Any end of the loop. Python closes one that is dropped.
            del ITERATING[loop]
            if not self._is_closed and os.getpid() == self._process:
                self._give_back(self._prefetch.clear())

    def _fill(self, left_ms: int | None) -> bool:
        """Receive ahead, with the consumer's wait, at most *left_ms*; return whether messages
        came.
        """
        began_ms = self._clock()
        wait_ms = self._subscription.wait_ms if left_ms is None else min(max(left_ms, 0), WAIT_MAX_MS)
        messages = self.receive(self._prefetch.ask(began_ms), wait_ms)
        now_ms = self._clock()
        suspects = self._prefetch.add(messages, began_ms, now_ms, may_return=self._can_release)
        if not self._release_unseen(suspects):
            self._prefetch.keep(suspects, now_ms)
        pause_ms = EMPTY_PAUSE_MS if left_ms is None else min(left_ms, EMPTY_PAUSE_MS)
        if not messages and not self._is_stopped and now_ms - began_ms < pause_ms:
            time.sleep(pause_ms / 1000)
        return bool(messages)

    def receive(self, max_messages: int = 0, wait_ms: int | None = None, attempt_id: str = "") -> list[ReceivedMessage]:
        """Receive up to *max_messages* (0: the consumer's) with leases; [] when *wait_ms* (None:
        the consumer's) passes without any, or after `stop`.

        Confirmations are sent along. A repeat with the same *attempt_id* (at most 64 characters)
        returns the same messages while their leases last.
        """
        self._check_open()
        if self._is_stopped:
            return []
        count = max_messages or self._subscription.max_messages
        steps = self._subscription.receive(self._course, count, wait_ms, now_ms(), attempt_id)
        try:
            messages = self._caller.drive(steps, is_over=lambda: self._is_stopped or self._is_closed)
        except CallAbandoned:
            messages = []
        if self._is_closed:
            # Closed by another thread meanwhile, which could not release these messages.
            try:
                self._settle_rest()
                self._give_back(messages)
            finally:
                self._check_open()
        return messages

    def confirm(self, *messages: ReceivedMessage) -> None:
        """Mark *messages* as done: they are acked with the next receive or by `close`."""
        self._check_open()
        self._subscription.pending.add(Settle(message.receipt_handle) for message in messages)

    def _finish(self) -> None:
        self._last_words.detach()
        if os.getpid() != self._process:
            return
        self._caller.abandon()  # another thread may be waiting
        self._settle_rest()
        self._give_back(self._prefetch.clear())

    def _settle_rest(self) -> None:
        _settle_pending(self._caller, self._subscription)

    def _give_back(self, unseen: list[ReceivedMessage]) -> None:
        """Release *unseen*, or shorten their leases. Where that fails they come again when their
        leases end, and this attempt counts.
        """
        try:
            if not self._release_unseen(unseen):
                self._caller.drive(self._subscription.shorten(self._course, unseen, now_ms()))
        except TernError as error:
            logger.warning("%d messages that no handler has seen could not be released: %s", len(unseen), error)

    def _release_unseen(self, unseen: list[ReceivedMessage]) -> bool:
        """Release *unseen*; False when the proxy is of a release without that action, and nothing
        has happened.
        """
        if unseen and self._can_release:
            self._can_release = self._caller.drive(self._subscription.release(self._course, unseen, now_ms()))
        return self._can_release or not unseen


def _settle_pending(caller: BlockingCaller, subscription: Subscription) -> None:
    # Without the check that the consumer is open: it is closing now.
    while pending := subscription.pending.take():
        try:
            caller.drive(subscription.settle(caller.course, pending, now_ms()))
        except BaseException:
            subscription.pending.give_back(pending)
            raise


def _end_unclosed(process: int, caller: BlockingCaller, subscription: Subscription, prefetch: Prefetch) -> None:
    """Do the work of `close` in a short time. The program ends, perhaps because no proxy runs."""
    if os.getpid() != process:
        return
    course = replace(caller.course, policy=replace(caller.course.policy, deadline_ms=_LAST_WORDS_MS))
    unseen = prefetch.clear()
    try:
        while pending := subscription.pending.take():
            caller.drive(subscription.settle(course, pending, now_ms()))
        if unseen and not caller.drive(subscription.release(course, unseen, now_ms())):
            caller.drive(subscription.shorten(course, unseen, now_ms()))
    except TernError as error:
        logger.warning("%d messages that no handler has seen could not be released: %s", len(unseen), error)
    finally:
        caller.close()
